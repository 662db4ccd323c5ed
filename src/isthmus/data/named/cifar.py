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

The archive is never unpacked: its members are looked for by name and read one after the other, so
that whatever else it holds, and wherever that would go, does not matter.
"""

import gzip
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import Arrays
from isthmus.data.file_errors import refuse_broken, refuse_missing
from isthmus.data.named.cache import FileExamples, read_cached
from isthmus.data.named.unpickle import read_table
from isthmus.data.progress import show_progress
from isthmus.errors import IsthmusError
from isthmus.system.files import open_regular

MOST = 2**28  # bytes in a file, and in an unpacked archive; the real ones have 186 million

CHUNK = 2**20
PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)

Size = Literal[32, 28]
Table = dict[str, Any]
Images = NDArray[np.uint8]


class CifarFiles(NamedTuple):
    """Where a CIFAR lies, and what its files are called."""

    name: str
    title: str
    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    meta: str  # has the names of the classes

    @property
    def files(self) -> tuple[str, ...]:
        """Lists all files."""
        return (*self.train, self.test, self.meta)

    def load(self, root: Path, size: Size, classes: int, kind: str = "") -> FileExamples:
        """Reads all files with one kind of labels, or maps the arrays in the cache."""
        folder = root / self.folder
        paths = [folder / f for f in self.files] if folder.is_dir() else [root / self.archive]
        read = partial(self._read, root, size, classes, kind)
        return read_cached(
            root / f"{self.folder}.decoded", f"{kind}-{size}" if kind else f"{size}", paths, read
        )

    def _read(self, root: Path, size: Size, classes: int, kind: str) -> FileExamples:
        tables, key = self._read_tables(root), f"{kind}_label" if kind else "label"
        train, test = [tables[file] for file in self.train], [tables[self.test]]
        return FileExamples(
            _join_images(train, self.title, size),
            _join_labels(train, f"{key}s", self.title, classes),
            _join_images(test, self.title, size),
            _join_labels(test, f"{key}s", self.title, classes),
            np.array(_read_names(tables[self.meta], f"{key}_names", self.title, classes)),
        )

    def _read_tables(self, root: Path) -> dict[str, Table]:
        if (root / self.folder).is_dir():
            return {
                file: read_table(self._file(root, file), str(root / self.folder / file))
                for file in show_progress(self.files, f"reading {self.folder}")
            }
        path = root / self.archive
        if not path.is_file():
            raise refuse_missing(self.name, f"{self.folder} or {self.archive} in {root}", root)
        wanted = [f"{self.folder}/{file}" for file in self.files]
        try:
            tables = {
                name: read_table(data, f"{path}: {name}")
                for name, data in _read_members(path, wanted)
            }
        except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
            raise refuse_broken(path, error) from error
        for name in wanted:
            if name not in tables:
                raise refuse_missing(self.name, f"{name} in {path}", root)
        return {file: tables[name] for file, name in zip(self.files, wanted, strict=True)}

    def _file(self, root: Path, file: str) -> bytes:
        path = root / self.folder / file
        if not path.is_file():
            raise refuse_missing(self.name, f"{file} in {path.parent}", root)
        try:
            with open_regular(path) as opened:
                return Bounded(opened, path).read()
        except OSError as error:
            raise refuse_broken(path, error) from error


class Bounded:
    """A file that refuses to give more than MOST bytes."""

    def __init__(self, file: Any, where: Path):
        self.file = file
        self.where = where
        self.left = MOST

    def read(self, size: int = -1) -> bytes:
        """Reads so many bytes, or all."""
        data: bytes = self.file.read(self.left + 1 if size < 0 else min(size, self.left + 1))
        self.left -= len(data)
        if self.left < 0:
            raise IsthmusError(
                f"{self.where} holds more than {MOST:,} bytes; expected fewer; get the file again"
            )
        return data


def _read_members(path: Path, wanted: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Reads the wanted members of a packed archive in the order they come."""
    left = set(wanted)
    with open_regular(path) as packed, gzip.open(packed) as file:
        bounded: Any = Bounded(file, path)
        with tarfile.open(fileobj=bounded, mode="r|") as archive:
            entries = (entry for entry in archive if entry.name in left)
            for _ in show_progress(wanted, f"reading {path.name}"):
                member = next(entries, None)
                if member is not None:
                    left.remove(member.name)
                    yield member.name, _read_ordinary(archive, member, path)
        while bounded.read(CHUNK):  # to the end, where the checksum is
            pass


