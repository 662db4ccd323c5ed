"""CIFAR-10 and CIFAR-100, Python version: pickles in a folder, or in the archive as it comes.

A. Krizhevsky, V. Nair, G. Hinton (2009), from the Tiny Images of A. Torralba, R. Fergus and
W. T. Freeman: 50,000 training and 10,000 test photographs, 3x32x32. Their makers state no licence
and ask to be cited. Expected in the data root:

    CIFAR-10    the folder `cifar-10-batches-py` with `data_batch_1` to `data_batch_5`, `test_batch`
                and `batches.meta`, or the archive `cifar-10-python.tar.gz`; ten classes
    CIFAR-100   the folder `cifar-100-python` with `train`, `test` and `meta`, or the archive
                `cifar-100-python.tar.gz`; 100 classes, which are five each of 20 coarse ones

Normalisation of CIFAR-10 is FLOCO's; of CIFAR-100, by the mean and the deviation of each channel
over the training images. The SuPerFed code resizes to 28x28 and does not normalise.

A pickle is a program, so the files are read by an unpickler that knows arrays of bytes and nothing
else. The archive is read member by member and never unpacked.
"""

import gzip
import io
import pickle
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import Arrays
from isthmus.data.file_errors import reading, refuse_missing
from isthmus.data.named.cache import FileExamples, read_cached
from isthmus.data.progress import show_progress

Size = Literal[32, 28]
Table = dict[str, Any]
Images = NDArray[np.uint8]


class PickledType:
    """Stands in for a type of numbers while a pickle is read."""

    def __init__(self, code: str, *_: Any):
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass  # the order of its bytes, of which it has one


class PickledArray:
    """Stands in for an array of bytes: numpy itself crashes on the state of a damaged one."""

    bytes: Images

    def __init__(self, *_: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, by_columns, data = state
        if kind.code != "u1":
            raise ValueError(f"it has an array of type {kind.code!r}, not u1")
        raw = data.encode("latin-1") if isinstance(data, str) else data  # as Python 2 wrote them
        self.bytes = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if by_columns else "C")


STAND_INS = {  # by what a pickled array refers to, as numpy 1 and numpy 2 write it
    "numpy.core.multiarray._reconstruct": PickledArray,
    "numpy._core.multiarray._reconstruct": PickledArray,
    "numpy.ndarray": PickledArray,
    "numpy.dtype": PickledType,
}


class TableUnpickler(pickle.Unpickler):
    """Read numbers, text and arrays of a pickle; refuses every other name."""

    def find_class(self, module: str, name: str) -> type:
        """Return what stands in for one of the names of an array."""
        asked = f"{module}.{name}"
        if asked not in STAND_INS:
            raise ValueError(f"it asks for {asked[:80]!r}, which is no array of bytes")
        return STAND_INS[asked]


def read_table(data: bytes, where: str) -> Table:
    """Return the dictionary of numbers, text, lists and arrays that a pickle holds.

    >>> read_table(bytes.fromhex("8002 7d 5506 6c6162656c73 5d 284b034b0465 73 2e"), "batch")
    {'labels': [3, 4]}
    """
    with reading(where):
        table = TableUnpickler(io.BytesIO(data), encoding="latin-1").load()
        if not isinstance(table, dict):
            raise ValueError(f"it holds a {type(table).__name__}, not a table")
        return {k: v.bytes if isinstance(v, PickledArray) else v for k, v in table.items()}


class CifarFiles(NamedTuple):
    """Where a CIFAR lies, and what its files are called."""

    name: str
    title: str
    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    meta: str  # has the names of the classes

    def load(self, root: Path, size: Size, classes: int, kind: str = "") -> FileExamples:
        """Read all files with one kind of labels, or map the arrays in the cache."""
        folder = root / self.folder
        names = (*self.train, self.test, self.meta)
        paths = [folder / name for name in names] if folder.is_dir() else [root / self.archive]
        variant = f"{kind}-{size}" if kind else f"{size}"
        read = partial(self._read, root, names, size, classes, f"{kind}_label" if kind else "label")
        return read_cached(root / f"{self.folder}.decoded", variant, paths, read)

    def _read(
        self, root: Path, names: Sequence[str], size: Size, classes: int, key: str
    ) -> FileExamples:
        folder, archive = root / self.folder, root / self.archive
        if folder.is_dir():
            where, found = str(folder), _read_folder(folder, names)
        elif archive.is_file():
            where, found = str(archive), _read_archive(archive, self.folder, names)
        else:
            raise refuse_missing(self.name, f"{self.folder} or {self.archive} in {root}", root)
        for name in names:
            if name not in found:
                raise refuse_missing(self.name, f"{name} in {where}", root)
        with reading(f"{self.title} in {where}", "get the files again"):
            train, test = [found[name] for name in self.train], [found[self.test]]
            labels = [str(label) for label in found[self.meta][f"{key}_names"]]
            if len(labels) != classes:
                raise ValueError(f"{len(labels)} names for {classes} classes")
            return FileExamples(
                *_join(train, f"{key}s", size, classes),
                *_join(test, f"{key}s", size, classes),
                np.array(labels),
            )


