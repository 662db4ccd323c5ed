"""Mirrors that lie, and archives that lead elsewhere: a server in a thread of each attempt."""

import hashlib
import io
import random
import socket
import stat
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from benchmarks.attack.case import Case, Ending
from benchmarks.attack.samples import Samples
from benchmarks.attack.words import damage, pick_value

STATUSES = (
    *("200 OK", "206 Partial Content", "204 No Content", "302 Found", "301 Moved", "308 Moved"),
    *("404 Not Found", "416 Range", "500 Error", "503 Busy", "100 Continue", "101 Switch", "0 x"),
    *("999999999999 x", "-1 x", "é", ""),
)
PLACES = (
    "/0",
    "/1",
    "file:///etc/passwd",
    "ftp://127.0.0.1/x",
    "//",
    "http://[",
    "\x00",
    "/" * 70000,
)
HOSTILE = (
    *("../evil", "/evil", "tree/../../evil", "tree\\..\\evil", "C:evil", "tree/a\0b", "tree/"),
    *("tree/" + "a" * 300, "", ".", "tree", "tree/é", "tree/con", "other/a"),
)


def attack_downloads(rng: random.Random, folder: Path, samples: Samples) -> Case:
    """Get a data set from mirrors that lie; what is accepted must be what was published."""
    packed = rng.random() < 0.4
    body = make_archive(rng) if packed else rng.randbytes(rng.choice([1, 1000, 100_000, 300_000]))
    honest = rng.random() < 0.5
    count = rng.choice([1, 2, 3])
    together = rng.choice([1, 1, 3])
    seed = rng.random()

    def prepare() -> None:
        from isthmus.data.get import download
        from isthmus.data.get.download import Patience
        from isthmus.data.get.origins import ORIGINS, Origin, OriginFile

        port = start_server(body, count if honest else 0, seed)
        mirrors = tuple(f"http://127.0.0.1:{port}/{i}" for i in range(1, count + 1))
        name = "tree.zip" if packed else "set/file.bin"
        file = OriginFile(name, hashlib.md5(body).hexdigest(), len(body), mirrors)
        place = (("tree/*",),) if packed else (("set/file.bin",),)
        ORIGINS["set"] = Origin("a set", "none", place, (file,), "tree" if packed else "")
        quick = Patience(0.5, 1000, (0.0, 0.01))
        get = download.download_all = partial(download.download_all, patience=quick)
        for _ in range(together - 1):  # threads that get it, too; what they say is lost
            threading.Thread(
                target=partial(_ignore, partial(get, "set", ORIGINS["set"], Path("data"))),
                daemon=True,
            ).start()

    def check(_: Ending) -> str:
        if packed:
            return "" if (folder / "data" / "tree").is_dir() else "nothing there"
        return "" if (folder / "data" / "set" / "file.bin").read_bytes() == body else "other bytes"

    if rng.random() < 0.2 and not packed:
        (folder / "data" / "set").mkdir(parents=True)
        (folder / "data" / "set" / "file.bin.part").write_bytes(
            rng.randbytes(rng.choice([0, 9, 999]))
        )
    return Case(
        ["data", "get", "set", *rng.choice([[], ["--force"]])],
        env={"no_proxy": "127.0.0.1"},
        prepare=prepare,
        check=check,
        codes=(0,) if honest and not packed else (0, 2),
    )


def _ignore(get: partial[None]) -> None:
    with suppress(ValueError):
        get(force=False, show=lambda *_: None)


def make_archive(rng: random.Random) -> bytes:
    """Pack a folder, mostly with a member that leads elsewhere or is damaged."""
    file = io.BytesIO()
    with zipfile.ZipFile(
        file, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    ) as zipped:
        zipped.writestr("tree/a.txt", rng.choice([b"a", bytes(200_000), rng.randbytes(2000)]))
        if rng.random() < 0.5:
            member = zipfile.ZipInfo(rng.choice(HOSTILE) or "x")
            kinds = [stat.S_IFREG, stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, 0]
            member.external_attr = (rng.choice(kinds) | 0o777) << 16
            zipped.writestr(member, "/etc/passwd")
    return damage(file.getvalue(), rng) if rng.random() < 0.5 else file.getvalue()


def start_server(body: bytes, honest: int, seed: float) -> int:
    """Serve lies in a thread, and the body at one path; give the port."""
    there = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        number = 0
        while True:
            connection, _ = there.accept()
            number += 1
            rng = random.Random(f"{seed} {number}")
            threading.Thread(
                target=answer, args=(connection, body, honest, rng), daemon=True
            ).start()

    threading.Thread(target=serve, daemon=True).start()
    return int(there.getsockname()[1])


def answer(connection: socket.socket, body: bytes, honest: int, rng: random.Random) -> None:
    """Answer one request: with what was asked for at one path, with a lie elsewhere."""
    with suppress(OSError), connection:  # the program may hang up
        asked = connection.recv(65536)
        if asked.startswith(f"GET /{honest} ".encode()):
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            return
        for piece in lie(body, rng):
            connection.sendall(piece)


def lie(body: bytes, rng: random.Random) -> Iterator[bytes]:
    """Make an answer, piece by piece; some never end."""
    kind = rng.random()
    if kind < 0.05:
        while True:
            yield b"HTTP/1.1 100 Continue\r\n\r\n" * 100
    if kind < 0.1:
        time.sleep(2)
        return
    if kind < 0.15:
        yield rng.randbytes(rng.choice([1, 100, 100_000]))
        return
    first = rng.choice([0, 0, 1, len(body) // 2])
    ranges = [f"bytes {first}-{len(body) - 1}/{len(body)}", "bytes 0-", "bytes 7-7/*", "", "x"]
    headers = {
        "Content-Length": rng.choice([len(body), 0, 1, 10**15, -1, "x", len(body) - first]),
        "Content-Range": rng.choice(ranges),
        "Location": rng.choice(PLACES),
        "Transfer-Encoding": rng.choice(["chunked", "gzip", "x"]),
        "Content-Encoding": "gzip",
        "X": pick_value(rng).replace("\n", ""),
    }
    chosen = rng.sample(sorted(headers), rng.randrange(len(headers)))
    lines = [f"HTTP/1.1 {rng.choice(STATUSES)}", *(f"{key}: {headers[key]}" for key in chosen)]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode(errors="replace")
    if rng.random() < 0.2:
        head = damage(head, rng)
    if rng.random() < 0.1:
        for letter in head:
            yield bytes([letter])
            time.sleep(0.1)
    yield head
    sent = rng.choice([body, body[first:], body[: len(body) // 2], bytes(len(body)), b"", body * 3])
    if "Transfer-Encoding" in chosen and rng.random() < 0.5:
        sent = b"%x\r\n%s\r\n0\r\n" % (len(sent), sent)
    yield sent
    while rng.random() < 0.5:  # never, or for ever
        yield bytes(65536) if rng.random() < 0.9 else b"X: x\r\n" * 10_000
        if rng.random() < 0.5:
            time.sleep(0.1)
