"""Files: written whole or not at all, locked by one process, read only if they are regular."""

import errno
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, BinaryIO

from isthmus.errors import UnwritableError

ROOM = "free some space, or name another place"
USABLE = "check the path and its permissions, or name another"
SHORT = "use a shorter name"
ADVICE = {  # by the number of the error
    **dict.fromkeys((errno.ENAMETOOLONG, errno.EILSEQ), SHORT),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENXIO), USABLE),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST), USABLE),
}
DRAFT = re.compile(r".*\.[0-9a-f]{8}\.part", re.DOTALL)


@contextmanager
def overwrite(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """Open a new file for writing; it replaces the old one when all is written.

    Readers find the old file meanwhile, and also if writing fails or the process dies, which may
    leave a draft that ends in ".part" (see `remove_drafts`). Drafts have unique names, so several
    processes and threads may write one file: the last one stays. With `sync` the bytes are on disk
    before the file is replaced. A device or a pipe is written into. Missing directories are made.
    An error of the system becomes an UnwritableError.
    """
    with explain_unwritable(path):
        if path.exists() and not path.is_file():
            with path.open("wb") as there:
                yield there
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        draft, file = _open_draft(path)
        try:
            with file:
                yield file
                file.flush()
                if sync:
                    os.fsync(file.fileno())
                if os.name == "posix":
                    draft.replace(path)  # still locked, so that no process takes it for a leftover
            if os.name != "posix":
                draft.replace(path)  # an open file keeps its name there
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def _open_draft(path: Path) -> tuple[Path, BinaryIO]:
    """Open a draft that no other process has, locked while it is open."""
    short = os.fsdecode(os.fsencode(path.name)[:200])  # a name has 255 bytes at most
    while True:
        draft = path.with_name(f"{short}.{secrets.token_hex(4)}.part")
        file = draft.open("xb")
        try:
            take_lock(file)
        except BlockingIOError:  # another process saw it before it was locked, and is removing it
            file.close()
            continue
        except OSError:  # a disk without locks: no process removes it either
            pass
        if os.fstat(file.fileno()).st_nlink:
            return draft, file
        file.close()


def remove_drafts(folder: Path) -> None:
    """Remove the drafts of killed processes from a folder; those of live ones are locked."""
    with suppress(OSError):
        for draft in [path for path in folder.iterdir() if DRAFT.fullmatch(path.name)]:
            with suppress(OSError), open_regular(draft) as file:
                take_lock(file)
                draft.unlink()


def take_lock(file: IO[bytes]) -> None:
    """Lock a file until it is closed or the process ends; raise OSError if another holds it."""
    if sys.platform == "win32":
        import msvcrt

        place = file.tell()
        file.seek(2**30)  # far from the data: others cannot read a locked region
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        file.seek(place)
    else:
        import fcntl

        # Where nothing can be written several may read; some disks lock only what can be.
        fcntl.flock(file, (fcntl.LOCK_EX if file.writable() else fcntl.LOCK_SH) | fcntl.LOCK_NB)


@contextmanager
def hold_lock(path: Path, seconds: float, tell: Callable[[], None]) -> Iterator[bool]:
    """Hold a lock that one process at a time has; yield whether another was waited for.

    `tell` is called once if the lock is held by another. The lock is a file that is removed in the
    end; what a killed process leaves of it locks nothing.
    """
    ends, waited = time.monotonic() + seconds, False
    while True:
        file = path.open("ab")
        try:
            take_lock(file)
            if _is_there(path, file):
                break
        except BlockingIOError:
            if not waited:
                tell()
            waited = True
            if time.monotonic() > ends:
                file.close()
                raise TimeoutError(errno.ETIMEDOUT, "another process holds it", str(path)) from None
            time.sleep(0.05)
        except OSError:  # a disk that knows no locks
            break
        file.close()
    try:
        yield waited
    finally:
        with suppress(OSError):
            path.unlink()
        file.close()


def _is_there(path: Path, file: IO[bytes]) -> bool:
    """Return whether a file still has its name; its last owner may have removed it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def open_regular(path: Path | str) -> BufferedReader:
    """Open a regular file for reading; raise OSError for a pipe or a device, which may never end.

    >>> open_regular(os.devnull)
    Traceback (most recent call last):
    OSError: [Errno 22] not a regular file: '/dev/null'
    """
    wrong = OSError(errno.EINVAL, "not a regular file", str(path))
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # first: some devices act when they are opened
            raise wrong
        # a pipe that has taken its place meanwhile is not waited for either
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", getattr(os, "O_BINARY", 0)))
    except ValueError:
        raise OSError(errno.EINVAL, "no file has such a name", str(path)) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise wrong
    return os.fdopen(number, "rb")


def write_bytes(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write a file as `overwrite` does."""
    with overwrite(path, sync=sync) as file:
        file.write(data)


def write_text(path: Path, text: str, *, sync: bool = False) -> None:
    """Write a file of text as `overwrite` does, with its line ends as they are."""
    write_bytes(path, encode_text(text), sync=sync)


def append_text(path: Path, text: str) -> None:
    """Add text to the end of a file, with its line ends as they are."""
    with explain_unwritable(path), path.open("ab") as file:
        file.write(encode_text(text))


def encode_text(text: str) -> bytes:
    r"""Encode text in UTF-8, names of files that are not UTF-8 escaped.

    >>> encode_text("\xe9"), encode_text("\udce9")
    (b'\xc3\xa9', b'\\udce9')
    """
    return text.encode("utf-8", errors="backslashreplace")


@contextmanager
def explain_unwritable(path: Path) -> Iterator[None]:
    """Turn an error of the system about a place to write to into one line."""
    try:
        yield
    except OSError as error:
        raise describe_unwritable(path, error) from None


def describe_unwritable(path: Path, error: Exception) -> UnwritableError:
    """Return an error that says why a place cannot be written to and what to do about it."""
    reason = getattr(error, "strerror", None) or error
    advice = ADVICE.get(getattr(error, "errno", None) or 0, ROOM)
    return UnwritableError(f"{path} cannot be written: {reason}; {advice}")
