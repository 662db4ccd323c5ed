"""The IDX files of MNIST and the data sets made in its image, gzipped or not, zipped or not.

An IDX file of unsigned bytes: two zero bytes, the type 8, the number of dimensions; then each size
in four bytes, the greatest first; then the numbers. What a header claims is believed only as far as
bytes follow: nothing is set aside for it, and nothing is unpacked beyond it.
"""

import gzip
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

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
