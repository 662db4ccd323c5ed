"""Files that are written whole or not at all, locked by one process, read if they are files."""

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

ROOM = ("room on the disk", "make some, or name another place")
USABLE = ("a place to write to", "check it and whose it is, or name another")
SHORT = ("names that the disk can hold", "give a shorter one")
# What was expected and what to do, by the number of the error.
ADVICE = {
    **dict.fromkeys((errno.ENAMETOOLONG, errno.EILSEQ), SHORT),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENXIO), USABLE),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST), USABLE),
}
DRAFT = re.compile(r".*\.[0-9a-f]{8}\.part", re.DOTALL)


@contextmanager
def overwrite(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """Opens a file to write anew; it takes the place of what was there when all is written.

    Who reads meanwhile finds the old file whole, or none where there was none; so does everybody if
    the writing fails, or the process dies, which may leave a draft that ends in ".part" (see
    `remove_drafts`). Drafts have names of their own, so several processes and threads may write one
    file: the last one stays, whole. With `sync` the bytes are on the disk before the name is
    theirs. What is there and no regular file, such as /dev/null or a pipe, is written into and
    stays what it is. Directories that are missing are made. What the system refuses is an
    UnwritableError.
    """
    with explain_unwritable(path):
        if path.exists() and not path.is_file():
            with _open_special(path) as there:
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
                    draft.replace(path)  # still locked, so that nobody takes it for left behind
            if os.name != "posix":
                draft.replace(path)  # an open file keeps its name there
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def _open_special(path: Path) -> BinaryIO:
    """Opens a device or a pipe to write; a pipe that nobody begins to read is not waited for."""
    if os.name != "posix":
        return path.open("wb")
    ends = time.monotonic() + 1
    while True:
        try:
            number = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > ends:
                raise
            time.sleep(0.02)
        else:
            os.set_blocking(number, True)
            return os.fdopen(number, "wb")


def _open_draft(path: Path) -> tuple[Path, BinaryIO]:
    """Opens a draft that no other process has, and locks it for as long as it is open."""
    short = os.fsdecode(os.fsencode(path.name)[:200])  # a name has 255 bytes at most
    while True:
        draft = path.with_name(f"{short}.{secrets.token_hex(4)}.part")
        file = draft.open("xb")
        try:
            take_lock(file)
        except BlockingIOError:  # somebody saw it before it was locked, and is removing it
            file.close()
            continue
        except OSError:  # a disk that knows no locks: nobody removes it either
            pass
        if os.fstat(file.fileno()).st_nlink:
            return draft, file
        file.close()


def remove_drafts(folder: Path) -> None:
    """Removes drafts that killed processes left in a folder; those of live ones are locked."""
    with suppress(OSError):
        for draft in [path for path in folder.iterdir() if DRAFT.fullmatch(path.name)]:
            with suppress(OSError), open_regular(draft) as file:
                take_lock(file)
                draft.unlink()


def take_lock(file: IO[bytes]) -> None:
    """Locks a file until it is closed, or the process ends; an OSError if another has done so."""
    if sys.platform == "win32":
        import msvcrt

        place = file.tell()
        file.seek(2**30)  # far from what is written: a locked region cannot be read by others
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        file.seek(place)
    else:
        import fcntl

        # Where nothing can be written several may read; some disks lock only what can be.
        fcntl.flock(file, (fcntl.LOCK_EX if file.writable() else fcntl.LOCK_SH) | fcntl.LOCK_NB)


@contextmanager
def hold_lock(path: Path, seconds: float, tell: Callable[[], None]) -> Iterator[bool]:
    """Holds a lock that one process at a time has; yields whether another was waited for.

    `tell` is called once if there is one to wait for. The lock is a file that goes in the end; if
    a process was killed, it stays and is no lock.
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
    """Tells whether a file still has its name: who had it before may have removed it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def open_regular(path: Path | str) -> BufferedReader:
    """Opens a file to read; an OSError of anything else: a pipe is silent, a device never ends.

    >>> open_regular(os.devnull)
    Traceback (most recent call last):
    OSError: [Errno 22] it is no regular file: '/dev/null'
    """
    wrong = OSError(errno.EINVAL, "it is no regular file", str(path))
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
    """Writes a file as `overwrite` does."""
    with overwrite(path, sync=sync) as file:
        file.write(data)


def write_text(path: Path, text: str, *, sync: bool = False) -> None:
    """Writes a file of text as `overwrite` does, with its line ends as they are."""
    write_bytes(path, encode_text(text), sync=sync)


def append_text(path: Path, text: str) -> None:
    """Adds text to the end of a file, with its line ends as they are."""
    with explain_unwritable(path), path.open("ab") as file:
        file.write(encode_text(text))


def encode_text(text: str) -> bytes:
    r"""Encodes text in UTF-8, names of files that are not UTF-8 escaped.

    >>> encode_text("\xe9"), encode_text("\udce9")
    (b'\xc3\xa9', b'\\udce9')
    """
    return text.encode("utf-8", errors="backslashreplace")


@contextmanager
def explain_unwritable(path: Path) -> Iterator[None]:
    """Makes one line of whatever keeps the system from writing to a place."""
    try:
        yield
    except OSError as error:
        raise describe_unwritable(path, error) from None


def describe_unwritable(path: Path, error: Exception) -> UnwritableError:
    """Says why a place cannot be written to, and what to do about it."""
    number = getattr(error, "errno", None)
    expected, advice = ADVICE.get(number, ROOM) if number else ROOM
    reason = getattr(error, "strerror", None) or error
    return UnwritableError(f"{path} cannot be written ({reason}); expected {expected}; {advice}")
