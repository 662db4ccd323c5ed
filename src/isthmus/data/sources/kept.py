"""Arrays made from files once, kept beside them on disk, and mapped into memory from there.

An array is called after what it was made from: the names, sizes and times of all files. Where one
of them changes another array is made, and the old one goes. It is written under another name
first, so that a killed process leaves no half of one. Where nothing can be written, it stays in
memory. The folders of arrays, `NAME.decoded`, may be deleted at any time.
"""

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def stamp(files: Iterable[tuple[str, int, int]]) -> str:
    """Names a state of files, each given by its name, its bytes and its time in nanoseconds."""
    sha = hashlib.sha256()
    for name, nbytes, changed in files:
        sha.update(f"{name}\0{nbytes}\0{changed}\n".encode(errors="surrogateescape"))
    return sha.hexdigest()[:16]


def mapped(path: Path) -> NDArray[Any] | None:
    """Maps an array into memory, to be read only; None if it is not there, or damaged."""
    try:
        found: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found


def write(
    path: Path, dtype: DTypeLike, shape: tuple[int, ...], pieces: Iterable[NDArray[Any]]
) -> None:
    """Writes an array whose pieces come one after the other, all of it or nothing."""
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    head = {"descr": descr, "fortran_order": False, "shape": shape}
    try:
        with part.open("wb") as file:  # not mapped: a full disk is an error here, not a signal
            np.lib.format.write_array_header_1_0(file, head)
            for piece in pieces:
                file.write(np.ascontiguousarray(piece).data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def forget_others(path: Path, stem: str) -> None:
    """Deletes arrays that were made of files as they once were."""
    for old in path.parent.glob(f"{stem}-*.npy"):
        if old != path:
            with suppress(OSError):
                old.unlink()
