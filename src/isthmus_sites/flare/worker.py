"""The process at a site that computes: a child of the job's, so that its death costs one reply.

Messages go over its standard input and output, each with its length before it. It ends when its
input does, whatever it is doing then: its answer would reach no process.
"""

import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

from isthmus.errors import IsthmusError
from isthmus.system.files import hold_lock
from isthmus_sites.folders import SiteFolder
from isthmus_sites.protocol import write_event

LARGEST = 2**31  # bytes of a message
READY = b"ready"
OPENING = 300.0  # seconds until a site's data are read


def run_worker(folder: str) -> int:
    """Open a site and answer what comes, until the input ends."""
    calls: queue.Queue[bytes] = queue.Queue()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anybody prints is no answer
    threading.Thread(target=_read_calls, args=(calls,), daemon=True).start()
    from isthmus_sites.site import open_site

    site = SiteFolder(Path(folder))
    try:
        with hold_lock(site.root / "worker.lock", 20, lambda: None):  # an earlier one may yet end
            answerer = open_site(site.root)
            _write_frame(answers, READY)
            while True:
                _write_frame(answers, answerer.answer(calls.get()))
    except (IsthmusError, TimeoutError) as error:
        write_event(site.events, "closed", why=str(error))
        return 2


def _read_calls(calls: queue.Queue[bytes]) -> None:
    try:
        while True:
            calls.put(_read_exactly(sys.stdin.buffer))
    except (OSError, EOFError):
        os._exit(1)


def _read_exactly(file: IO[bytes]) -> bytes:
    head = file.read(8)
    size = int.from_bytes(head, "big")
    data = file.read(size) if len(head) == 8 else b""
    if len(head) < 8 or len(data) < size:
        raise EOFError
    return data


def _write_frame(file: IO[bytes], data: bytes) -> None:
    file.write(len(data).to_bytes(8, "big"))
    file.write(data)
    file.flush()


class SiteWorker(NamedTuple):
    """A worker's process, as the process of the job sees it."""

    process: subprocess.Popen[bytes]

    def wait_until_ready(self, stopped: Callable[[], bool]) -> bool:
        """Wait until the site is open; False if it cannot be opened."""
        return self._read(time.monotonic() + OPENING, stopped) == READY

    def ask(self, message: bytes, seconds: float, stopped: Callable[[], bool]) -> bytes | None:
        """Return the answer to a message; None if the worker died or time is up."""
        assert self.process.stdin
        try:
            _write_frame(self.process.stdin, message)
        except OSError:
            return None
        return self._read(time.monotonic() + seconds, stopped)

    def is_alive(self) -> bool:
        """Whether the process is alive."""
        return self.process.poll() is None

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()

    def _read(self, ends: float, stopped: Callable[[], bool]) -> bytes | None:
        data, size = bytearray(), 8
        assert self.process.stdout
        number = self.process.stdout.fileno()
        while len(data) < size:
            if stopped() or time.monotonic() > ends:
                return None
            if not select.select([number], [], [], 0.1)[0]:
                continue
            part = os.read(number, min(size - len(data), 2**20))
            if not part:
                return None
            data += part
            if len(data) == 8 and size == 8:
                size += int.from_bytes(data, "big")
                if size > LARGEST:
                    return None
        return bytes(data[8:])


def start_worker(site: SiteFolder) -> SiteWorker:
    """Start a worker; what it prints goes to a file that stays here."""
    with (site.kit / "worker.log").open("ab") as log:
        command = [sys.executable, "-m", "isthmus_sites.flare", "worker", str(site.root)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, bufsize=0)
    return SiteWorker(process)
