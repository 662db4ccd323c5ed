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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import Arrays
from isthmus.data.file_errors import reading, refuse_missing
from isthmus.data.named.cache import FileExamples, read_cached
from isthmus.data.progress import show_progress
from isthmus.errors import IsthmusError

CHUNK = 2**22


class ByteFile(NamedTuple):
    """A file of bytes, gzipped or not, which may be a member of a zip archive."""

    path: Path
    member: str = ""

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"{self.path}: {self.member}" if self.member else str(self.path)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open it to read its bytes."""
        with ExitStack() as opened:
            file: Any = opened.enter_context(open(self.path, "rb"))
            if self.member:
                file = opened.enter_context(zipfile.ZipFile(file))
                file = opened.enter_context(file.open(self.member))
            if self.name.endswith(".gz"):
                file = opened.enter_context(gzip.open(file))
            yield file


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
        """Read the four files, or the arrays in the cache."""
        files = [
            self._find(root, f"{part}-{kind}-ubyte")
            for part in (self.train, self.test)
            for kind in ("images-idx3", "labels-idx1")
        ]
        paths, read = [file.path for file in files], partial(self._read, files)
        examples = read_cached(root / f"{self.name}.decoded", self.name, paths, read)
        return examples.arrays(self.classes)

    def _read(self, files: Sequence[ByteFile]) -> FileExamples:
        x, y, test_x, test_y = (
            read_idx(file, dimensions) for file, dimensions in zip(files, (3, 1) * 2, strict=True)
        )
        for part, images, labels in ((self.train, x, y), (self.test, test_x, test_y)):
            if len(images) != len(labels) or labels.max(initial=0) >= self.classes:
                raise IsthmusError(
                    f"{self.title}'s {part} files hold {len(images)} images and {len(labels)} "
                    f"labels from 0 to {labels.max(initial=0)}; the numbers must be equal and "
                    f"labels below {self.classes}; download the files again"
                )
        if x.shape[1:] != test_x.shape[1:]:
            raise IsthmusError(
                f"{self.title}'s training images are {x.shape[1:]} and its test images "
                f"{test_x.shape[1:]} in size; get the files again"
            )
        return FileExamples(
            self._turn(x), y.astype(np.int64), self._turn(test_x), test_y.astype(np.int64)
        )

    def _turn(self, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        upright = np.ascontiguousarray(images.swapaxes(1, 2)) if self.turned else images
        return upright[:, None]

    def _find(self, root: Path, file: str) -> ByteFile:
        """Find a file: in a folder, packed or not, or else in the archive."""
        for folder in self.folders:
            for path in (root / folder / f"{file}.gz", root / folder / file):
                if path.is_file():
                    return ByteFile(path)
        for folder in self.folders if self.archive else ():
            if (root / folder / self.archive).is_file():
                return ByteFile(root / folder / self.archive, f"{self.inside}{file}.gz")
        places = " or ".join(str(root / folder) for folder in self.folders)
        raise refuse_missing(self.name, f"{file}.gz in {places}", root)


def read_idx(source: ByteFile, dimensions: int) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, checking its header against what follows."""
    with reading(source.name), source.open() as file:
        head = file.read(4 + 4 * dimensions)
        expected = bytes([0, 0, 8, dimensions])
        if len(head) < 4 + 4 * dimensions or head[:4] != expected:
            given = head[:4].hex() or "nothing"
            raise ValueError(f"it begins with {given}, an IDX file with {expected.hex()}")
        shape = tuple(int(size) for size in np.frombuffer(head, ">u4", dimensions, offset=4))
        wanted, data = prod(shape), bytearray()
        steps = range(0, wanted + 1, CHUNK)
        for _ in show_progress(steps, f"reading {Path(source.name).name}"):
            chunk = file.read(min(CHUNK, wanted + 1 - len(data)))
            if not chunk:
                break
            data += chunk
        if len(data) != wanted:
            held = f"more than {wanted}" if len(data) > wanted else str(len(data))
            sizes = " x ".join(map(str, shape))
            raise ValueError(f"{held} bytes follow its header, which says {sizes}")
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
        """Read the four files."""
        return MNIST.load(root)


@dataclass(frozen=True)
class FashionMnist:
    """Fashion-MNIST, 1x28x28, ten classes; read from its IDX files below --data-root."""

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "twonn"
    partition: ClassVar[str] = "pathological"

    def load(self, root: Path, seed: int) -> Arrays:
        """Read the four files."""
        return FASHION.load(root)._replace(labels=CLOTHES)


@dataclass(frozen=True)
class Emnist:
    """EMNIST by class, 1x28x28, 62 characters; read from its IDX files below --data-root."""

    clients: ClassVar[int] = 1543
    model: ClassVar[str] = "cnn5"
    partition: ClassVar[Mapping[str, str]] = {"name": "semantic", "kind": "emnist"}

    def load(self, root: Path, seed: int) -> Arrays:
        """Read the four files; the images are upright."""
        return EMNIST.load(root)._replace(labels=CHARACTERS)
