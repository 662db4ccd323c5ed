"""A comparison: its trials, the choice among them, the runs that are reported, tables and page."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isthmus.batch import grid as grids
from isthmus.batch.grid import Cell, Grid
from isthmus.batch.named_runs import Batch, Display, Failure, NamedRun, is_finished
from isthmus.errors import IsthmusError
from isthmus.report import page
from isthmus.report.contrasts import Comparison
from isthmus.report.tables import comparison
from isthmus.run import record as reader
from isthmus.run.cells import format_lines
from isthmus.run.record import RecordedRun
from isthmus.system.files import remove_drafts, write_text

COLUMNS = (
    *("method", "trial", "seed", "settings", "validation_loss", "validation_top1"),
    *("chosen", "failed", "run"),
)


class Outcome(NamedTuple):
    """The runs that finished, and why others did not."""

    cells: Sequence[Cell]
    missing: Mapping[str, str]  # by the name of a run, or of a method without any


class Trial(NamedTuple):
    """One trial of a method: its means over clients on validation data, or why it has none."""

    cell: Cell
    loss: float = nan
    top1: float = nan
    failure: Failure | None = None


class PlannedComparison:
    """The runs of a comparison in a directory, and which of them are left."""

    def __init__(self, grid: Grid, out: Path):
        self.grid = grid
        self.out = out
        self.trials = grid.trials()
        self.likely = grid.runs(dict.fromkeys(grid.tune, 1))  # as if all first trials were best
        self.cells = [*self.trials, *self.likely]
        self.left = [c for c in self.cells if not is_finished(out / c.place, c.experiment)]
        grids.refuse_other_runs(self.trials if grid.tune else self.likely, out)

    def run(self, batch: Batch, display: Display) -> Outcome:
        """Run the trials, choose among them, then run what is reported."""
        grid, out = self.grid, self.out
        if "local" not in grid.experiments:
            batch.note("without local, tables cannot tell which clients a method harms")
        remove_drafts(out)
        write_text(out / grids.FILE, grid.toml())
        left = {cell.name for cell in self.left}
        for cell in self.cells:
            if cell.name not in left:
                display.skip(cell.name)
        chosen: dict[str, int] | None = None
        missing: dict[str, str] = {}
        if grid.tune:
            failures = self._run(self.trials, batch, display)
            trials = [read_trial(cell, out, failures.get(cell.name)) for cell in self.trials]
            chosen, missing = choose_trials(trials)
            write_text(out / "trials.csv", format_trials(grid, trials, chosen))
            for method, number in chosen.items():
                tried = grid.combinations(method)
                settings = " ".join(tried[number - 1])
                batch.note(f"{method}: {settings} is the best of {len(tried)} trials")
        for cell in self.likely:
            if cell.method in missing:
                display.end(cell.name, "failed", missing[cell.method])
        reported = grid.runs(chosen)
        grids.refuse_other_runs(reported, out)
        failures = self._run(reported, batch, display)
        missing |= {name: failure.why for name, failure in failures.items()}
        return Outcome([cell for cell in reported if cell.name not in missing], missing)

    def _run(self, cells: Sequence[Cell], batch: Batch, display: Display) -> dict[str, Failure]:
        """Run what is left; return by name which runs failed."""
        runs = [
            NamedRun(
                cell.name,
                cell.experiment,
                self.out / cell.place,
                shows_figures=cell.trial is None,
                keep_best=self.grid.keep_best and cell.trial is None,
            )
            for cell in cells
        ]
        failures: dict[str, Failure] = {}
        for run, failure in batch.run(runs, display):
            if failure is not None:
                if not failure.began and not run.place.exists():
                    raise IsthmusError(f"{run.name.partition(' ')[0]}: {failure.why}")
                failures[run.name] = failure
        return failures


def read_trial(cell: Cell, out: Path, failure: Failure | None) -> Trial:
    """Return how a trial did."""
    if failure is not None:
        return Trial(cell, failure=failure)
    run = reader.read(out / cell.place)
    loss, top1 = (run.values(metric, split="validation") for metric in ("loss", "top1"))
    return Trial(cell, float(np.nanmean(loss)), float(np.nanmean(top1)))


def choose_trials(trials: Sequence[Trial]) -> tuple[dict[str, int], dict[str, str]]:
    """Choose the trial of least loss of each method; return why a method has none.

    Of equal ones it is the first. A trial that diverged lost, but where one failed otherwise the
    others must not win by default.
    """
    best: dict[str, int] = {}
    missing: dict[str, str] = {}
    for method, group in groupby(trials, key=lambda trial: trial.cell.method):
        made = list(group)
        broken = [each for each in made if each.failure and not each.failure.diverged]
        comparable = [(each.loss, each.cell.trial or 0) for each in made if not isnan(each.loss)]
        if broken and (failure := broken[-1].failure):
            missing[method] = f"trial {broken[-1].cell.trial} failed, {failure.why}"
        elif comparable:
            best[method] = min(comparable)[1]
        else:
            missing[method] = "all of its trials diverged"
    return best, missing


def format_trials(grid: Grid, trials: Sequence[Trial], best: Mapping[str, int]) -> str:
    """Return all trials as CSV."""
    rows: list[Sequence[Any]] = [COLUMNS]
    for cell, loss, top1, failure in trials:
        settings = " ".join(grid.combinations(cell.method)[(cell.trial or 1) - 1])
        figures = ["", ""] if failure else [f"{loss:.6g}", f"{top1:.6g}"]
        mark = "yes" if best.get(cell.method) == cell.trial else "no"
        row = [cell.method, cell.trial, grid.tuning_seed, settings, *figures, mark]
        rows.append([*row, failure.why if failure else "", cell.place.as_posix()])
    return format_lines(rows)


def write_results(grid: Grid, outcome: Outcome, out: Path) -> Comparison | None:
    """Write tables, which say what is missing in them, and a page, if any run finished."""
    runs = [reader.read(out / cell.place) for cell in outcome.cells]
    refuse_unlike(runs)
    if not runs:
        return None
    reference = next((run.method for run in runs if run.method == grid.reference), None)
    compared = comparison.write(runs, out, reference, outcome.missing)
    page.write(runs, out / "report.html", baseline=reference)
    return compared


def refuse_unlike(runs: Sequence[RecordedRun]) -> None:
    """Refuse runs of one seed that did not see the same clients."""
    first: dict[int | None, RecordedRun] = {}
    for run in runs:
        before = first.setdefault(run.seed, run)
        if run.split_digest != before.split_digest:
            raise IsthmusError(
                f"{run.path} has split {run.split_digest}, {before.path} has "
                f"{before.split_digest}: all methods of a seed must have the same; check whether "
                "the data changed since the first run"
            )
