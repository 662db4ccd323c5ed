"""Downloads a data set from a mirror, on from where an earlier try ended, checks and unpacks it.

By hand, because the libraries that download do not resume.
"""

import hashlib
import shutil
import stat
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib import request
from urllib.error import HTTPError

from isthmus.data.origins import Origin, OriginFile
from isthmus.errors import IsthmusError

CHUNK = 1 << 16
ROOM = 10  # an archive may not hold more than so many times its size
SOON = (408, 429, 500, 502, 503, 504)  # what a server says that may answer a little later

Show = Callable[[str, int, int], None]  # what, how much of it is done, how much there is


class Patience(NamedTuple):
    """How long a mirror is waited for."""

    seconds: float = 30.0  # for an answer, and between looks at the speed
    slowest: float = 1000.0  # bytes a second
    pauses: tuple[float, ...] = (1.0, 3.0)  # before another try that is hoped to bring more


class PassingError(Exception):
    """A failure that another try may not meet."""


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
    for file in origin.files:
        target = root / file.path
        if force or not target.exists():
            download_file(name, file, target, bool(origin.hub), show, patience)
        elif origin.unpacks and (md5 := _md5(target)) != file.md5:
            raise IsthmusError(f"{target} has MD5 {md5}; expected {file.md5}; remove it")
        if origin.unpacks:
            unpack(target, origin.unpacks, show)


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
    while True:
        before = _size(part)
        try:
            return _receive(url, file, part, show, patience)
        except PassingError as failure:
            if _size(part) >= before + CHUNK:
                pauses = iter(patience.pauses)
            pause = next(pauses, None)
            if pause is None:
                raise LastingError(str(failure)) from None
            time.sleep(pause)


def _receive(url: str, file: OriginFile, part: Path, show: Show, patience: Patience) -> None:
    """Adds to the part what it lacks, and checks the whole."""
    before = _size(part)
    if before != file.nbytes:
        with _open(url, before, part, patience.seconds) as response:
            begun = before if response.status == 206 else 0
            with _disk(part), part.open("ab" if begun else "wb") as out:
                done = begun
                for chunk in _chunks(response, patience):
                    done += len(chunk)
                    if done > file.nbytes:
                        break
                    out.write(chunk)
                    show(file.path, done, file.nbytes)
        if done < file.nbytes:
            raise PassingError(f"broke off after {done:,} of {file.nbytes:,} bytes")
        if done > file.nbytes:
            part.unlink()
            raise LastingError(f"sent more than the {file.nbytes:,} bytes of the file")
    md5 = _md5(part)
    if md5 != file.md5:
        part.unlink()
        kind = PassingError if before else LastingError  # what was there may have been wrong
        raise kind(f"MD5 {md5}, expected {file.md5}")


@contextmanager
def _open(url: str, begun: int, part: Path, seconds: float) -> Iterator[HTTPResponse]:
    """Asks for a file from a byte on; the answer is that (206) or all of it (200)."""
    headers = {"User-Agent": "isthmus", "Accept-Encoding": "identity"}
    if begun:
        headers["Range"] = f"bytes={begun}-"
    try:
        response = _web().open(request.Request(url, headers=headers), timeout=seconds)
    except HTTPError as error:
        error.close()
        if error.code == 416:  # nothing lies from there on: the part is of another file
            part.unlink()
        kind = PassingError if error.code in (*SOON, 416) else LastingError
        raise kind(f"HTTP {error.code} {shorten(error.reason)}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise PassingError(
            shorten(getattr(error, "reason", error)) or type(error).__name__
        ) from None
    with response:
        if response.status == 206:
            given = response.headers.get("Content-Range", "")
            if not given.startswith(f"bytes {begun}-"):
                part.unlink()
                raise PassingError(f"sent the range {shorten(given)!r} for {begun}-")
        yield response


def _web() -> request.OpenerDirector:
    """Makes what opens http and https and nothing else, wherever it is sent on to."""
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler,
        request.HTTPHandler,
        request.HTTPSHandler,
        request.HTTPRedirectHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPErrorProcessor,
        request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener


def _chunks(response: HTTPResponse, patience: Patience) -> Iterator[bytes]:
    mark, since = time.monotonic(), 0
    while True:
        try:
            chunk = response.read1(CHUNK)
        except (OSError, HTTPException, ValueError) as error:
            raise PassingError(shorten(error) or type(error).__name__) from None
        if not chunk:
            return
        yield chunk
        since += len(chunk)
        passed = time.monotonic() - mark
        if passed > patience.seconds:
            if since < patience.slowest * passed:
                raise PassingError(f"sent {since:,} bytes in {passed:.0f} s")
            mark, since = time.monotonic(), 0


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
    with _disk(path), path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def shorten(text: object) -> str:
    """Makes one short line of what somebody else says."""
    return " ".join(str(text).split())[:200]
