"""Downloads a data set from a mirror, on from where an earlier try ended, checks and unpacks it.

By hand, because the libraries that download do not resume.
"""

import hashlib
import io
import os
import shutil
import socket
import stat
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http.client import HTTPResponse
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib import request
from urllib.error import HTTPError

from isthmus.data.get.origins import Origin, OriginFile
from isthmus.errors import IsthmusError
from isthmus.system.files import hold_lock, open_regular

HEAD = 2**20  # bytes of an answer's head, and of all redirections before it
ROOM = 10  # an answer may have so many times the bytes that are wanted, with what wraps them


class Patience(NamedTuple):
    """How long a mirror is waited for."""

    seconds: float = 10.0  # for the head of an answer, and between looks at the speed
    slowest: float = 1000.0  # bytes a second
    pauses: tuple[float, ...] = (1.0, 3.0)  # before another try that is hoped to bring more


class Pace:
    """How much has come in which time: the head of an answer at once, the rest at some speed."""

    def __init__(self, patience: Patience):
        self._patience = patience
        self._mark = time.monotonic()
        self._since = 0
        self._left = HEAD
        self._in_head = True

    def begin_body(self, nbytes: int) -> None:
        """Goes on to what the answer holds, of which so many bytes are wanted."""
        self._mark, self._since = time.monotonic(), 0
        self._left = HEAD + ROOM * nbytes
        self._in_head = False

    def wait(self) -> float:
        """Gives the seconds to wait for more; a TimeoutError if too little has come."""
        passed = time.monotonic() - self._mark
        if passed >= self._patience.seconds:
            if self._in_head or self._since < self._patience.slowest * passed:
                raise TimeoutError(f"sent {self._since:,} bytes in {passed:.2g} s")
            self._mark, self._since, passed = time.monotonic(), 0, 0.0
        return self._patience.seconds - passed

    def count(self, nbytes: int) -> None:
        """Counts what has come; an OSError if it is more than anybody needs."""
        self._since += nbytes
        self._left -= nbytes
        if self._left < 0:
            raise OSError("sent more than there can be")


class _TimedReader(io.RawIOBase):
    """What a socket receives."""

    def __init__(self, raw: Any, sock: socket.socket, pace: Pace):
        self._raw = raw  # the socket stays open until this is closed
        self._sock = sock
        self._pace = pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Any:
        while True:
            self._sock.settimeout(self._pace.wait())  # until the next look, which may go well
            with suppress(TimeoutError):
                count = self._sock.recv_into(buffer)
                self._pace.count(count)
                return count

    def close(self) -> None:
        self._raw.close()
        io.RawIOBase.close(self)


class _TimedResponse(HTTPResponse):
    """An answer that is read at some pace."""

    def __init__(self, pace: Pace, sock: socket.socket, *arguments: Any, **options: Any):
        HTTPResponse.__init__(self, sock, *arguments, **options)
        raw = self.fp.detach()
        self.fp = io.BufferedReader(_TimedReader(raw, sock, pace))


def open_web(url: str, headers: dict[str, str], patience: Patience) -> tuple[HTTPResponse, Pace]:
    """Opens an address of http or https and no other, wherever it is sent on to."""
    pace = Pace(patience)
    opener = request.OpenerDirector()
    for handler in (request.HTTPHandler(), request.HTTPSHandler()):
        opener.add_handler(_read_at_pace(handler, pace))
    for kind in (
        request.ProxyHandler,
        request.HTTPRedirectHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPErrorProcessor,
        request.UnknownHandler,
    ):
        opener.add_handler(kind())
    wanted = request.Request(url, headers=headers)
    return opener.open(wanted, timeout=patience.seconds), pace


def _read_at_pace(handler: Any, pace: Pace) -> Any:
    """Makes a handler's connections read their answers at some pace."""
    do_open = handler.do_open

    def open_at_pace(connect: Any, wanted: Any, **options: Any) -> Any:
        def connect_at_pace(*arguments: Any, **more: Any) -> Any:
            connection = connect(*arguments, **more)
            connection.response_class = partial(_TimedResponse, pace)
            return connection

        return do_open(connect_at_pace, wanted, **options)

    handler.do_open = open_at_pace
    return handler


CHUNK = 1 << 16
ROOM = 10  # an archive may not hold more than so many times its size
LONGEST = 3600.0  # seconds that another process is waited for
SOON = (408, 429, 500, 502, 503, 504)  # what a server says that may answer a little later

