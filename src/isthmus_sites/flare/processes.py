"""Starts NVFlare's processes with our interpreter, ends those that it started, keeps their logs."""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from isthmus.errors import IsthmusError
from isthmus_sites.flare import keys
from isthmus_sites.folders import ServerFolder

LOG = logging.getLogger("nvflare")
# All that NVFlare, or gRPC below it, would look for elsewhere.
SPARE = {"MALLOC_ARENA_MAX": "2", "GRPC_ENABLE_FORK_SUPPORT": "0", "PYTHONUNBUFFERED": "1"}


def start_process(kind: str, kit: Path, *settings: str) -> subprocess.Popen[bytes]:
    """Start the process of a server or of a site, in a group of its own."""
    config = "fed_server.json" if kind == "server" else "fed_client.json"
    given = ["secure_train=true", f"org={keys.ORGANISATION}", "config_folder=", *settings]
    command = [sys.executable, "-m", "isthmus_sites.flare", kind]
    places = {"HOME": str(kit), "TMPDIR": str(kit / "tmp")}
    (kit / "tmp").mkdir(exist_ok=True)
    with (kit / "output.log").open("wb") as log:
        return subprocess.Popen(
            [*command, "-m", str(kit), "-s", config, "--set", *given],
            cwd=kit,
            env={**os.environ, **SPARE, **places},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for who started it
        )


def end_process(process: subprocess.Popen[bytes], seconds: float = 3.0) -> None:
    """End a process and what it started: politely, then not."""
    ends = time.monotonic() + seconds
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        while process.poll() is None and time.monotonic() < ends:
            time.sleep(0.05)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


@contextmanager
def write_logs(server: ServerFolder) -> Iterator[None]:
    """Log what NVFlare prints in this process to a file, off the screen."""
    handler = logging.FileHandler(server.lead / "log.txt", mode="w")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    LOG.addHandler(handler)
    LOG.propagate = False
    try:
        yield
    finally:
        LOG.propagate = True
        LOG.removeHandler(handler)
        handler.close()


def wait_for_port(port: int, seconds: float = 10.0) -> None:
    """Wait until a port is free: an earlier process of ours may be about to end."""
    ends = time.monotonic() + seconds
    while True:
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("", port))
                return
            except OSError as error:
                if time.monotonic() > ends:
                    raise IsthmusError(
                        f"port {port} is not free ({error.strerror}); end the process that uses it"
                    ) from None
        time.sleep(0.2)


def find_port() -> int:
    """Return a free port on the loopback."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
