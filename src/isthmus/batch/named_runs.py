"""Named runs, carried out by a pool of processes: what has ended is not run again.

Comparisons, their trials, reproductions and the demo are lists of named runs. Called again with the
same list, they continue where they stopped.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from isthmus.batch.headline import Headline
from isthmus.batch.pool import JobPool
from isthmus.errors import IsthmusError, quote
from isthmus.experiment.settings import Experiment
from isthmus.run.lock import open_lock
from isthmus.run.record import read_summary
from isthmus.system.files import explain_unwritable
from isthmus.system.machine import count_cores

if TYPE_CHECKING:
    from isthmus.engines.ray import ClusterShare

MOST_JOBS = 1024


class NamedRun(NamedTuple):
    """One run of a batch."""

    name: str
    experiment: Experiment
    place: Path
    shows_figures: bool = True  # test figures are hidden while settings are chosen
    keep_best: bool = False
    inputs: Mapping[str, int] = MappingProxyType({})  # what its data must have, e.g. examples


class Failure(NamedTuple):
    """Why a run did not finish."""

    why: str
    diverged: bool  # it would diverge again
    began: bool = True  # False: its settings or data are wrong


class Display(Protocol):
    """Show runs by their names."""

    def skip(self, name: str) -> None:
        """Show that a run finished earlier."""

    def start(self, name: str, done: int, best_loss: float, best_round: int) -> None:
        """Show that a run starts after so many rounds, with its best validation loss so far."""

    def update(self, name: str, round: int, headline: Headline | None) -> None:
        """Show that a run finished a round."""

    def end(self, name: str, status: Literal["done", "failed"] = "done", why: str = "") -> None:
        """Show that a run is done, or failed and why."""


@dataclass(frozen=True)
class Batch:
    """Run named runs at most `jobs` at a time, until `stop` returns True.

    Then KeyboardInterrupt is raised; everything committed stays on disk. Idle cores are shared
    among the runs where there are fewer of them; on a cluster each has its `share`.
    """

    pool: JobPool[NamedRun]
    data_root: Path
    stop: Callable[[], bool]
    note: Callable[[str], None]
    cores: int = 1
    share: "ClusterShare | None" = None
    noted: set[str] = field(default_factory=set)

    def run(
        self, runs: Sequence[NamedRun], display: Display, until: float | None = None
    ) -> Iterator[tuple[NamedRun, Failure | None]]:
        """Run what is left of `runs`; yield each as it ends, with the reason if it failed.

        After the moment `until` of `time.monotonic` no run is started, and those under way stop
        after their round.
        """
        left = [run for run in runs if not is_finished(run.place, run.experiment)]

        def is_over() -> bool:
            return self.stop() or (until is not None and time.monotonic() > until)

        workers = max(1, self.cores // max(1, min(self.pool.size, len(left))))
        began: set[str] = set()
        jobs = [(run, self._describe_job(run, workers)) for run in left]
        for run, message in self.pool.run(jobs, is_over):
            if "started" in message:
                began.add(run.name)
                for note in [each for each in message["notes"] if each not in self.noted]:
                    self.note(note)
                self.noted.update(message["notes"])
                display.start(run.name, message["started"], *message["best"])
            elif "round" in message:
                headline = message["headline"] if run.shows_figures else None
                display.update(run.name, message["round"], headline and Headline(*headline))
            elif "failed" in message:
                display.end(run.name, "failed", message["failed"])
                diverged = message.get("diverged", False)
                yield run, Failure(message["failed"], diverged, run.name in began)
            elif message["ended"]:
                display.end(run.name)
                yield run, None
        if self.stop():
            raise KeyboardInterrupt

    def _describe_job(self, run: NamedRun, workers: int) -> dict[str, Any]:
        share = {"workers": workers} if self.share is None else self.share.to_table()
        return share | {
            "do": "run",
            "experiment": run.experiment.toml(),
            "place": str(run.place),
            "data_root": str(self.data_root),
            "keep_best": run.keep_best,
            "inputs": dict(run.inputs),
        }


def read_jobs(jobs: int | None) -> int:
    """Return how many runs to compute at a time: as many as cores if nothing is asked for."""
    if jobs is not None and not 1 <= jobs <= MOST_JOBS:
        raise IsthmusError(
            f"--jobs must be 1 to {MOST_JOBS:,}, not {quote(jobs)}; for example --jobs 2"
        )
    return count_cores() if jobs is None else jobs


def hold(out: Path, lock: str) -> IO[bytes]:
    """Make a batch's directory if it is missing, and lock it until the result is closed."""
    with explain_unwritable(out):
        out.mkdir(parents=True, exist_ok=True)
    return open_lock(out / lock)


def is_finished(place: Path, experiment: Experiment) -> bool:
    """Whether a run finished."""
    summary = read_summary(place)
    return summary.finished and bool(summary.reason or summary.rounds >= experiment.rounds)