Show = Callable[[str, int, int], None]  # what, how much of it is done, how much there is


class PassingError(Exception):
    """A failure that another try may not meet."""


class SlowError(PassingError):
    """A mirror was waited for in vain; another try would take as long."""


class LastingError(Exception):
    """A failure of a mirror that another try will meet again."""


def download_all(
    name: str,
    origin: Origin,
    root: Path,
    *,
    force: bool,
    show: Show,
    patience: Patience = Patience(),  # noqa: B008
) -> None:
    """Gets the files of a data set that are not there yet, or all of them."""
    if not origin.files:
        other = f"isthmus data get {name} --source hub, or " if origin.hub else ""
        raise IsthmusError(
            f"nobody publishes the files of {name}; expected another way; {other}{origin.by_hand}"
        )
    with claim(name, root) as waited:
        if waited and origin.find(root) is not None:
            return
        for file in origin.files:
            target = root / file.path
            if force or not target.exists():
                download_file(name, file, target, bool(origin.hub), show, patience)
            elif origin.unpacks and (md5 := _md5(target)) != file.md5:
                raise IsthmusError(f"{target} has MD5 {md5}; expected {file.md5}; remove it")
            if origin.unpacks:
                unpack(target, origin.unpacks, show)


@contextmanager
def claim(name: str, root: Path) -> Iterator[bool]:
    """Lets one process at a time get a data set; yields whether another one was waited for."""

    def tell() -> None:
        print(f"another process gets {name} into {root}; waiting for it", file=sys.stderr)

    with ExitStack() as held:
        with _disk(root):
            root.mkdir(parents=True, exist_ok=True)
            waited = held.enter_context(hold_lock(root / f".{name}.lock", LONGEST, tell))
        yield waited


