"""What the seeds of a group say together: their mean, and the range they span."""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from isthmus.records.columns import Floats, Integers
from isthmus.records.reader import Curve, Run
from isthmus.report.groups import Group
from isthmus.report.tables.summary import Row

POINTS_AT_MOST = 200  # of a curve that is known after every round
NEXT_TO_NOTHING = (
    1e-3  # of the most that a line spends: local's clients only say that they are done
)
VARIANCE = "head_variance"  # it belongs to the rounds, not to the clients
AVERAGED = (
    "top1",
    "deviation",
    "worst",
    "gini",
    "loss",
    "brier",
    "ece",
    "mce",
    "shared",
    "server",
    "harmed",
    "down_bytes",
    "up_bytes",
    "seconds",
)


class Axis(NamedTuple):
    """What a curve is drawn against."""

    name: str
    label: str
    title: str
    unit: str
    size: float  # of the unit


ROUNDS = Axis("rounds", "Rounds", "communication rounds", "rounds", 1)
SECONDS = Axis("seconds", "Seconds", "training time, seconds", "s", 1)


class Series(NamedTuple):
    """A number of a group at the rounds that all its seeds have, and what was spent until then."""

    round: Integers  # [T]
    seconds: Floats  # [T], of training, mean over seeds
    nbytes: Floats  # [T], down and up, mean over seeds
    values: Floats  # [S, T]


class Line(NamedTuple):
    """A series as a figure shows it."""

    x: Floats
    round: Integers
    mean: Floats
    low: Floats  # the lowest seed
    high: Floats  # the highest seed
    seeds: int
    level: bool  # it spends next to nothing of this kind: its end is a horizontal line


def series(group: Group, metric: str, model: str = "personal") -> Series | None:
    """Returns a number of a group, round by round, as far as all its seeds have come."""
    curves = [
        _varied(run) if metric == VARIANCE else run.curve(metric, model) for run in group.runs
    ]
    rounds = reduce(np.intersect1d, [curve.round for curve in curves])
    if rounds.size == 0:
        return None
    if len(rounds) > POINTS_AT_MOST:
        rounds = rounds[np.linspace(0, len(rounds) - 1, POINTS_AT_MOST).round().astype(int)]
    values = [curve.mean[np.searchsorted(curve.round, rounds)] for curve in curves]
    seconds = [_until(run, run.rounds.train_seconds, rounds) for run in group.runs]
    sent = [_until(run, run.rounds.down_bytes + run.rounds.up_bytes, rounds) for run in group.runs]
    return Series(rounds, np.mean(seconds, axis=0), np.mean(sent, axis=0), np.stack(values))


def axes(found: Sequence[Series | None]) -> list[Axis]:
    """Returns what series can be drawn against: rounds, seconds, and bytes if any were sent."""
    most = max((float(each.nbytes[-1]) for each in found if each is not None), default=0.0)
    unit, size = ("GB", 1e9) if most >= 1e9 else ("MB", 1e6) if most >= 1e6 else ("kB", 1e3)
    traffic = Axis("bytes", "Bytes", f"sent down and up, {unit}", unit, size)
    return [ROUNDS, SECONDS, traffic] if most else [ROUNDS, SECONDS]


def lines(found: Sequence[Series | None], axis: Axis) -> list[Line | None]:
    """Draws series against an axis; one that spends next to nothing of it becomes a level."""
    along = {"rounds": "round", "seconds": "seconds", "bytes": "nbytes"}[axis.name]
    spent = [None if each is None else getattr(each, along) / axis.size for each in found]
    most = max((float(x[-1]) for x in spent if x is not None), default=0.0)
    return [
        None if each is None or x is None else _line(each, x, most)
        for each, x in zip(found, spent, strict=True)
    ]


def bins(group: Group) -> tuple[Floats, Floats, Floats] | None:
    """Returns (n, top-1, confidence) of each bin, the test examples of all seeds together."""
    found = [known for run in group.runs if (known := run.bins()) is not None]
    if not found:
        return None
    n = np.sum([each[0] for each in found], axis=0)
    right, sure = (
        np.sum([np.nan_to_num(each[0] * each[i]) for each in found], axis=0) / np.maximum(n, 1)
        for i in (1, 2)
    )
    return n, right, sure


def pooled(group: Group, metric: str) -> float | None:
    """Returns the mean over seeds of a number that each run pools over its test examples."""
    return _mean([run.pooled(metric) for run in group.runs])


def spent(group: Group, column: str) -> float:
    """Returns the mean over seeds of what was spent up to the last evaluated round."""
    return float(np.mean([run.spent(column) for run in group.runs]))


def rows(groups: Sequence[Group], runs: Sequence[Run], each: Sequence[Row]) -> list[Row]:
    """Returns one row per group from the rows of its runs: means over seeds."""
    of_run = {run.path: row for run, row in zip(runs, each, strict=True)}
    return [_row(group, [of_run[run.path] for run in group.runs]) for group in groups]


def said(groups: Sequence[Group]) -> str:
    """Says how seeds are told together, where there are several."""
    counts = sorted({len(group.runs) for group in groups})
    if counts[-1] == 1:
        return ""
    many = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    return f"Mean over {many} seeds per method."


def _varied(run: Run) -> Curve:
    known = np.isfinite(run.rounds.head_variance)
    return Curve(run.rounds.round[known], run.rounds.head_variance[known])


def _until(run: Run, column: Floats | Integers, rounds: Integers) -> Floats:
    total = np.concatenate([[0.0], np.cumsum(column, dtype=np.float64)])
    until: Floats = total[np.searchsorted(run.rounds.round, rounds, side="right")]
    return until


def _line(each: Series, x: Floats, most: float) -> Line:
    mean, low, high = each.values.mean(0), each.values.min(0), each.values.max(0)
    seeds = len(each.values)
    if x[-1] >= NEXT_TO_NOTHING * most:
        return Line(x, each.round, mean, low, high, seeds, level=False)
    mean, low, high = (np.repeat(values[-1:], 2) for values in (mean, low, high))
    return Line(np.array([0.0, most]), each.round[[-1, -1]], mean, low, high, seeds, level=True)


def _row(group: Group, each: Sequence[Row]) -> Row:
    if len(each) == 1:
        return each[0]._replace(label=group.label)
    means: dict[str, Any] = {name: _mean([getattr(row, name) for row in each]) for name in AVERAGED}
    kinds = tuple(
        (
            kind,
            count,
            float(np.mean([top1 for row in each for k, _, top1 in row.kinds if k == kind])),
        )
        for kind, count, _ in each[0].kinds
    )
    status = next((row.status for row in each if row.status != "finished"), "finished")
    last = min(row.round for row in each)
    return each[0]._replace(label=group.label, kinds=kinds, status=status, round=last, **means)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
