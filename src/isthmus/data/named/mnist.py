"""MNIST, Fashion-MNIST and EMNIST from their original IDX files, each with or without `.gz`.

MNIST: Y. LeCun, C. Cortes, C. Burges; 60,000 training and 10,000 test images of handwritten digits,
1x28x28, ten classes (CC BY-SA 3.0). Expected in the folder `mnist` of the data root, or in the data
root itself: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte`,
`t10k-labels-idx1-ubyte`.

Fashion-MNIST: H. Xiao, K. Rasul, R. Vollgraf (Zalando Research, 2017); as many images of articles
of clothing, 1x28x28, ten classes (MIT licence). Its files are called as MNIST's are, so that they
are expected in the folder `fashion-mnist` of the data root and nowhere else.

EMNIST by class: G. Cohen, S. Afshar, J. Tapson, A. van Schaik (2017), made from NIST Special
Database 19 (a work of the United States government, in the public domain): 697,932 training and
116,323 test images of handwritten characters, 1x28x28, 62 classes: the digits, the capital letters,
the small letters. Expected in the folder `emnist` or `gzip` of the data root, or in the data root
itself: `emnist-byclass-train-images-idx3-ubyte`, `emnist-byclass-train-labels-idx1-ubyte` and the
same two for `test`; or the official archive `gzip.zip`, which is read as it is. The files hold
every image with rows and columns exchanged; here they are upright.
"""

import gzip
import string
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import Arrays
from isthmus.data.file_errors import refuse_broken, refuse_missing
from isthmus.data.named.cache import FileExamples, read_cached
from isthmus.data.progress import show_progress
from isthmus.errors import IsthmusError
from isthmus.system.files import open_regular

MOST = 2**30  # bytes in a file; the largest of them all, EMNIST's, has 547 million
CHUNK = 2**22

BROKEN = (OSError, EOFError, zlib.error, zipfile.BadZipFile, KeyError, RuntimeError)

Opener = Callable[[], AbstractContextManager[Any]]  # of a file of bytes


class ByteFile(NamedTuple):
    """A file of bytes: what it is called, the file that it is or is packed in, how to open it."""

    name: str
    path: Path
    open: Opener


