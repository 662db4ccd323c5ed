"""Bytes by key in one file, changed by whole transactions, and checked when they are read.

The file is an LMDB environment. A process that dies at any instant leaves the last transaction that
was committed. A value that a failing disk has changed is noticed by its checksum, a file that was
cut short by its size, a tree whose pages were damaged by a walk over all keys in a process of its
own, since such a tree can crash whoever walks it.
"""

import os
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Literal

import lmdb

from isthmus.errors import IsthmusError

Sync = Literal["round", "system"]

FORMAT = b"isthmus vault 1"
FORMAT_KEY = b"format"
SMALLEST_MAP = 64 * 2**20  # bytes; doubled whenever it is full


class Vault:
    """A locked, checked store of bytes. Only one process at a time may hold it.

    `sync="round"` waits for the disk at every commit. `sync="system"` leaves writing to the system:
    a crash of the program loses nothing, a crash of the machine may lose or damage the file.
    """

    def __init__(self, path: Path, *, new: bool = False, sync: Sync = "round"):
        self._path = path
        self._guard = _lock(path)
        try:
            if not new:
                _inspect(path)
            size = max(SMALLEST_MAP, 2 * path.stat().st_size if path.exists() else 0)
            self._environment = _opened(path, map_size=size, sync=sync == "round")
            self._closed = False
            if new:
                self.write({FORMAT_KEY: FORMAT})
        except BaseException:
            self._guard.close()
            raise

    def read(self, key: bytes) -> bytes | None:
        """Gives the value of a key, if there is one."""
        with self._begin(buffers=True) as transaction:
            sealed = transaction.get(key)
            return None if sealed is None else _unsealed(bytes(sealed), key, self._path)

    def write(self, changes: Mapping[bytes, bytes]) -> None:
        """Writes all changes, or, if that fails, none."""
        while True:
            try:
                with self._begin(write=True) as transaction:
                    for key, value in changes.items():
                        transaction.put(key, _sealed(value))
                return
            except lmdb.MapFullError:
                self._environment.set_mapsize(2 * self._environment.info()["map_size"])
            except lmdb.Error as error:
                raise IsthmusError(
                    f"{self._path} cannot be written ({error}); expected room on the disk; make "
                    "some and resume: what was committed before is kept"
                ) from None

    def keys(self, prefix: bytes) -> Iterator[bytes]:
        """Yields the keys that begin with a prefix, in order."""
        with self._begin() as transaction, transaction.cursor() as cursor:
            if cursor.set_range(prefix):
                for found in cursor.iternext(keys=True, values=False):
                    key = bytes(found)
                    if not key.startswith(prefix):
                        return
                    yield key

    def __contains__(self, key: bytes) -> bool:
        with self._begin(buffers=True) as transaction:
            return transaction.get(key) is not None

    def nbytes(self) -> int:
        """Gives the size of the file."""
        return self._path.stat().st_size

    def close(self) -> None:
        """Lets others in; what was read before stays, nothing more can be read."""
        self._closed = True
        self._environment.close()
        self._guard.close()

    def _begin(self, **how: Any) -> lmdb.Transaction:
        if self._closed:
            raise RuntimeError(f"{self._path.parent} was closed; open it with isthmus.open")
        return self._environment.begin(**how)


def walk(path: str) -> None:
    """Reads every key, so that damage shows: by an exception, or by the death of the process."""
    environment = _opened(Path(path), readonly=True, create=False)
    with environment.begin(buffers=True) as transaction, transaction.cursor() as cursor:
        for key in cursor.iternext(keys=True, values=False):
            bytes(key)
        sealed = transaction.get(FORMAT_KEY)
        if sealed is None:
            raise lmdb.Error("it is another program's")
        found = _unsealed(bytes(sealed), FORMAT_KEY, Path(path))
        if found != FORMAT:
            raise lmdb.Error(f"it is of the format {found.decode(errors='replace')!r}")


def _inspect(path: Path) -> None:
    if not path.is_file():
        raise IsthmusError(f"no {path}; expected the state of a run; name a run's directory")
    code = f"from isthmus.vault import walk; walk({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode:
        told = done.stderr.strip().splitlines()
        reason = (
            told[-1].split(": ", 1)[-1] if told else f"reading it ends in signal {-done.returncode}"
        )
        raise IsthmusError(
            f"{path} cannot be used ({reason}); expected a whole file of the format "
            f"{FORMAT.decode()!r}; restore it from a copy, or start the run anew"
        )


def _opened(path: Path, **how: Any) -> lmdb.Environment:
    try:
        environment = lmdb.open(str(path), subdir=False, lock=False, max_dbs=0, **how)
    except lmdb.Error as error:
        if how.get("readonly"):
            raise
        raise IsthmusError(
            f"{path} cannot be opened ({error}); expected a file to write; check the directory"
        ) from None
    used = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    if path.stat().st_size < used and environment.stat()["entries"]:
        environment.close()
        raise lmdb.CorruptedError(f"it holds {path.stat().st_size} of its {used} bytes")
    return environment


def _lock(path: Path) -> IO[str]:
    """Takes a lock that ends with the process that holds it, however that ends."""
    name = path.with_suffix(".lock")
    try:
        file = name.open("a+")
    except OSError as error:
        raise IsthmusError(
            f"{name} cannot be written ({error.strerror}); expected a directory to write into; "
            "check it, or name another one with --out"
        ) from None
    try:
        _take(file)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "another process"
        file.close()
        raise IsthmusError(
            f"{path.parent} is in use by process {holder}; expected one at a time; wait until it "
            "has ended, or stop it"
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def _take(file: IO[str]) -> None:
    if sys.platform == "win32":
        import msvcrt

        file.seek(2**30)  # far from what is written: a locked region cannot be read by others
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sealed(value: bytes) -> bytes:
    return zlib.crc32(value).to_bytes(4, "little") + value


def _unsealed(sealed: bytes, key: bytes, path: Path) -> bytes:
    value = sealed[4:]
    if zlib.crc32(value).to_bytes(4, "little") != sealed[:4]:
        raise IsthmusError(
            f"{path} is damaged at {key.decode(errors='replace')!r}: its checksum is wrong; "
            "expected what was written; restore it from a copy, or start the run anew"
        )
    return value
