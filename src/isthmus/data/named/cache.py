"""A cache of arrays: made from files once, written beside them, mapped into memory from there.

An array is named after what it was made from: the names, sizes and times of all files. When one of
them changes, another array is made and the old one is deleted. It is written under another name
first, so that a killed process leaves no half of one. It ends in the CRC-32 of its bytes, which is
checked each time it is mapped: a damaged array is made again. Where nothing can be written, it
stays in memory. The folders of arrays, `NAME.decoded`, may be deleted at any time.
"""

import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from isthmus.data.arrays import Arrays
from isthmus.errors import UnwritableError
from isthmus.system.files import open_regular, overwrite, remove_drafts

CHUNK = 2**20  # bytes
INTACT = 0x2144DF1C  # the CRC-32 of any bytes that end in their own CRC-32, lowest byte first


class FileExamples(NamedTuple):
    """What the files of a data set hold, ready to be used."""

    x: NDArray[np.uint8]
    y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]
    labels: NDArray[np.str_] = np.zeros(0, "U1")  # names of the classes, where the files say

    def arrays(
        self, classes: int, mean: tuple[float, ...] = (), std: tuple[float, ...] = ()
    ) -> Arrays:
        """Return them as a data set."""
        x, y, test_x, test_y, labels = self
        scale, names = 255.0, tuple(labels.tolist())
        return Arrays(x, y, test_x, test_y, classes, scale, mean, std, labels=names)


def read_cached(
    folder: Path, variant: str, files: Sequence[Path], read: Callable[[], FileExamples]
) -> FileExamples:
    """Read the examples of some files, or those in the cache; images are mapped."""
    try:
        states = [(path, path.stat()) for path in files]
    except OSError:
        return read()  # which says what is missing
    remove_drafts(folder)
    top = folder.parent
    name = name_state((os.path.relpath(path, top), s.st_size, s.st_mtime_ns) for path, s in states)
    paths = [folder / f"{field}-{variant}-{name}.npy" for field in FileExamples._fields]
    cached = _map_examples(paths)
    if cached is not None:
        return cached
    examples = read()
    arrays: list[NDArray[Any]] = [*examples]
    try:
        for array, path in zip(arrays, paths, strict=True):
            write_array(path, array.dtype, array.shape, [array])
    except UnwritableError:
        return examples
    return _map_examples(paths) or examples


def _map_examples(paths: Sequence[Path]) -> FileExamples | None:
    """Map arrays if all are there; labels are read into memory."""
    arrays = [array for path in paths if (array := map_array(path)) is not None]
    if len(arrays) < len(paths):
        return None
    return FileExamples(*(array if array.ndim > 1 else np.array(array) for array in arrays))


def name_state(files: Iterable[tuple[str, int, int]]) -> str:
    """Name a state of files, each given by its name, its bytes and its time in nanoseconds."""
    sha = hashlib.sha256()
    for name, nbytes, changed in files:
        sha.update(f"{name}\0{nbytes}\0{changed}\n".encode(errors="surrogateescape"))
    return sha.hexdigest()[:16]


def map_array(path: Path) -> NDArray[Any] | None:
    """Map an array into memory, to be read only; None if it is missing or damaged."""
    try:
        with open_regular(path) as file:
            checksum = 0
            while chunk := file.read(CHUNK):
                checksum = zlib.crc32(chunk, checksum)
        if checksum != INTACT:
            return None
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError):
        return None
    return array


def write_array(
    path: Path, dtype: DTypeLike, shape: tuple[int, ...], pieces: Iterable[NDArray[Any]]
) -> None:
    """Write an array whose pieces come one after the other, and delete those of older files."""
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    checksum = 0
    with overwrite(path, sync=True) as file:  # not mapped: a full disk is an error, not a signal
        arrays = (np.ascontiguousarray(each).data for each in pieces)
        for data in chain[bytes | memoryview]([head.getvalue()], arrays):
            checksum = zlib.crc32(data, checksum)
            file.write(data)
        file.write(checksum.to_bytes(4, "little"))
    for old in path.parent.glob(f"{path.stem.rpartition('-')[0]}-*.npy"):
        if old != path:
            with suppress(OSError):
                old.unlink()
