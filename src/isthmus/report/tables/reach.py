"""What each run had spent when it was as good as a baseline at its end."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rich.table import Table
from rich.text import Text

from isthmus.metrics.spread import Spent, improvement
from isthmus.report.groups import average_known, group_by_seed
from isthmus.report.tables.formats import (
    DAGGER,
    MISSING,
    build_terminal_table,
    format_bytes,
    format_percent,
    format_seconds,
)
from isthmus.run.record import RecordedRun, find_counterpart

HEAD = ("method", "target %", "rounds", "times fewer", "training s", "sent")


class ReachRow(NamedTuple):
    """One group on its way to a target: means over the seeds that got there."""

    label: str
    target: float  # the baseline's last mean top-1, a fraction, mean over seeds
    spent: Spent | None  # None: no seed ever got there
    improvement: float | None  # the baseline's rounds over this group's
    reached: int  # seeds that got there
    seeds: int
    chosen_on_test: bool

    def cells(self) -> list[str]:
        """Print the row, in the order of HEAD."""
        target = format_percent(self.target)
        if self.spent is None:
            return [self.label, target, *[MISSING] * 4]
        mark = DAGGER if self.chosen_on_test else ""
        fewer = MISSING if self.improvement is None else f"{self.improvement:.2f}{mark}"
        rounds = f"{self.spent.rounds:.1f}".removesuffix(".0") + mark
        if self.reached < self.seeds:
            rounds += f" ({self.reached} of {self.seeds} seeds)"
        seconds, sent = format_seconds(self.spent.seconds), format_bytes(self.spent.nbytes)
        return [self.label, target, rounds, fewer, seconds, sent]


def compute(runs: Sequence[RecordedRun], baseline: str, model: str) -> list[ReachRow]:
    """Return a row per group that has such a model and a baseline on its own federations."""
    rows = []
    for group in group_by_seed(runs):
        ways = [_measure_way(run, runs, baseline, model) for run in group.runs]
        each = [way for way in ways if way is not None]
        if not each:
            continue
        arrived = [mine for _, _, mine in each if mine is not None]
        fewer = [
            improvement(first and first.rounds, mine and mine.rounds) for _, first, mine in each
        ]
        rows.append(
            ReachRow(
                label=group.label,
                target=float(np.mean([target for target, _, _ in each])),
                spent=Spent(*np.mean(arrived, axis=0).tolist()) if arrived else None,
                improvement=average_known(fewer),
                reached=len(arrived),
                seeds=len(each),
                chosen_on_test=group.runs[0].chosen_on_test and model == "personal",
            )
        )
    return rows


def _measure_way(
    run: RecordedRun, runs: Sequence[RecordedRun], baseline: str, model: str
) -> tuple[float, Spent | None, Spent | None] | None:
    """Return the target of a run, and what the baseline and the run spent to reach it."""
    against = find_counterpart(run, runs, baseline)
    if against is None or not len(run.curve("top1", model).round):
        return None
    ends = against.curve("top1", model).mean
    if not len(ends):
        return None
    target = float(ends[-1])
    return target, against.to_reach(target, model), run.to_reach(target, model)


def describe(baseline: str, model: str) -> str:
    """Describe which target, which number has to reach it, and what is counted."""
    which = {
        "personal": "the personal models' mean top-1 over clients, each on its own test part",
        "shared": "the shared model's mean top-1 over clients, each on its own test part",
    }[model]
    return (
        f"Target: {which}, where {baseline} ended on the same clients. Rounds: the first evaluated "
        "round that reaches it; seconds of training and bytes down and up until then. "
        f"Times fewer: {baseline}'s rounds to the target over the run's. {MISSING}: never reached. "
        "With several seeds: the mean over those that reached it, each with its own target. "
        "Runs on other clients are left out."
    )


def terminal(runs: Sequence[RecordedRun], baseline: str) -> Table:
    """Return the table of the personal models for a terminal; the page has the shared ones too."""
    rows, about = compute(runs, baseline, "personal"), describe(baseline, "personal")
    on_test = any(row.chosen_on_test for row in rows)
    table = build_terminal_table(HEAD[1:], about, chosen_on_test=on_test)
    for row in rows:
        label, *cells = row.cells()
        table.add_row(Text(label), *cells)
    return table
