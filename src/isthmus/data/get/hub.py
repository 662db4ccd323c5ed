"""Download data sets from the Hugging Face hub, which keeps each of them as Parquet files.

A set of any owner goes to the folder `hub/OWNER/NAME` of the data root, where `named/hub.py` reads
it. Of the sets that have a reader of their own, the files become those that it reads: MNIST and
Fashion-MNIST the four IDX files, FEMNIST `femnist.npz`, Shakespeare one file as LEAF writes it. The
hub publishes no checksums; huggingface_hub checks that files are whole, and continues broken ones.
"""

import gzip
import io
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.data.get.download import Show, claim, explain_disk, shorten
from isthmus.data.get.origins import Form, Origin
from isthmus.errors import IsthmusError
from isthmus.system.files import overwrite, write_bytes

PARQUET = "refs/convert/parquet"  # the branch with the Parquet files of every data set

Rows = Iterator[dict[str, Any]]


def hub_folder(path: str, root: Path) -> Path:
    """Return where a data set of the hub lies below the data root."""
    return root / "hub" / path


def download_set(path: str, root: Path) -> Path:
    """Download the Parquet files of a data set, OWNER/NAME on the hub; return their folder."""
    try:
        from huggingface_hub import snapshot_download
        from PIL import Image  # noqa: F401
        from pyarrow import parquet  # noqa: F401
    except ImportError as error:
        raise IsthmusError(
            f"the hub needs another package ({error}); install it with: pip install 'isthmus[hub]'"
        ) from None
    folder = hub_folder(path, root)
    with claim(path.replace("/", "-"), root):
        try:
            snapshot_download(
                path,
                repo_type="dataset",
                revision=PARQUET,
                allow_patterns="*.parquet",
                local_dir=folder,
            )
        except Exception as error:  # of the network, the hub, or the disk
            raise IsthmusError(
                f"{path} cannot be downloaded from the hub to {folder} ({type(error).__name__}: "
                f"{shorten(error)}); check its name, or try again later"
            ) from None
    return folder


def list_files(folder: Path, split: str, config: str = "") -> list[Path]:
    """List the Parquet files of one split, of the only configuration or the one that is named."""
    return sorted(folder.glob(f"{config or '*'}/{split}/*.parquet"))


def download_from_hub(name: str, origin: Origin, root: Path, show: Show) -> None:
    """Download a data set that has a reader of its own, in the form that this one reads."""
    if not origin.hub:
        raise IsthmusError(
            f"{name} is not downloaded from the hub; try isthmus data get {name} --source official"
        )
    folder = download_set(origin.hub, root)
    try:
        with explain_disk(root / name):
            (root / name).mkdir(parents=True, exist_ok=True)
            WRITERS[origin.hub_form](folder, root / name, show)
    except (IsthmusError, MemoryError):
        raise
    except Exception as error:
        raise IsthmusError(
            f"{origin.hub} on the hub has another form than {name} ({type(error).__name__}: "
            f"{shorten(error)}); try isthmus data get {name} --source official"
        ) from None
    shutil.rmtree(folder)


def read_rows(files: Sequence[Path], columns: Sequence[str], show: Show) -> Rows:
    """Yield the rows of Parquet files, with some of their columns."""
    from pyarrow import parquet

    done, total = 0, sum(parquet.read_metadata(file).num_rows for file in files)
    for file in files:
        with parquet.ParquetFile(file) as opened:
            for batch in opened.iter_batches(1000, columns=list(columns)):
                yield from batch.to_pylist()
                done += len(batch)
                show(file.parent.name, done, total)


def decode(image: dict[str, Any], mode: str = "L", size: int = 0) -> NDArray[np.uint8]:
    """Decode an image as the hub keeps it: [height, width], or [height, width, 3]."""
    from PIL import Image

    with Image.open(io.BytesIO(image["bytes"])) as opened:
        converted: Any = opened.convert(mode)
    return np.asarray(converted.resize((size, size)) if size else converted, np.uint8)


def _write_idx(source: Path, folder: Path, show: Show) -> None:
    for part, stem in (("train", "train"), ("test", "t10k")):
        rows = [
            (decode(row["image"]), row["label"])
            for row in read_rows(list_files(source, part), ("image", "label"), show)
        ]
        images, labels = (np.array(column, np.uint8) for column in zip(*rows, strict=True))
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            sizes = np.array(array.shape, ">u4").tobytes()
            data = bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()
            write_bytes(folder / f"{stem}-{kind}-ubyte.gz", gzip.compress(data, mtime=0))


def _write_femnist(source: Path, folder: Path, show: Show) -> None:
    names: dict[str, int] = {}
    columns = ("image", "character", "writer_id")
    rows = [
        (decode(row["image"]), row["character"], names.setdefault(row["writer_id"], len(names)))
        for row in read_rows(list_files(source, "train"), columns, show)
    ]
    x, y, owner = (np.array(column) for column in zip(*rows, strict=True))
    if x.shape[1:] != (28, 28):
        raise ValueError(f"images are {x.shape[1:]}")
    with overwrite(folder / "femnist.npz") as file:
        np.savez_compressed(file, x=x, y=y, owner=owner, names=np.array([*names]))


def _write_shakespeare(source: Path, folder: Path, show: Show) -> None:
    data: dict[str, dict[str, list[str]]] = {}
    for row in read_rows(list_files(source, "train"), ("character_id", "x", "y"), show):
        own = data.setdefault(str(row["character_id"]), {"x": [], "y": []})
        own["x"].append(row["x"])
        own["y"].append(row["y"])
    table = {"users": list(data), "user_data": data}
    with (
        overwrite(folder / "data" / "all_data" / "all_data.json.gz") as packed,
        gzip.open(packed, "wt", compresslevel=1) as file,
    ):
        json.dump(table, file)


WRITERS: dict[Form, Callable[[Path, Path, Show], None]] = {
    "idx": _write_idx,
    "femnist": _write_femnist,
    "shakespeare": _write_shakespeare,
}
