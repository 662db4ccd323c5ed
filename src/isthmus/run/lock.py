"""Locks that are released when the process that holds them ends, however it ends."""

import errno
import os
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO

from isthmus.errors import IsthmusError
from isthmus.system.files import describe_unwritable, take_lock

_held: "weakref.WeakSet[IO[bytes]]" = weakref.WeakSet()


def _close_inherited() -> None:
    """Close what a forked process inherited, so that a lock ends with the process that took it."""
    for file in list(_held):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)


def open_lock(name: Path, instead: Path | None = None) -> IO[bytes]:
    """Acquire the lock of a file; closing the returned file releases it.

    The file stays, and says which process was the last to hold it. Where it cannot be written it is
    read, or another file `instead` of it if it is not there; several may hold the lock then.
    """
    # By hand: filelock 4.2 holds under fork and kill as well, but on Windows it locks the first
    # byte, so that nobody could read there which process is the holder.
    try:
        file: IO[bytes] = name.open("ab+", buffering=0)
    except OSError as error:
        if instead is None:
            raise describe_unwritable(name, error) from None
        file = (name if name.is_file() else instead).open("rb", buffering=0)
    try:
        take_lock(file)
    except OSError as error:
        file.seek(0)
        holder = file.read().decode(errors="replace").strip() or "unknown"
        file.close()
        if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            raise IsthmusError(
                f"{name} cannot be locked ({error.strerror}); name a directory on a disk that "
                "supports locks with --out"
            ) from None
        raise IsthmusError(
            f"{name.parent} is in use by process {holder}; wait until it has ended, or stop it"
        ) from None
    with suppress(OSError):  # the lock holds also where there is no room, or right, to say whose
        file.truncate(0)
        file.write(str(os.getpid()).encode())
    _held.add(file)
    return file
