"""Bytes by key in one file, changed by whole transactions, and checked when they are read.

The file is an LMDB environment. A process that dies at any instant leaves the last transaction that
was committed. What a failing disk or a careless copy did to the file is found out in three ways:

- Before LMDB sees the file, `lmdb.verify` reads its tree, since a damaged one can crash whoever
  walks it.
- Every value has a seal, a checksum of its key and itself, compared whenever it is read.
- The sum of all seals is compared when the file is opened: a value that is missing, or older than
  the rest, is noticed though nobody reads it.
"""

import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import lmdb
from lmdb.verify import VerifyError, verify

from isthmus.errors import IsthmusError
from isthmus.run.lock import open_lock
from isthmus.system.files import describe_unwritable

Sync = Literal["round", "system"]

FORMAT = b"isthmus run 4"
READABLE = (FORMAT, b"isthmus run 3")  # which has the rows of tables, too
FORMAT_KEY = b"format"
SEAL = b"seal/"  # and the key that it belongs to
SUM = b"sum"
SMALLEST_MAP = 64 * 2**20  # bytes; doubled whenever it is full


class Database:
    """A locked, checked store of bytes. Only one process at a time may hold it.

    `sync="round"` waits for the disk at every commit. `sync="system"` leaves writing to the system:
    a crash of the program loses nothing, a crash of the machine may lose or damage the file. One
    that `may_be_readonly` is only read where nothing can be written.
    """

    def __init__(
        self, path: Path, *, new: bool = False, sync: Sync = "round", may_be_readonly: bool = False
    ):
        if not new and not path.is_file():  # before a lock is left in somebody's directory
            raise IsthmusError(f"{path} does not exist; name the directory of a run")
        self._path = path
        self._closed = False
        self._guard = open_lock(
            path.with_suffix(".lock"), instead=path if may_be_readonly else None
        )
        try:
            if not new:
                _inspect(path)
            elif path.exists() and not is_blank(path):
                raise IsthmusError(f"{path} exists already; name another directory with --out")
            writable = self._guard.writable() and (new or os.access(path, os.W_OK))
            readonly = may_be_readonly and not writable
            self._environment = _open(path, sync, readonly=readonly)
        except BaseException:
            self._guard.close()
            raise
        try:
            if not new:
                self._audit()
        except BaseException:
            self.close()
            raise

    def read(self, key: bytes) -> bytes | None:
        """Return the value of a key, if there is one."""
        with self._begin_reading() as transaction:
            value, seal = transaction.get(key), transaction.get(SEAL + key)
            if value is None and seal is None:
                return None
            self._compare(key, value, seal)
            return bytes(value or b"")

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Write all changes or, if that fails, none; None deletes an entry."""
        while True:
            try:
                with self._begin(write=True, buffers=True) as transaction:
                    _put(transaction, changes)
                return
            except lmdb.MapFullError:
                self._grow()
            except lmdb.Error as error:
                raise describe_unwritable(self._path, error) from None

    def keys(self, prefix: bytes) -> Iterator[bytes]:
        """Find the keys that begin with a prefix, in order."""
        keys = []
        with self._begin_reading() as transaction, transaction.cursor() as cursor:
            if cursor.set_range(prefix):
                for view in cursor.iternext(keys=True, values=False):
                    key = bytes(view)
                    if not key.startswith(prefix):
                        break
                    keys.append(key)
        return iter(keys)  # all at once: the map cannot grow while somebody is reading

    def __contains__(self, key: bytes) -> bool:
        with self._begin_reading() as transaction:
            return transaction.get(key) is not None

    def close(self) -> None:
        """Close the file and release the lock; nothing more can be read or written."""
        self._closed = True
        self._environment.close()
        self._guard.close()

    def _begin(self, **how: Any) -> lmdb.Transaction:
        if self._closed:
            raise RuntimeError(f"{self._path.parent} was closed; open it with isthmus.open")
        return self._environment.begin(**how)

    @contextmanager
    def _begin_reading(self) -> Iterator[lmdb.Transaction]:
        try:
            with self._begin(buffers=True) as transaction:
                yield transaction
        except lmdb.Error as error:
            raise _unusable(self._path, str(error)) from None

    def _grow(self) -> None:
        try:
            self._environment.set_mapsize(2 * self._environment.info()["map_size"])
        except (lmdb.Error, MemoryError, OverflowError) as error:
            raise describe_unwritable(self._path, error) from None

    def _audit(self) -> None:
        """Compare the sum; check small values, which lie among the tree's own bytes, on the way."""
        with self._begin_reading() as transaction, transaction.cursor() as cursor:
            status = self._environment.stat()
            if not status["entries"]:
                raise _unbegun(self._path)
            written = transaction.get(FORMAT_KEY)
            if written is None:
                raise _unusable(self._path, "it is another program's")
            if bytes(written) not in READABLE:
                name = bytes(written).decode(errors="replace")
                raise _unusable(self._path, f"it is of the format {name!r}")
            total = values = 0
            for view, value in cursor:
                key = bytes(view)
                if transaction.get(key) is None:
                    raise _unusable(self._path, f"{_quote(key)} is not where it is looked for")
                if key.startswith(SEAL):
                    total += _term(key.removeprefix(SEAL), bytes(value))
                elif key not in (FORMAT_KEY, SUM):
                    values += 1
                    if len(value) < status["psize"]:
                        self._compare(key, value, transaction.get(SEAL + key))
            # Values, as many seals, the format and the sum.
            if transaction.get(SUM) != _sum_bytes(total) or status["entries"] != 2 * values + 2:
                raise _unusable(self._path, "its entries are not those of one time")

    def _compare(
        self, key: bytes, value: bytes | memoryview | None, seal: bytes | memoryview | None
    ) -> None:
        if value is None or seal != checksum(key, value):
            raise _unusable(self._path, f"the checksum of {_quote(key)} is wrong")


