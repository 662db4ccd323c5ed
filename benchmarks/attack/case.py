"""One attempt at the program, in a process of its own, and what is wrong with how it went.

A process that has imported everything forks for every attempt, which costs milliseconds where a
start costs seconds.
"""

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

LIMIT = 60.0  # seconds after which an attempt hangs
MEMORY = 12 << 30  # bytes of address space, of which torch reserves a good part
FILE_SIZE = 512 << 20  # bytes of any one file


class Ending(NamedTuple):
    """How an attempt went."""

    code: int  # negative: the signal that ended it
    out: str
    error: str
    seconds: float


def accept(_: Ending) -> str:
    """Find nothing wrong with an attempt that went through."""
    return ""


class Case(NamedTuple):
    """One attempt: arguments for the program, and what would be wrong besides a crash."""

    arguments: list[str]
    env: Mapping[str, str] = MappingProxyType({})
    refused: bool = False  # whether going through is wrong
    check: Callable[[Ending], str] = accept  # what is wrong if it went through
    stdout: str = ""  # a file to print to
    prepare: Callable[[], Any] = lambda: None  # what the process does first
    codes: tuple[int, ...] = (0, 2)


def attempt(case: Case, folder: Path) -> Ending:
    """Make an attempt in some folder and wait for its end."""
    out, error = folder / "attack.out", folder / "attack.error"
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _run(case, folder, Path(case.stdout) if case.stdout else out, error)
    code = _wait(pid, began + LIMIT)
    texts = [path.read_text(errors="replace") if path.is_file() else "" for path in (out, error)]
    return Ending(code, *texts, time.monotonic() - began)


def _run(case: Case, folder: Path, out: Path, error: Path) -> None:
    os.setsid()
    code = 70
    try:
        for path, number in ((out, 1), (error, 2)):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, number)
            os.close(file)
        encoding = case.env.get("PYTHONIOENCODING", "utf-8")
        sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
        sys.stderr = open(  # noqa: SIM115
            2, "w", encoding=encoding, errors="backslashreplace", closefd=False, buffering=1
        )
        sys.stdin = open(os.devnull)  # noqa: SIM115
        os.chdir(folder)
        os.environ.update(case.env)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        sys.argv = ["isthmus", *case.arguments]
        case.prepare()
        from isthmus.cli.app import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    try:
        sys.stdout.flush()
    except OSError:
        traceback.print_exc()  # as the interpreter would say at its end
        code = 120
    os._exit(code)


def _wait(pid: int, until: float) -> int:
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            _end(pid)
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    _end(pid)
    os.waitpid(pid, 0)
    return -signal.SIGKILL


def _end(pid: int) -> None:
    """End a process and those it began."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def judge(case: Case, end: Ending) -> str:
    """Describe what is wrong with how an attempt went; nothing if nothing is."""
    if end.seconds >= LIMIT:
        return "hangs"
    if "Traceback (most recent call last)" in end.error or "Traceback" in end.out:
        return f"traceback: {end.error.strip().splitlines()[-1][:300]}"
    if end.code not in case.codes:
        return f"exit code {end.code}: {end.error.strip()[-300:]}"
    if "Warning:" in end.error:
        return f"warning: {end.error.strip()[-300:]}"
    if end.code == 2:
        lines = [line for line in end.error.splitlines() if line.startswith("isthmus: ")]
        if len(lines) != 1 or not end.error.rstrip().splitlines()[-1].startswith("isthmus: "):
            return f"not one line: {end.error.strip()[-300:]}"
        return f"a line of {len(lines[0]):,} characters" if len(lines[0]) > 1500 else ""
    if end.code == 0:
        return "accepted" if case.refused else case.check(end)
    return ""