def _read_ordinary(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> bytes:
    """Reads a member that is a file and nothing more: a link could lead anywhere."""
    opened = archive.extractfile(member) if member.type in PLAIN else None
    if opened is None or member.size > MOST:
        raise IsthmusError(
            f"{path}: {member.name} is no ordinary file of at most {MOST:,} bytes; expected one; "
            "get the file again"
        )
    return opened.read()


def _join_images(tables: Sequence[Table], where: str, size: Size) -> Images:
    """Joins the images of some files, [n, 3, 32, 32] or resized."""
    for table in tables:
        data = table.get("data")
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2:
            raise IsthmusError(
                f"{where} has no table of bytes called data; expected one row of 3 x 32 x 32 per "
                "image; get the files again"
            )
        if data.shape[1] != 3 * 32 * 32:
            raise IsthmusError(
                f"{where} has images of {data.shape[1]} bytes; expected 3 x 32 x 32 = 3072; get "
                "the files again"
            )
    whole = np.concatenate([table["data"] for table in tables]).reshape(-1, 3, 32, 32)
    return whole if size == 32 else _resize(whole, size)


def _join_labels(tables: Sequence[Table], key: str, where: str, classes: int) -> NDArray[np.int64]:
    """Joins the labels of some files, and checks that every image has one."""
    joined: list[int] = []
    for table in tables:
        here = table.get(key)
        if not isinstance(here, list) or len(here) != len(table["data"]):
            raise IsthmusError(
                f"{where} has no list called {key} that is as long as its {len(table['data'])} "
                "images; expected one label each; get the files again"
            )
        if not all(type(label) is int and 0 <= label < classes for label in here):
            raise IsthmusError(
                f"{where} has {key} that are no classes; expected 0 to {classes - 1}; get the "
                "files again"
            )
        joined += here
    return np.array(joined, np.int64)


def _read_names(table: Table, key: str, where: str, classes: int) -> tuple[str, ...]:
    """Reads the names of the classes."""
    here = table.get(key)
    if not isinstance(here, list) or not all(type(name) is str for name in here):
        here = []
    if len(here) != classes:
        raise IsthmusError(
            f"{where} has {len(here)} names in {key}; expected {classes}; get the files again"
        )
    return tuple(here)


def _resize(whole: Images, size: int) -> Images:
    """Shrinks images as the SuPerFed code does: bilinear with antialiasing, to whole numbers."""
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
    """CIFAR-10, 3x32x32, ten classes; read from its pickles, which are not run."""

    size: Size = 32  # 28: as the SuPerFed code resizes
    normalise: bool = True

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "simplecnn"
    partition: ClassVar[str] = "pathological"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the seven files, or the arrays in the cache."""
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
    """CIFAR-100, 3x32x32, 100 or 20 classes; read from its pickles, which are not run."""

    labels: Literal["fine", "coarse"] = "fine"
    size: Size = 32  # 28: as the SuPerFed code resizes
    normalise: bool = True

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "resnet9"
    partition: ClassVar[str] = "dirichlet-classwise"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the three files, or the arrays in the cache."""
        classes = CIFAR100_CLASSES[self.labels]
        examples = CIFAR100_FILES.load(root, self.size, classes, self.labels)
        return examples.arrays(classes, *(CIFAR100_NORM if self.normalise else ()))
