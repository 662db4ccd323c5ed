"""The choice among a method's trials, and the table that keeps it."""

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isthmus.batch.grid import Cell, Grid
from isthmus.run import record as reader
from isthmus.run.cells import format_lines

COLUMNS = (
    *("method", "trial", "seed", "settings", "validation_loss", "validation_top1"),
    *("chosen", "failed", "run"),
)


class Failure(NamedTuple):
    """Why a run did not come to its end."""

    why: str
    diverged: bool  # it would do so again


class TrialScore(NamedTuple):
    """How a trial did on validation data: means over clients."""

    loss: float
    top1: float


def read_scores(
    trials: Sequence[Cell], out: Path, failures: Mapping[str, Failure]
) -> dict[str, TrialScore]:
    """Reads how the trials did that came to their end, by their names."""
    scores = {}
    for cell in trials:
        if cell.name not in failures:
            run = reader.read(out / cell.place)
            values = (run.values(metric, split="validation") for metric in TrialScore._fields)
            scores[cell.name] = TrialScore(*(float(np.nanmean(value)) for value in values))
    return scores


def choose_trials(
    grid: Grid,
    trials: Sequence[Cell],
    scores: Mapping[str, TrialScore],
    failures: Mapping[str, Failure],
) -> tuple[dict[str, int], dict[str, str]]:
    """Chooses the trial of least loss of each method, and says why a method has none.

    Of equal ones it is the first. A trial that diverged lost, but where one failed otherwise the
    others must not win by default.
    """
    missing = {
        cell.method: f"trial {cell.trial} failed, {failures[cell.name].why}"
        for cell in trials
        if cell.name in failures and not failures[cell.name].diverged
    }
    best: dict[str, int] = {}
    for method in grid.experiments:
        if method in missing:
            continue
        ended = [
            (scores[cell.name].loss, cell.trial or 0)
            for cell in trials
            if cell.method == method and cell.name in scores
        ]
        comparable = [pair for pair in ended if not isnan(pair[0])]
        if comparable:
            best[method] = min(comparable)[1]
        else:
            missing[method] = "all of its trials diverged"
    return best, missing


def write_table(
    grid: Grid,
    trials: Sequence[Cell],
    scores: Mapping[str, TrialScore],
    failures: Mapping[str, Failure],
    best: Mapping[str, int],
) -> str:
    """Writes all trials as CSV."""
    rows: list[Sequence[Any]] = [COLUMNS]
    for cell in trials:
        settings = " ".join(grid.combinations(cell.method)[(cell.trial or 1) - 1])
        score = scores.get(cell.name)
        figures = ["", ""] if score is None else [f"{figure:.6g}" for figure in score]
        mark = "yes" if best.get(cell.method) == cell.trial else "no"
        why = failures[cell.name].why if cell.name in failures else ""
        row = [cell.method, cell.trial, grid.tuning_seed, settings, *figures, mark, why]
        rows.append([*row, cell.place.as_posix()])
    return format_lines(rows)