def download_file(
    name: str, file: OriginFile, target: Path, hub: bool, show: Show, patience: Patience
) -> None:
    """Gets one file from the first mirror that has it; replaces what is there at the very end."""
    part = target.with_name(f"{target.name}.part")
    with _disk(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        missing = file.nbytes - _size(part)
        free = shutil.disk_usage(target.parent).free
    if missing > free:
        raise IsthmusError(
            f"{target.parent} has {free / 1e6:,.0f} MB free; expected {missing / 1e6:,.0f} MB for "
            f"{target.name}; make room, or name another folder with --data-root"
        )
    failures = []
    for url in file.mirrors:
        try:
            _receive_patiently(url, file, part, show, patience)
        except LastingError as failure:
            failures.append(f"{url}: {failure}")
            continue
        with _disk(target):
            part.replace(target)
        return
    other = f"try isthmus data get {name} --source hub, or " if hub else ""
    raise IsthmusError(
        f"{target.name} could not be got ({'; '.join(failures)}); expected one of the mirrors to "
        f"have it; {other}put the file into {target.parent} by hand"
    )


def _receive_patiently(
    url: str, file: OriginFile, part: Path, show: Show, patience: Patience
) -> None:
    """Receives from one mirror, as often as that brings more."""
    pauses = iter(patience.pauses)
    most = _size(part)
    while True:
        try:
            return _receive(url, file, part, show, patience)
        except PassingError as failure:
            more = _size(part) >= most + CHUNK  # than ever: it could begin anew for ever
            if more:
                pauses, most = iter(patience.pauses), _size(part)
            pause = next(pauses, None)
            if pause is None or (isinstance(failure, SlowError) and not more):
                raise LastingError(str(failure)) from None
            time.sleep(pause)


def _receive(url: str, file: OriginFile, part: Path, show: Show, patience: Patience) -> None:
    """Adds to the part what it lacks, and checks the whole."""
    before = _size(part)
    if before != file.nbytes:
        with _open(url, before, file.nbytes, part, patience) as response:
            begun = before if response.status == 206 else 0
            with _disk(part), open(part, "ab" if begun else "wb", opener=_open_at_once) as out:
                done = begun
                for chunk in _chunks(response):
                    done += len(chunk)
                    if done > file.nbytes:
                        break
                    out.write(chunk)
                    show(file.path, done, file.nbytes)
        if done < file.nbytes:
            raise PassingError(f"broke off after {done:,} of {file.nbytes:,} bytes")
        if done > file.nbytes:
            part.unlink(missing_ok=True)
            raise LastingError(f"sent more than the {file.nbytes:,} bytes of the file")
    md5 = _md5(part)
    if md5 != file.md5:
        part.unlink(missing_ok=True)
        kind = PassingError if before else LastingError  # what was there may have been wrong
        raise kind(f"MD5 {md5}, expected {file.md5}")


@contextmanager
def _open(
    url: str, begun: int, nbytes: int, part: Path, patience: Patience
) -> Iterator[HTTPResponse]:
    """Asks for a file from a byte on; the answer is that (206) or all of it (200)."""
    headers = {"User-Agent": "isthmus", "Accept-Encoding": "identity"}
    if begun:
        headers["Range"] = f"bytes={begun}-"
    try:
        response, pace = open_web(url, headers, patience)
    except HTTPError as error:
        error.close()
        if error.code == 416:  # nothing lies from there on: the part is of another file
            part.unlink(missing_ok=True)
        kind = PassingError if error.code in (*SOON, 416) else LastingError
        raise kind(f"HTTP {error.code} {shorten(error.reason)}") from None
    except Exception as error:  # what an answer makes the library raise is anybody's guess
        raise _explain(error) from None
    with response:
        if response.status == 206:
            given = response.headers.get("Content-Range", "")
            if not given.startswith(f"bytes {begun}-"):
                part.unlink(missing_ok=True)
                raise PassingError(f"sent the range {shorten(given)!r} for {begun}-")
        pace.begin_body(nbytes)
        yield response


def _explain(error: Exception) -> PassingError:
    reason = getattr(error, "reason", error)
    kind = SlowError if isinstance(reason, TimeoutError) else PassingError
    return kind(shorten(reason) or type(error).__name__)


def _chunks(response: HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            chunk = response.read1(CHUNK)
        except Exception as error:
            raise _explain(error) from None
        if not chunk:
            return
        yield chunk


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)  # a pipe is not waited for


def unpack(archive: Path, folder: str, show: Show) -> None:
    """Unpacks the one folder of a zip archive beside it, whole or not at all, and removes it."""
    target = archive.parent / folder
    fresh, old = target.with_name(f".{folder}.part"), target.with_name(f".{folder}.old")
    try:
        with zipfile.ZipFile(archive) as file, _disk(target):
            members = file.infolist()
            _refuse_what_leads_elsewhere(archive, members, folder)
            shutil.rmtree(fresh, ignore_errors=True)
            for count, member in enumerate(members, start=1):
                file.extract(member, fresh)
                show(folder, count, len(members))
            shutil.rmtree(old, ignore_errors=True)
            if target.exists():
                target.rename(old)
            (fresh / folder).rename(target)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise IsthmusError(
            f"{archive} cannot be unpacked ({shorten(error)}); expected a zip archive; remove it "
            "and get it again"
        ) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    archive.unlink()


def _refuse_what_leads_elsewhere(
    archive: Path, members: list[zipfile.ZipInfo], folder: str
) -> None:
    """Refuses what is no plain file or folder below one folder, and more than there is room for."""
    for member in members:
        path, kind = PurePosixPath(member.filename), stat.S_IFMT(member.external_attr >> 16)
        plain = kind in (0, stat.S_IFREG, stat.S_IFDIR)
        inside = path.parts[:1] == (folder,) and ".." not in path.parts
        if not (plain and inside) or set(member.filename) & set("\\:\0"):
            raise IsthmusError(
                f"{archive} holds {member.filename[:60]!r}; expected plain files in {folder}; "
                "do not trust it: remove it"
            )
    nbytes, limit = sum(member.file_size for member in members), ROOM * archive.stat().st_size
    if nbytes > limit:
        raise IsthmusError(
            f"{archive} would unpack to {nbytes:,} bytes; expected at most {limit:,}; do not trust "
            "it: remove it"
        )


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Makes one line of what may go wrong with a disk."""
    try:
        yield
    except OSError as error:
        raise IsthmusError(
            f"{path} cannot be read or written ({error.strerror or shorten(error)}); expected room "
            "and permission to write; name another folder with --data-root"
        ) from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _md5(path: Path) -> str:
    with _disk(path), open_regular(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def shorten(text: object) -> str:
    """Makes one short line of what somebody else says."""
    return " ".join(str(text).split())[:200]
