"""Download a data set from a mirror: continue an earlier try, check the files, and unpack them.

By hand, because the libraries that download do not resume (pooch) or bring an HTTP stack of their
own. A download has two bounds: no more bytes than the file has, and a lowest speed.
"""

import hashlib
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from isthmus.data.file_errors import reading
from isthmus.data.get.origins import Origin, OriginFile
from isthmus.errors import IsthmusError
from isthmus.system.files import hold_lock, open_regular

CHUNK = 1 << 16
LOCK_SECONDS = 3600.0  # that another process is waited for
BUSY = (408, 416, 429, 500, 502, 503, 504)  # what a server may answer differently a little later

Show = Callable[[str, int, int], None]  # what, how much of it is done, how much there is


class Patience(NamedTuple):
    """How long a mirror is waited for."""

    seconds: float = 10.0  # for the next bytes, and between looks at the speed
    slowest: float = 1000.0  # bytes a second
    pauses: tuple[float, ...] = (1.0, 3.0)  # before another try that may bring more


class ReadDeadline:
    """The lowest speed of a download: a socket's timeout is for each piece, however small."""

    def __init__(self, patience: Patience):
        self.patience = patience
        self.mark = time.monotonic()
        self.received = 0

    def count(self, nbytes: int) -> None:
        """Count what has arrived; raise TimeoutError if it is too little for the time."""
        self.received += nbytes
        passed = time.monotonic() - self.mark
        if passed >= self.patience.seconds:
            if self.received < self.patience.slowest * passed:
                raise TimeoutError(f"sent {self.received:,} bytes in {passed:.2g} s")
            self.mark, self.received = time.monotonic(), 0


class WrongFileError(Exception):
    """A mirror has another file; another try would bring the same."""


def download_all(
    name: str,
    origin: Origin,
    root: Path,
    *,
    force: bool,
    show: Show,
    patience: Patience = Patience(),  # noqa: B008
) -> None:
    """Download the files of a data set that are missing, or all of them."""
    if not origin.files:
        other = f"isthmus data get {name} --source hub, or " if origin.hub else ""
        raise IsthmusError(f"nobody publishes the files of {name}; {other}{origin.by_hand}")
    with claim(name, root) as waited:
        if waited and origin.find(root) is not None:
            return
        for file in origin.files:
            target = root / file.path
            if force or not target.exists():
                download_file(name, file, target, bool(origin.hub), show, patience)
            elif origin.unpacks and (md5 := _md5(target)) != file.md5:
                raise IsthmusError(f"{target} has MD5 {md5}, not {file.md5}; remove it")
            if origin.unpacks:
                unpack(target, origin.unpacks, show)


@contextmanager
def claim(name: str, root: Path) -> Iterator[bool]:
    """Keep other processes from downloading a data set; yield whether one was waited for."""

    def tell() -> None:
        print(f"another process downloads {name} to {root}; waiting for it", file=sys.stderr)

    with ExitStack() as held:
        with explain_disk(root):
            root.mkdir(parents=True, exist_ok=True)
            waited = held.enter_context(hold_lock(root / f".{name}.lock", LOCK_SECONDS, tell))
        yield waited