class IdxFiles(NamedTuple):
    """Where a data set in IDX files lies, and what its files are called."""

    name: str
    title: str
    classes: int
    folders: tuple[str, ...]  # below the data root, in the order they are looked into
    train: str = "train"
    test: str = "t10k"
    archive: str = ""  # a zip file in one of the folders
    inside: str = ""  # what precedes a file's name in it
    turned: bool = False  # the files hold images with rows and columns exchanged

    def load(self, root: Path) -> Arrays:
        """Reads the four files, or the arrays in the cache."""
        train, test = self._pair(root, self.train), self._pair(root, self.test)
        paths, read = [file.path for file in (*train, *test)], partial(self._read, train, test)
        return read_cached(root / f"{self.name}.decoded", self.name, paths, read).arrays(
            self.classes
        )

    def _read(
        self, train: tuple[ByteFile, ByteFile], test: tuple[ByteFile, ByteFile]
    ) -> FileExamples:
        x, y = self._arrays(*train, self.train)
        test_x, test_y = self._arrays(*test, self.test)
        if x.shape[1:] != test_x.shape[1:]:
            raise IsthmusError(
                f"{self.title}'s training images are {x.shape[2:]} and its test images "
                f"{test_x.shape[2:]} in size; expected one size; get the files again"
            )
        return FileExamples(x, y, test_x, test_y)

    def _arrays(
        self, images: ByteFile, labels: ByteFile, part: str
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        x, y = read_idx(images, dimensions=3), read_idx(labels, dimensions=1)
        if len(x) != len(y):
            raise IsthmusError(
                f"{self.title}'s {part} files hold {len(x)} images and {len(y)} labels; "
                "expected as many of one as of the other; get the files again"
            )
        if y.max(initial=0) >= self.classes:
            raise IsthmusError(
                f"{self.title}'s {part} files hold the label {y.max()}; expected 0 to "
                f"{self.classes - 1}; these are not {self.title}'s: get the files again"
            )
        upright = np.ascontiguousarray(x.swapaxes(1, 2)) if self.turned else x
        return upright[:, None], y.astype(np.int64)

    def _pair(self, root: Path, part: str) -> tuple[ByteFile, ByteFile]:
        names = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
        return self._find(root, names[0]), self._find(root, names[1])

    def _find(self, root: Path, file: str) -> ByteFile:
        """Finds a file: in a folder, packed or not, or else in the archive."""
        for folder in self.folders:
            packed, plain = root / folder / f"{file}.gz", root / folder / file
            if packed.is_file():
                return ByteFile(str(packed), packed, partial(_unpack, packed))
            if plain.is_file():
                return ByteFile(str(plain), plain, partial(open_regular, plain))
        for folder in self.folders if self.archive else ():
            path, member = root / folder / self.archive, f"{self.inside}{file}.gz"
            if path.is_file():
                return ByteFile(f"{path}: {member}", path, partial(_member, path, member))
        places = " or ".join(str(root / folder) for folder in self.folders)
        raise refuse_missing(self.name, f"{file}.gz in {places}", root)


@contextmanager
def _unpack(path: Path) -> Iterator[gzip.GzipFile]:
    with open_regular(path) as packed, gzip.open(packed) as file:
        yield file


@contextmanager
def _member(path: Path, name: str) -> Iterator[gzip.GzipFile]:
    with (
        open_regular(path) as whole,
        zipfile.ZipFile(whole) as archive,
        archive.open(name) as packed,
        gzip.open(packed) as file,
    ):
        yield file


def read_idx(source: ByteFile, dimensions: int) -> NDArray[np.uint8]:
    """Reads an IDX file of unsigned bytes, checking its header against what follows."""
    try:
        with source.open() as file:
            return _read(file, source.name, dimensions)
    except BROKEN as error:
        raise refuse_broken(source.name, error) from error


def _read(file: IO[bytes], where: str, dimensions: int) -> NDArray[np.uint8]:
    head = file.read(4 + 4 * dimensions)
    expected = bytes([0, 0, 8, dimensions])
    if len(head) < 4 + 4 * dimensions or head[:4] != expected:
        raise IsthmusError(
            f"{where} begins with {head[:4].hex() or 'nothing'}; expected the IDX header "
            f"{expected.hex()} and {dimensions} sizes; get the file again"
        )
    shape = tuple(int(size) for size in np.frombuffer(head, ">u4", dimensions, offset=4))
    wanted, sizes = prod(shape), " x ".join(str(size) for size in shape)
    if wanted > MOST:
        raise IsthmusError(
            f"{where}: its header says {sizes}; expected at most {MOST:,} bytes; get the file again"
        )
    data = bytearray()
    for _ in show_progress(range(0, wanted + 1, CHUNK), f"reading {Path(where).name}"):
        data += file.read(min(CHUNK, wanted + 1 - len(data)))
    if len(data) != wanted:
        held = f"more than {wanted}" if len(data) > wanted else str(len(data))
        raise IsthmusError(
            f"{where} holds {held} bytes after its header; its header says {sizes}; get the file "
            "again"
        )
    return np.frombuffer(data, np.uint8).reshape(shape)


MNIST = IdxFiles("mnist", "MNIST", classes=10, folders=("mnist", "."))
FASHION = IdxFiles("fashion-mnist", "Fashion-MNIST", classes=10, folders=("fashion-mnist",))
EMNIST = IdxFiles(
    "emnist",
    "EMNIST",
    classes=62,
    folders=("emnist", "emnist/gzip", "gzip", "."),
    train="emnist-byclass-train",
    test="emnist-byclass-test",
    archive="gzip.zip",
    inside="gzip/",
    turned=True,
)
CLOTHES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)


@dataclass(frozen=True)
class Mnist:
    """MNIST, 1x28x28, ten classes; read from its IDX files below --data-root."""

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "twonn"
    partition: ClassVar[str] = "pathological"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the four files."""
        return MNIST.load(root)


@dataclass(frozen=True)
class FashionMnist:
    """Fashion-MNIST, 1x28x28, ten classes; read from its IDX files below --data-root."""

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "twonn"
    partition: ClassVar[str] = "pathological"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the four files."""
        return FASHION.load(root)._replace(labels=CLOTHES)


@dataclass(frozen=True)
class Emnist:
    """EMNIST by class, 1x28x28, 62 characters; read from its IDX files below --data-root."""

    clients: ClassVar[int] = 1543
    model: ClassVar[str] = "cnn5"
    partition: ClassVar[Mapping[str, str]] = {"name": "semantic", "kind": "emnist"}

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the four files; the images are upright."""
        return EMNIST.load(root)._replace(labels=CHARACTERS)
