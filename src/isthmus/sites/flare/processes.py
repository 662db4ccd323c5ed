"""Starts NVFlare's processes with our interpreter, and ends those that it started."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from isthmus.sites.flare import keys

# All that NVFlare, or gRPC below it, would look for elsewhere.
SPARE = {"MALLOC_ARENA_MAX": "2", "GRPC_ENABLE_FORK_SUPPORT": "0", "PYTHONUNBUFFERED": "1"}


def start_process(kind: str, kit: Path, *settings: str) -> subprocess.Popen[bytes]:
    """Starts the process of a server or of a site, in a group of its own."""
    config = "fed_server.json" if kind == "server" else "fed_client.json"
    given = ["secure_train=true", f"org={keys.ORGANISATION}", "config_folder=", *settings]
    command = [sys.executable, "-m", "isthmus.sites.flare", kind]
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
    """Ends a process and what it started: politely, then not."""
    ends = time.monotonic() + seconds
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        while process.poll() is None and time.monotonic() < ends:
            time.sleep(0.05)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