def download_file(
    name: str, file: OriginFile, target: Path, hub: bool, show: Show, patience: Patience
) -> None:
    """Download one file from the first mirror that has it; replace what is there at the end."""
    part = target.with_name(f"{target.name}.part")
    with explain_disk(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        missing, free = file.nbytes - _size(part), shutil.disk_usage(target.parent).free
    if missing > free:
        raise IsthmusError(
            f"{target.name} needs {missing / 1e6:,.0f} MB, and {target.parent} has "
            f"{free / 1e6:,.0f} MB free; name another folder with --data-root"
        )
    failures = []
    for url in file.mirrors:
        failure = _try_mirror(url, file, part, show, patience)
        if failure is None:
            with explain_disk(target):
                part.replace(target)
            return
        failures.append(f"{url}: {shorten(failure) or type(failure).__name__}")
    other = f"try isthmus data get {name} --source hub, or " if hub else ""
    raise IsthmusError(
        f"{target.name} could not be downloaded ({'; '.join(failures)}); {other}put the file into "
        f"{target.parent} by hand"
    )


def _try_mirror(
    url: str, file: OriginFile, part: Path, show: Show, patience: Patience
) -> Exception | None:
    """Download from one mirror, as often as that brings more; return why it failed, if it did."""
    pauses, most = iter(patience.pauses), _size(part)
    while True:
        before = _size(part)
        try:
            _receive(url, file, part, show, patience)
            return None
        except IsthmusError:  # of the disk
            raise
        except Exception as error:  # http.client raises whatever an answer makes it stumble over
            more = _size(part) >= most + CHUNK  # than ever: it could start over for ever
            if more:
                pauses, most = iter(patience.pauses), _size(part)
            reason = getattr(error, "reason", error)
            slow = isinstance(reason, TimeoutError) and not more
            wrong = isinstance(error, WrongFileError) and not before  # else the part may have been
            refused = isinstance(error, HTTPError) and error.code not in BUSY
            pause = next(pauses, None)
            if pause is None or slow or wrong or refused:
                return error
            time.sleep(pause)


def _receive(url: str, file: OriginFile, part: Path, show: Show, patience: Patience) -> None:
    """Append what the part lacks, and check the whole."""
    done = _size(part)
    if done != file.nbytes:
        headers = {"User-Agent": "isthmus", "Accept-Encoding": "identity"}
        if done:
            headers["Range"] = f"bytes={done}-"
        deadline = ReadDeadline(patience)
        try:
            response = _open(Request(url, headers=headers), patience.seconds)
        except HTTPError as error:
            error.close()
            if error.code == 416:  # nothing lies from there on: the part is of another file
                part.unlink(missing_ok=True)
            raise
        with response:
            given = response.headers.get("Content-Range", "")
            if response.status == 206 and not given.startswith(f"bytes {done}-"):
                part.unlink(missing_ok=True)
                raise ValueError(f"sent the range {shorten(given)!r} for {done}-")
            done = done if response.status == 206 else 0
            with explain_disk(part):
                out = open(part, "ab" if done else "wb")  # noqa: SIM115
            with out:
                while done <= file.nbytes and (chunk := response.read1(CHUNK)):
                    done += len(chunk)
                    with explain_disk(part):
                        out.write(chunk)
                    deadline.count(len(chunk))
                    show(file.path, min(done, file.nbytes), file.nbytes)
        if done < file.nbytes:
            raise ValueError(f"stopped after {done:,} of {file.nbytes:,} bytes")
    md5 = _md5(part)
    if md5 != file.md5:
        part.unlink(missing_ok=True)
        raise WrongFileError(f"MD5 {md5} of {done:,} bytes or more, not {file.md5}")


def _open(request: Request, seconds: float) -> HTTPResponse:
    """Open an address; raise TimeoutError unless the head of the answer is here in time.

    In a thread, since a socket's own timeout is for each piece: a head may come letter by letter,
    or one interim answer after another.
    """
    answers: SimpleQueue[HTTPResponse | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(urlopen(request, timeout=seconds))
        except Exception as error:
            answers.put(error)

    Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except Empty:
        raise TimeoutError("timed out") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def unpack(archive: Path, folder: str, show: Show) -> None:
    """Unpack the one folder of a zip archive beside it, whole or not at all, and remove it."""
    target, new = archive.parent / folder, archive.parent / f".{folder}.part"
    try:
        with reading(archive, "remove it and download it again"), zipfile.ZipFile(archive) as file:
            members = file.infolist()
            for count, member in enumerate(members, start=1):
                file.extract(member, new)  # below the folder, whatever the member is called
                show(folder, count, len(members))
            unpacked = (new / folder).resolve(strict=True)
            shutil.rmtree(target, ignore_errors=True)
            unpacked.rename(target)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    archive.unlink()


@contextmanager
def explain_disk(path: Path) -> Iterator[None]:
    """Turn what may go wrong with a disk into one line."""
    try:
        yield
    except OSError as error:
        raise IsthmusError(
            f"{path} cannot be read or written ({error.strerror or shorten(error)}); name another "
            "folder with --data-root"
        ) from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _md5(path: Path) -> str:
    with explain_disk(path), open_regular(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def shorten(text: object) -> str:
    """Return one short line of a message from elsewhere."""
    return " ".join(str(text).split())[:200]
