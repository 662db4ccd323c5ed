"""Getting a data set from the Hugging Face hub, into the place and form that its source reads.

MNIST and Fashion-MNIST become the four IDX files, FEMNIST becomes `femnist.npz`, Shakespeare one
file as LEAF writes it. What the hub sends has no published checksum; `datasets` checks that it
came whole.
"""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.data.download import Show, line
from isthmus.data.origins import Remote
from isthmus.errors import IsthmusError

Write = Callable[[Any, Path, Show], None]


def get(name: str, remote: Remote, root: Path, show: Show) -> None:
    """Loads a data set through `datasets` and writes it below the data root."""
    if name not in WRITERS or not remote.hub:
        raise IsthmusError(
            f"{name} cannot be got from the hub; expected one of {', '.join(WRITERS)}; try "
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
        loaded = datasets.load_dataset(remote.hub)
        WRITERS[name](loaded, root / name, show)
    except IsthmusError:
        raise
    except OSError as error:
        raise IsthmusError(
            f"{root / name} cannot be written, or {remote.hub} cannot be read "
            f"({line(error)}); expected both; try again, or another --data-root"
        ) from None
    except Exception as error:  # whatever the hub's library raises is not a mistake in here
        raise IsthmusError(
            f"{remote.hub} on the hub cannot be read ({type(error).__name__}: {line(error)}); "
            f"expected the data set {name}; try again later"
        ) from None


def _idx(loaded: Any, folder: Path, show: Show) -> None:
    for part, stem in (("train", "train"), ("test", "t10k")):
        rows = loaded[part]
        x = np.empty((len(rows), 28, 28), np.uint8)
        y = np.empty(len(rows), np.uint8)
        for i, row in _counted(rows, part, show):
            x[i], y[i] = np.asarray(row["image"]), row["label"]
        for kind, array in (("images-idx3", x), ("labels-idx1", y)):
            sizes = np.array(array.shape, ">u4").tobytes()
            with _whole(folder / f"{stem}-{kind}-ubyte.gz") as path:
                path.write_bytes(
                    gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes(), mtime=0)
                )


def _femnist(loaded: Any, folder: Path, show: Show) -> None:
    rows = loaded["train"]
    x = np.empty((len(rows), 28, 28), np.uint8)
    y, owner = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    names: dict[str, int] = {}
    for i, row in _counted(rows, "femnist", show):
        x[i], y[i] = np.asarray(row["image"]), row["character"]
        owner[i] = names.setdefault(str(row["writer_id"]), len(names))
    with _whole(folder / "femnist.npz") as path, path.open("wb") as file:
        np.savez_compressed(file, x=x, y=y, owner=owner, names=np.array([*names]))


def _shakespeare(loaded: Any, folder: Path, show: Show) -> None:
    rows = loaded["train"]
    data: dict[str, dict[str, list[str]]] = {}
    for _, row in _counted(rows, "shakespeare", show):
        own = data.setdefault(str(row["character_id"]), {"x": [], "y": []})
        own["x"].append(row["x"])
        own["y"].append(row["y"])
    counts = [len(own["y"]) for own in data.values()]
    table = {"users": list(data), "num_samples": counts, "user_data": data}
    with (
        _whole(folder / "data" / "all_data" / "all_data.json.gz") as path,
        gzip.open(path, "wt", compresslevel=1) as file,
    ):
        json.dump(table, file)


WRITERS: dict[str, Write] = {
    "mnist": _idx,
    "fashion-mnist": _idx,
    "femnist": _femnist,
    "shakespeare": _shakespeare,
}


def _counted(rows: Any, what: str, show: Show) -> Iterable[tuple[int, Any]]:
    for i, row in enumerate(rows):
        yield i, row
        if i % 1000 == 999 or i + 1 == len(rows):
            show(what, i + 1, len(rows))


@contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """Gives a path to write to, which takes the target's place once it is written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    try:
        yield part
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
