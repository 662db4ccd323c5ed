"""What the machine offers: cores and memory, and how much of them others take."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from isthmus.errors import IsthmusError

SLOWEST = 20.0  # times slower than alone that others are taken to make a run, at most
FULL = 0.95  # of all cores: no core is idle
TOO_LARGE = ("allocate memory", "Storage size calculation overflowed")  # as torch says it


def count_cores() -> int:
    """Counts the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int | None:
    """Gives the bytes of memory that are free, where the system tells."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    available = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(available[0][1]) * 1024 if available else None


class Reading(NamedTuple):
    """Seconds, each since some moment."""

    clock: float
    own: float  # of this process
    waited: float  # that it was kept waiting
    children: float  # of the programs that it called, a compiler say, and that have ended
    busy: float  # of all cores, for whomever


def read_processor() -> Reading:
    """Reads them."""
    own, (_, _, user, system, _) = time.process_time(), os.times()
    return Reading(time.perf_counter(), own, count_waited(own), user + system, _count_busy())


class Crowd:
    """Finds out, from when it is made, how much of the processor others take."""

    def __init__(self) -> None:
        self._before = read_processor()

    def slow_down(self, processes: int, least: float = 0.0) -> float:
        """Gives how many times longer so many processes take than they would alone.

        The system counts in hundredths of a second: it looks for so many seconds at least.

        >>> 1 <= Crowd().slow_down(1) <= SLOWEST
        True
        """
        while time.perf_counter() < self._before.clock + least:
            pass  # at work, as the process was until now: who sleeps is not kept waiting
        pairs = zip(self._before, read_processor(), strict=True)
        clock, own, waited, children, busy = (after - before for before, after in pairs)
        cores = os.cpu_count() or 1
        share = 1 + waited / max(own, 1e-3)  # how many times longer this one took, of its seconds
        others = max(0.0, busy - own - children) / max(clock, 1e-3)
        full = busy > FULL * cores * clock if busy else share > 1 / FULL
        if full:  # they may want more than they get
            others = max(others, share * cores - 1)
        return min(max(1.0, (processes + others) / cores), SLOWEST)


def count_waited(own: float) -> float:
    """Counts the seconds that this thread has waited for a core, not for a disk or a program.

    Where the system does not tell, all that it did not work.
    """
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return time.perf_counter() - own


def _count_busy() -> float:
    """Counts the seconds that all cores have worked, for whomever; 0 where it is not told."""
    try:
        user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split()[1:9])
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


class PeakMemory:
    """Finds out how much memory this process takes at most, above what it had at the start."""

    def __init__(self) -> None:
        self._before = 0
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
            self._before = _read_status("VmRSS")

    def grow(self) -> int:
        """Gives by how many bytes it grew; 0 where the system does not tell."""
        return max(0, _read_status("VmHWM") - self._before) if self._before else 0


def _read_status(name: str) -> int:
    """Reads a number of bytes from what the system says of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def refuse_lack_of_memory(what: str, wanted: int, advice: str) -> None:
    """Refuses what takes more bytes than are free, before any is taken."""
    free = free_memory()
    if free is not None and wanted > free:
        raise IsthmusError(
            f"{what} about {wanted / 1e9:,.4g} GB of memory, {free / 1e9:,.4g} GB are free; "
            f"expected it to fit; {advice}"
        )


@contextmanager
def explain_lack_of_memory() -> Iterator[None]:
    """Makes one line of memory that the system refuses, to numpy or to torch."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(word in str(error) for word in TOO_LARGE):
            raise
        raise IsthmusError(
            "there is not enough memory; expected less to be asked for; lower sizes or counts"
        ) from None