def is_blank(path: Path) -> bool:
    """Whether nothing was ever committed to a file, since its process was killed before."""
    if path.stat().st_size == 0:
        return True
    try:
        _inspect(path)
        environment = _open(path, "round", readonly=True)
    except IsthmusError:
        return False
    empty = environment.stat()["entries"] == 0
    environment.close()
    return empty


def _unusable(path: Path, reason: str) -> IsthmusError:
    return IsthmusError(
        f"{path} cannot be used ({reason}); restore it from a copy, or start the run again"
    )


def _unbegun(path: Path) -> IsthmusError:
    return IsthmusError(
        f"{path} is empty: its run was stopped before it began; start it again with isthmus run"
    )


def _inspect(path: Path) -> None:
    if path.stat().st_size == 0:
        raise _unbegun(path)
    try:
        problems = verify(str(path), subdir=False)  # type: ignore[no-untyped-call]
    except VerifyError as error:
        problems = [str(error)]
    except OSError as error:
        problems = [error.strerror or str(error)]
    if problems:
        raise _unusable(path, problems[0])


def _open(path: Path, sync: Sync, **how: Any) -> lmdb.Environment:
    size = max(SMALLEST_MAP, 2 * path.stat().st_size if path.exists() else 0)
    try:
        environment = lmdb.open(
            os.fsencode(path),  # also of names that are not UTF-8
            subdir=False,
            lock=False,
            max_dbs=0,
            map_size=size,
            sync=sync == "round",
            **how,
        )
    except lmdb.Error as error:
        raise IsthmusError(f"{path} cannot be opened ({error}); check the directory") from None
    held = path.stat().st_size
    used = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    if held < used:
        environment.close()
        raise _unusable(path, f"it holds {held} of its {used} bytes")
    return environment


def _put(transaction: lmdb.Transaction, changes: Mapping[bytes, bytes | None]) -> None:
    """Write entries with their seals, and update the sum."""
    before = transaction.get(SUM)
    total = 0 if before is None else int.from_bytes(before, "little")
    for key, value in changes.items():
        old = transaction.get(SEAL + key)
        total -= 0 if old is None else _term(key, bytes(old))
        if value is None:
            transaction.delete(SEAL + key)
            transaction.delete(key)
            continue
        new = checksum(key, value)
        total += _term(key, new)
        transaction.put(SEAL + key, new)
        transaction.put(key, value)
    transaction.put(FORMAT_KEY, FORMAT)
    transaction.put(SUM, _sum_bytes(total))


def checksum(key: bytes, value: bytes | memoryview) -> bytes:
    """Return the seal of an entry."""
    return zlib.crc32(value, zlib.crc32(key)).to_bytes(4, "little")


def _term(key: bytes, seal: bytes) -> int:
    return int.from_bytes(blake2b(key + seal, digest_size=16).digest(), "little")


def _sum_bytes(total: int) -> bytes:
    return (total % 2**128).to_bytes(16, "little")


def _quote(key: bytes) -> str:
    return repr(key.decode(errors="replace"))