def _read_folder(folder: Path, names: Sequence[str]) -> dict[str, Table]:
    tables = {}
    for name in show_progress(names, f"reading {folder.name}"):
        path = folder / name
        if path.exists():
            with reading(path):
                data = path.read_bytes()
            tables[name] = read_table(data, str(path))
    return tables


def _read_archive(path: Path, folder: str, names: Sequence[str]) -> dict[str, Table]:
    """Read the members of a packed archive that have these names, in the order they come."""
    tables = {}
    wanted = {f"{folder}/{name}": name for name in names}
    with reading(path), gzip.open(path) as file:
        with tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                if member.name in wanted and member.isreg():
                    content: Any = archive.extractfile(member)
                    tables[wanted[member.name]] = read_table(
                        content.read(), f"{path}: {member.name}"
                    )
        file.read()  # to the end, where the checksum is
    return tables


def _join(
    tables: Sequence[Table], key: str, size: Size, classes: int
) -> tuple[Images, NDArray[np.int64]]:
    """Join the images [n, 3, 32, 32], or resized, and the labels of some files."""
    x = np.concatenate([table["data"] for table in tables])
    y = np.concatenate([table[key] for table in tables])
    if x.dtype != np.uint8 or x.shape != (len(y), 3 * 32 * 32):
        raise ValueError(f"{len(y)} labels and images {x.dtype} {x.shape}, not bytes of 3x32x32")
    if y.dtype.kind not in "iu" or y.min(initial=0) < 0 or y.max(initial=0) >= classes:
        raise ValueError(f"labels are not 0 to {classes - 1}")
    x = x.reshape(-1, 3, 32, 32)
    return (x if size == 32 else _resize(x, size)), y.astype(np.int64)


def _resize(whole: Images, size: int) -> Images:
    """Shrink images as the SuPerFed code does: bilinear with antialiasing, to whole numbers."""
    import torch
    from torch.nn.functional import interpolate

    shrunk = interpolate(
        torch.from_numpy(whole), (size, size), mode="bilinear", antialias=True, align_corners=False
    )
    return shrunk.numpy()


CIFAR10_FILES = CifarFiles(
    "cifar10",
    "CIFAR-10",
    "cifar-10-batches-py",
    "cifar-10-python.tar.gz",
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
)
CIFAR10_NORM = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # as in FLOCO's code


@dataclass(frozen=True)
class Cifar10:
    """CIFAR-10, 3x32x32, ten classes; read from its pickles below --data-root."""

    size: Size = 32  # 28: as the SuPerFed code resizes
    normalise: bool = True

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "simplecnn"
    partition: ClassVar[str] = "pathological"

    def load(self, root: Path, seed: int) -> Arrays:
        """Read the seven files, or the arrays in the cache."""
        examples = CIFAR10_FILES.load(root, self.size, 10)
        return examples.arrays(10, *(CIFAR10_NORM if self.normalise else ()))


CIFAR100_FILES = CifarFiles(
    "cifar100",
    "CIFAR-100",
    "cifar-100-python",
    "cifar-100-python.tar.gz",
    train=("train",),
    test="test",
    meta="meta",
)
CIFAR100_CLASSES = {"fine": 100, "coarse": 20}
CIFAR100_NORM = (0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)


@dataclass(frozen=True)
class Cifar100:
    """CIFAR-100, 3x32x32, 100 or 20 classes; read from its pickles below --data-root."""

    labels: Literal["fine", "coarse"] = "fine"
    size: Size = 32  # 28: as the SuPerFed code resizes
    normalise: bool = True

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "resnet9"
    partition: ClassVar[str] = "dirichlet-classwise"

    def load(self, root: Path, seed: int) -> Arrays:
        """Read the three files, or the arrays in the cache."""
        classes = CIFAR100_CLASSES[self.labels]
        examples = CIFAR100_FILES.load(root, self.size, classes, self.labels)
        return examples.arrays(classes, *(CIFAR100_NORM if self.normalise else ()))
