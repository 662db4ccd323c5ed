"""A comparison carried out: what it needs, trials, the choice among them, runs, tables, page."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, NamedTuple, Protocol

from isthmus.batch import grid as grids
from isthmus.batch.grid import Cell, Grid
from isthmus.batch.headline import Headline
from isthmus.batch.pool import JobMessage, JobPool
from isthmus.batch.trials import Failure, choose_trials, read_scores, write_table
from isthmus.engines.ray import ClusterShare
from isthmus.errors import IsthmusError
from isthmus.report import page
from isthmus.report.contrasts import Comparison
from isthmus.report.tables import comparison
from isthmus.run import record as reader
from isthmus.run.forecast import Estimate, refuse_what_cannot_fit
from isthmus.run.lock import open_lock
from isthmus.run.record import RecordedRun
from isthmus.run.store import Best
from isthmus.system.files import explain_unwritable, remove_drafts, write_text


class Display(Protocol):
    """Shows runs, by their names, while they go on."""

    def skip(self, name: str) -> None:
        """Shows that a run was done before."""

    def start(self, name: str, done: int, best: Best) -> None:
        """Shows that a run goes on, after so many rounds."""

    def update(self, name: str, round: int, headline: Headline | None) -> None:
        """Shows that a round of a run is done."""

    def end(self, name: str, status: Literal["done", "failed"] = "done", why: str = "") -> None:
        """Shows that a run is done, or failed and why."""


class Forecast(NamedTuple):
    """All runs of a comparison, which of them are left, and what those will need."""

    cells: Sequence[Cell]
    left: Sequence[Cell]
    needed: Mapping[str, Estimate]  # for one run of each method that has runs left

    def seconds(self, cell: Cell) -> float:
        """How long a run takes; where it is not known, a guess."""
        return self.needed[cell.method].seconds if cell.method in self.needed else 1.0

    @property
    def disk_bytes(self) -> int:
        """What the runs that are left will write."""
        needed = [self.needed[cell.method] for cell in self.left if cell.method in self.needed]
        return sum(each.disk_bytes for each in needed)


class Outcome(NamedTuple):
    """The runs that came to their end, and why others did not."""

    cells: Sequence[Cell]
    missing: Mapping[str, str]  # by the name of a run, or of a method without any


class Conductor:
    """Carries out a comparison, in a pool of processes, until `stop` says that it is enough.

    Where it stops, KeyboardInterrupt is raised; whatever was done stays on disk.
    """

    def __init__(
        self,
        grid: Grid,
        out: Path,
        data_root: Path,
        pool: JobPool[Cell],
        stop: Callable[[], bool],
        note: Callable[[str], None],
        share: ClusterShare | None = None,
    ):
        self._grid = grid
        self._out = out
        self._data_root = data_root
        self._pool = pool
        self._stop = stop
        self._note = note
        self._share = share  # of a cluster, for each run; without one, a run has one process
        self._trials = grid.trials()
        self._likely = grid.runs(dict.fromkeys(grid.tune, 1))  # as if all first trials were best

    def forecast(self) -> Forecast:
        """Estimates one run of each method, and refuses what would not fit."""
        grids.refuse_other_runs(self._trials if self._grid.tune else self._likely, self._out)
        if "local" not in self._grid.experiments:
            self._note("without local, tables cannot tell which clients a method harms")
        cells = [*self._trials, *self._likely]
        left = self._list_left(cells)
        firsts = {cell.method: cell for cell in reversed(left)}
        needed: dict[str, Estimate] = {}
        resident = 0
        for cell, message in self._work("estimate", list(firsts.values())):
            if "failed" in message:
                raise IsthmusError(f"{cell.method}: {message['failed']}")
            resident = max(resident, message["resident_bytes"])
            if message["ended"] is not None:
                needed[cell.method] = Estimate(**message["ended"])
        others = max(min(self._pool.size, len(left)) - len(firsts), 0)  # not there yet
        self._refuse([needed[c.method] for c in left if c.method in needed], others * resident)
        return Forecast(cells, left, needed)

    def run(self, forecast: Forecast, display: Display) -> Outcome:
        """Does what is left: trials, the choice among them, the runs that are reported."""
        remove_drafts(self._out)
        write_text(self._out / grids.FILE, self._grid.toml())
        for cell in forecast.cells:
            if cell not in forecast.left:
                display.skip(cell.name)
        chosen: dict[str, int] | None = None
        missing: dict[str, str] = {}
        if self._grid.tune:
            chosen, missing = self._choose(self._run(self._trials, forecast, display))
        for cell in self._likely:
            if cell.method in missing:
                display.end(cell.name, "failed", missing[cell.method])
        reported = self._grid.runs(chosen)
        grids.refuse_other_runs(reported, self._out)
        failures = self._run(reported, forecast, display)
        missing |= {name: failure.why for name, failure in failures.items()}
        return Outcome([cell for cell in reported if cell.name not in missing], missing)

    def _run(
        self, cells: Sequence[Cell], forecast: Forecast, display: Display
    ) -> dict[str, Failure]:
        """Runs what is left, the longest first; lists by name which of them failed."""
        failures: dict[str, Failure] = {}
        notes: set[str] = set()
        longest_first = sorted(self._list_left(cells), key=forecast.seconds, reverse=True)
        for cell, message in self._work("run", longest_first):
            for note in message.get("notes", []):
                if note not in notes:
                    notes.add(note)
                    self._note(note)
            if "failed" in message:
                failures[cell.name] = Failure(message["failed"], message.get("diverged", False))
            # Whoever reads the progress of trials shall not choose by test data either.
            show_message(display, cell.name, message, figures=cell.trial is None)
        return failures

    def _choose(self, failures: Mapping[str, Failure]) -> tuple[dict[str, int], dict[str, str]]:
        """Chooses the best trial of each method, and writes all of them down."""
        grid, trials = self._grid, self._trials
        scores = read_scores(trials, self._out, failures)
        best, missing = choose_trials(grid, trials, scores, failures)
        write_text(self._out / "trials.csv", write_table(grid, trials, scores, failures, best))
        for method, number in best.items():
            tried = grid.combinations(method)
            self._note(
                f"{method}: {' '.join(tried[number - 1])} is the best of {len(tried)} trials"
            )
        return best, missing

    def _list_left(self, cells: Sequence[Cell]) -> list[Cell]:
        return [c for c in cells if not grids.is_finished(self._out / c.place, c.experiment)]

    def _refuse(self, each: Sequence[Estimate], resident: int) -> None:
        together = min(self._pool.size, len(each))
        memory = sorted((cost.ram_bytes for cost in each), reverse=True)[:together]
        everything = Estimate(
            seconds=sum(cost.seconds for cost in each),
            ram_bytes=sum(memory) + resident,
            disk_bytes=sum(cost.disk_bytes for cost in each),
            wire_bytes=sum(cost.wire_bytes for cost in each),
        )
        try:
            refuse_what_cannot_fit(everything, self._out.absolute())
        except IsthmusError as error:
            hint = f", or lower --jobs {together}" if together > 1 else ""
            raise IsthmusError(f"{len(each)} runs, {together} at a time: {error}{hint}") from None

    def _work(self, do: str, cells: Sequence[Cell]) -> Iterator[tuple[Cell, JobMessage]]:
        share = {} if self._share is None else self._share.to_table()
        jobs = [
            (
                cell,
                {
                    **share,
                    "do": do,
                    "experiment": cell.experiment.toml(),
                    "place": str(self._out / cell.place),
                    "data_root": str(self._data_root),
                    "keep_best": self._grid.keep_best and cell.trial is None,
                },
            )
            for cell in cells
        ]
        yield from self._pool.run(jobs, self._stop)
        if self._stop():
            raise KeyboardInterrupt


def show_message(display: Display, name: str, message: JobMessage, *, figures: bool = True) -> None:
    """Shows what a process says of a run, with its figures or without."""
    if "started" in message:
        display.start(name, message["started"], Best(*message["best"]))
    elif "round" in message:
        headline = message["headline"] if figures else None
        display.update(name, message["round"], Headline(*headline) if headline else None)
    elif "failed" in message:
        display.end(name, "failed", message["failed"])
    elif message["ended"]:
        display.end(name)


def hold(grid: Grid, out: Path) -> IO[bytes]:
    """Makes a comparison's directory where it is missing, and keeps others out until it is closed.

    What there is to do is looked at again: before, somebody else may have done something there.
    """
    with explain_unwritable(out):
        out.mkdir(parents=True, exist_ok=True)
    lock = open_lock(out / grids.LOCK)
    try:
        grids.refuse_another(grid, out)
    except BaseException:
        lock.close()
        raise
    return lock


def write_results(grid: Grid, outcome: Outcome, out: Path) -> Comparison | None:
    """Writes tables, which say what is missing in them, and a page, if any run came to its end."""
    runs = [reader.read(out / cell.place) for cell in outcome.cells]
    refuse_unlike(runs)
    if not runs:
        return None
    there = any(run.method == grid.reference for run in runs)
    reference = grid.reference if there else None
    compared = comparison.write(runs, out, reference, outcome.missing)
    page.write(runs, out / "report.html", baseline=reference)
    return compared


def refuse_unlike(runs: Sequence[RecordedRun]) -> None:
    """Refuses runs of one seed that did not see the same clients, cohorts and budget."""
    same = ("clients", "clients_per_round", "rounds", "epochs", "batch_size")
    first: dict[int | None, RecordedRun] = {}
    for run in runs:
        before = first.setdefault(run.seed, run)
        here, there = ([r.split_digest, *map(r.settings.get, same)] for r in (run, before))
        for name, mine, theirs in zip(("split", *same), here, there, strict=True):
            if mine != theirs:
                raise IsthmusError(
                    f"{run.path} has {name} {mine}, {before.path} has {theirs}; expected the same "
                    "for all methods of a seed; are the data still those it began with?"
                )
