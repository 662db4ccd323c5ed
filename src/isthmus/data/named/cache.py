"""A cache of arrays: made from files once, written beside them, mapped into memory from there.

An array is called after what it was made from: the names, sizes and times of all files. Where one
of them changes another array is made, and the old one goes. It is written under another name
first, so that a killed process leaves no half of one, and ends in the CRC-32 of all its bytes,
which is checked each time it is mapped: one that was damaged is made again. Where nothing can be
written, it stays in memory. The folders of arrays, `NAME.decoded`, may be deleted at any time.
"""

import errno
import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from isthmus.data.arrays import Arrays
from isthmus.errors import UnwritableError
from isthmus.system.files import explain_unwritable, open_regular, overwrite, remove_drafts

CHUNK = 2**20
WHOLE = 0x2144DF1C  # the CRC-32 of any bytes that end in their own CRC-32, the lowest byte first


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
        """Makes a data set of them."""
        x, y, test_x, test_y, labels = self
        scale, names = 255.0, tuple(labels.tolist())
        return Arrays(x, y, test_x, test_y, classes, scale, mean, std, labels=names)


def read_cached(
    folder: Path, variant: str, files: Sequence[Path], read: Callable[[], FileExamples]
) -> FileExamples:
    """Reads the examples of some files, or those in the cache; images are mapped."""
    try:
        states = [(path, path.stat()) for path in files]
    except OSError:
        return read()  # which says what is missing
    remove_drafts(folder)
    top = folder.parent
    name = name_state((os.path.relpath(path, top), s.st_size, s.st_mtime_ns) for path, s in states)
    stems = [f"{field}-{variant}" for field in FileExamples._fields]
    paths = [folder / f"{stem}-{name}.npy" for stem in stems]
    cached = _join([map_array(path) for path in paths])
    if cached is not None:
        return cached
    examples = read()
    try:
        for field, stem, path in zip(FileExamples._fields, stems, paths, strict=True):
            array: NDArray[Any] = getattr(examples, field)
            write_array(path, array.dtype, array.shape, [array])
            delete_others(path, stem)
    except UnwritableError:
        return examples
    return _join([map_array(path) for path in paths]) or examples


def _join(arrays: Sequence[NDArray[Any] | None]) -> FileExamples | None:
    """Puts arrays together if all are there and belong together; only images stay on disk."""
    there = [array for array in arrays if array is not None]
    if len(there) < len(arrays):
        return None
    examples = FileExamples(*(array if array.ndim > 1 else np.array(array) for array in there))
    belong = (
        examples.x.shape[:1] == examples.y.shape
        and examples.test_x.shape[:1] == examples.test_y.shape
        and examples.x.shape[1:] == examples.test_x.shape[1:]
        and examples.x.dtype == examples.test_x.dtype == np.uint8
        and examples.y.dtype == examples.test_y.dtype == np.int64
        and examples.labels.dtype.kind == "U"
    )
    return examples if belong else None


def name_state(files: Iterable[tuple[str, int, int]]) -> str:
    """Names a state of files, each given by its name, its bytes and its time in nanoseconds."""
    sha = hashlib.sha256()
    for name, nbytes, changed in files:
        sha.update(f"{name}\0{nbytes}\0{changed}\n".encode(errors="surrogateescape"))
    return sha.hexdigest()[:16]


def map_array(path: Path) -> NDArray[Any] | None:
    """Maps an array into memory, to be read only; None if it is not there, or damaged."""
    try:
        with open_regular(path) as file:
            checksum = 0
            while chunk := file.read(CHUNK):
                checksum = zlib.crc32(chunk, checksum)
            if checksum != WHOLE:
                return None
            file.seek(0)
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            mapped = np.memmap(file, dtype, "r", file.tell(), shape)
            mapped.filename = str(path.absolute())  # so that other processes can map it too
            return mapped
    except (OSError, ValueError):
        return None


def write_array(
    path: Path, dtype: DTypeLike, shape: tuple[int, ...], pieces: Iterable[NDArray[Any]]
) -> None:
    """Writes an array whose pieces come one after the other, all of it or nothing."""
    with explain_unwritable(path):
        if path.exists() and not path.is_file():
            raise FileExistsError(errno.EEXIST, "it is no regular file", str(path))
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    checksum = zlib.crc32(head.getvalue())
    with overwrite(path, sync=True) as file:  # not mapped: a full disk is an error, not a signal
        file.write(head.getvalue())
        for piece in pieces:
            data = np.ascontiguousarray(piece).data
            checksum = zlib.crc32(data, checksum)
            file.write(data)
        file.write(checksum.to_bytes(4, "little"))


def delete_others(path: Path, stem: str) -> None:
    """Deletes arrays that were made of files as they once were."""
    for old in path.parent.glob(f"{stem}-*.npy"):
        if old != path:
            with suppress(OSError):
                old.unlink()
