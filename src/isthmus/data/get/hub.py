"""Downloads a data set from the Hugging Face hub, into the place and form that its source reads.

MNIST and Fashion-MNIST become the four IDX files, FEMNIST becomes `femnist.npz`, Shakespeare one
file as LEAF writes it. What the hub sends has no published checksum; `datasets` checks that it
came whole.
"""

import gzip
import json
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.data.get.download import Show, claim, shorten
from isthmus.data.get.origins import ORIGINS, Form, Origin
from isthmus.errors import IsthmusError
from isthmus.system.files import overwrite, remove_drafts, write_bytes

Write = Callable[[Any, Path, Show], None]


def download_from_hub(name: str, origin: Origin, root: Path, show: Show) -> None:
    """Loads a data set through `datasets` and writes it below the data root."""
    if not origin.hub:
        known = ", ".join(other for other, there in ORIGINS.items() if there.hub)
        raise IsthmusError(
            f"{name} cannot be got from the hub; expected one of {known}; try "
            f"isthmus data get {name} --source official"
        )
    try:
        datasets = import_module("datasets")
        import_module("PIL")
    except ImportError as error:
        raise IsthmusError(
            f"--source hub: {error}; expected the extra hub; pip install 'isthmus[hub]'"
        ) from None
    try:
        with claim(name, root):
            loaded = datasets.load_dataset(origin.hub)
            (root / name).mkdir(parents=True, exist_ok=True)
            remove_drafts(root / name)
            WRITERS[origin.hub_form](loaded, root / name, show)
    except IsthmusError:  # a disk that cannot be written to, which has a line of its own
        raise
    except OSError as error:
        raise IsthmusError(
            f"{root / name} cannot be written, or {origin.hub} cannot be read "
            f"({shorten(error)}); expected both; try again, or another --data-root"
        ) from None
    except Exception as error:  # whatever the hub's library raises is not a mistake in here
        raise IsthmusError(
            f"{origin.hub} on the hub cannot be read ({type(error).__name__}: {shorten(error)}); "
            f"expected the data set {name}; try again later"
        ) from None


def _write_idx(loaded: Any, folder: Path, show: Show) -> None:
    for part, stem in (("train", "train"), ("test", "t10k")):
        rows = loaded[part]
        x = np.empty((len(rows), 28, 28), np.uint8)
        y = np.empty(len(rows), np.uint8)
        for i, row in _count_rows(rows, part, show):
            x[i], y[i] = np.asarray(row["image"]), row["label"]
        for kind, array in (("images-idx3", x), ("labels-idx1", y)):
            sizes = np.array(array.shape, ">u4").tobytes()
            data = bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()
            write_bytes(folder / f"{stem}-{kind}-ubyte.gz", gzip.compress(data, mtime=0))


def _write_femnist(loaded: Any, folder: Path, show: Show) -> None:
    rows = loaded["train"]
    x = np.empty((len(rows), 28, 28), np.uint8)
    y, owner = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    names: dict[str, int] = {}
    for i, row in _count_rows(rows, "femnist", show):
        x[i], y[i] = np.asarray(row["image"]), row["character"]
        owner[i] = names.setdefault(str(row["writer_id"]), len(names))
    with overwrite(folder / "femnist.npz") as file:
        np.savez_compressed(file, x=x, y=y, owner=owner, names=np.array([*names]))


def _write_shakespeare(loaded: Any, folder: Path, show: Show) -> None:
    rows = loaded["train"]
    data: dict[str, dict[str, list[str]]] = {}
    for _, row in _count_rows(rows, "shakespeare", show):
        own = data.setdefault(str(row["character_id"]), {"x": [], "y": []})
        own["x"].append(row["x"])
        own["y"].append(row["y"])
    counts = [len(own["y"]) for own in data.values()]
    table = {"users": list(data), "num_samples": counts, "user_data": data}
    folder = folder / "data" / "all_data"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        overwrite(folder / "all_data.json.gz") as packed,
        gzip.open(packed, "wt", compresslevel=1) as file,
    ):
        json.dump(table, file)


WRITERS: dict[Form, Write] = {
    "idx": _write_idx,
    "femnist": _write_femnist,
    "shakespeare": _write_shakespeare,
}


def _count_rows(rows: Any, what: str, show: Show) -> Iterable[tuple[int, Any]]:
    for i, row in enumerate(rows):
        yield i, row
        if i % 1000 == 999 or i + 1 == len(rows):
            show(what, i + 1, len(rows))
