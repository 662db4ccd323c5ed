"""Published runs made again: cheapest first, in a pool of processes, until the time is up.

Each is an ordinary run below `runs`; what has ended leaves a record below `results`. Called again,
it goes on where it stopped.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import heapreplace
from pathlib import Path
from typing import IO, NamedTuple

from isthmus.batch.conduct import Display, show_message
from isthmus.batch.grid import is_finished
from isthmus.batch.pool import JobMessage, JobPool
from isthmus.errors import IsthmusError
from isthmus.run import record as reader
from isthmus.run.columns import columns
from isthmus.run.forecast import Estimate, refuse_what_cannot_fit
from isthmus.run.lock import open_lock
from isthmus.system.files import explain_unwritable
from isthmus_papers import record
from isthmus_papers.inputs import explain_other_clients, explain_other_data
from isthmus_papers.plan import PlannedRun
from isthmus_papers.record import RESULTS, describe_machine
from isthmus_papers.verdict import Records

RUNS = "runs"
LOCK = "reproduction.lock"


class Prospect(NamedTuple):
    """The runs that are left, cheapest first, and what each of them will need."""

    left: Sequence[PlannedRun]
    needed: Mapping[str, Estimate]  # by name
    failed: Mapping[str, str]  # those that cannot begin, and why

    def seconds(self, run: PlannedRun) -> float:
        """How long a run takes, where it is known."""
        return self.needed[run.name].seconds if run.name in self.needed else 1.0

    def end(self, jobs: int) -> float:
        """How long all of them take, so many at a time: whoever is free takes the next."""
        ends = [0.0] * jobs
        for run in self.left:
            heapreplace(ends, ends[0] + self.seconds(run))
        return max(ends)


class Reproducer:
    """Makes runs again in a directory, until `stop` says that it is enough.

    Where it stops, KeyboardInterrupt is raised; whatever was done stays on disk. Where fewer runs
    are left than there are cores to share, each has several worker processes.
    """

    def __init__(
        self,
        out: Path,
        data_root: Path,
        pool: JobPool[PlannedRun],
        stop: Callable[[], bool],
        cores: int = 1,
    ):
        self._out = out
        self._data_root = data_root
        self._pool = pool
        self._stop = stop
        self._cores = cores

    def place(self, run: PlannedRun) -> Path:
        """Says where a run is kept."""
        return self._out / RUNS / run.name

    def list_left(self, runs: Sequence[PlannedRun]) -> list[PlannedRun]:
        """Lists the runs that have not come to their end; of the others, records are written.

        A run that diverged has come to it: it would do so again.
        """
        left = []
        lost = {
            name for name, known in record.read_all([self._out / RESULTS]).items() if known.failed
        }
        for run in runs:
            if run.identity in lost:
                continue
            if is_finished(self.place(run), run.experiment):
                self._keep(run)
            else:
                left.append(run)
        return left

    def forecast(
        self, runs: Sequence[PlannedRun], known: Records, tell: Callable[[int, int], None]
    ) -> Prospect:
        """Estimates what each run still needs; `tell` hears how many are estimated, of how many.

        Of a run that has a record of such a machine, what it took then is taken for granted, where
        runs have one process each, as most had.
        """
        machine, is_single = describe_machine(), self._share(len(runs)) == 1
        needed: dict[str, Estimate] = {}
        failed = self._list_other_data(runs)
        for run, message in self._work("estimate", [r for r in runs if r.name not in failed]):
            if "failed" in message:
                failed[run.name] = message["failed"]
            elif (why := explain_other_clients(run.experiment, message["clients"])) is not None:
                failed[run.name] = why
            elif message["ended"] is not None:
                needed[run.name] = Estimate(**message["ended"])
                before = known.get(run.identity)
                seconds = needed[run.name].seconds
                if is_single and before is not None and before.machine == machine:
                    seconds = before.seconds
                seconds *= self._find_share_left(run)
                needed[run.name] = needed[run.name]._replace(seconds=seconds)
            tell(len(needed) + len(failed), len(runs))
        left = [run for run in runs if run.name not in failed]
        prospect = Prospect(left, needed, failed)
        return prospect._replace(left=sorted(left, key=prospect.seconds))

    def _list_other_data(self, runs: Sequence[PlannedRun]) -> dict[str, str]:
        """Lists the runs whose data here are not those of the published numbers, and why."""
        data = {run.experiment.data["name"]: run.experiment.data for run in runs}
        why = {name: explain_other_data(each, self._data_root) for name, each in data.items()}
        reasons = {run.name: why[run.experiment.data["name"]] for run in runs}
        return {name: reason for name, reason in reasons.items() if reason is not None}

    def run(
        self, prospect: Prospect, display: Display, seconds: float | None = None
    ) -> dict[str, str]:
        """Makes the runs, for so many seconds; says of those that failed why they did."""
        ends = None if seconds is None else time.monotonic() + seconds
        for run in prospect.left:
            if run.name in prospect.needed:
                refuse_what_cannot_fit(prospect.needed[run.name], self._out.absolute())
        failed: dict[str, str] = {}
        over = _Deadline(self._stop, ends)
        for run, message in self._work("run", prospect.left, over):
            show_message(display, run.name, message, figures=not run.is_trial)
            if "failed" in message:
                failed[run.name] = message["failed"]
                if message.get("diverged"):
                    lost = record.note_divergence(run.experiment, message["failed"])
                    record.write(lost, self._out / RESULTS)
            elif message.get("ended"):
                self._keep(run)
        return failed

    def _find_share_left(self, run: PlannedRun) -> float:
        """Gives which part of a run's rounds is left."""
        done = 0
        with suppress(OSError, IsthmusError):  # it has not begun, or somebody wrote in its table
            done = len(columns(self.place(run) / "rounds.csv", ["round"])["round"])
        return max(0.0, 1 - done / run.experiment.rounds)

    def _share(self, runs: int) -> int:
        """Gives the processes that each of so many runs has."""
        return max(1, self._cores // max(1, min(self._pool.size, runs)))

    def _keep(self, run: PlannedRun) -> None:
        there = reader.read(self.place(run))
        record.write(record.measure(there, run.experiment), self._out / RESULTS)

    def _work(
        self, do: str, runs: Sequence[PlannedRun], stop: Callable[[], bool] | None = None
    ) -> Iterator[tuple[PlannedRun, JobMessage]]:
        workers = self._share(len(runs))
        jobs = [
            (
                run,
                {
                    "do": do,
                    "experiment": run.experiment.toml(),
                    "place": str(self.place(run)),
                    "data_root": str(self._data_root),
                    "workers": workers,
                },
            )
            for run in runs
        ]
        yield from self._pool.run(jobs, stop or self._stop)
        if self._stop():
            raise KeyboardInterrupt


def hold(out: Path) -> IO[bytes]:
    """Makes a directory where it is missing, and keeps others out until it is closed."""
    with explain_unwritable(out):
        out.mkdir(parents=True, exist_ok=True)
    return open_lock(out / LOCK)


class _Deadline:
    """Says that it is enough: when somebody says so, or the time is up."""

    def __init__(self, stop: Callable[[], bool], ends: float | None):
        self._stop = stop
        self._ends = ends

    def __call__(self) -> bool:
        return self._stop() or (self._ends is not None and time.monotonic() > self._ends)


def read_budget(text: str) -> float:
    """Reads a length of time as seconds.

    >>> read_budget("2h"), read_budget("90m"), read_budget("45s")
    (7200.0, 5400.0, 45.0)
    """
    units = {"h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0, "d": 86400.0}
    digits = text.strip().rstrip("hmindsHMINDS")
    unit = text.strip()[len(digits) :].lower() or "h"
    try:
        seconds = float(digits) * units[unit]
    except (ValueError, KeyError):
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise IsthmusError(f"--budget {text!r}; expected a length of time; for example --budget 2h")
    return seconds
