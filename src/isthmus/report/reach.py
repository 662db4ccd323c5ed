"""What each run had spent when it was as good as a baseline at its end."""

from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from isthmus.errors import IsthmusError
from isthmus.metrics.cost import Spent, improvement
from isthmus.report import tables
from isthmus.report.records import Run, counterpart, labels
from isthmus.report.tables import MISSING

BASELINE = "fedavg"
HEAD = ("run", "target %", "rounds", "times fewer", "training s", "sent")


class Row(NamedTuple):
    """One run on its way to a target."""

    label: str
    target: float  # the baseline's last mean top-1, a fraction
    spent: Spent | None  # None: it never got there
    improvement: float | None  # the baseline's rounds over this run's
    chosen_on_test: bool

    def cells(self) -> list[str]:
        """Prints it, in the order of HEAD."""
        target = tables.percent(self.target)
        if self.spent is None:
            return [self.label, target, *[MISSING] * 4]
        mark = tables.DAGGER if self.chosen_on_test else ""
        fewer = MISSING if self.improvement is None else f"{self.improvement:.2f}{mark}"
        rounds, seconds, nbytes = self.spent
        spent = [f"{rounds}{mark}", fewer, tables.seconds(seconds), tables.nbytes(nbytes)]
        return [self.label, target, *spent]


def baseline_of(runs: Sequence[Run], named: str | None) -> str | None:
    """Names the method whose end is the target: the one asked for, or FedAvg if it is there."""
    methods = list(dict.fromkeys(run.method for run in runs))
    if named is not None and named not in methods:
        raise IsthmusError(
            f"baseline {named!r} is not among the runs; expected one of {', '.join(methods)}; "
            "name one of them, or add a run of it"
        )
    return named or (BASELINE if BASELINE in methods else None)


def rows(runs: Sequence[Run], baseline: str, model: str) -> list[Row]:
    """Returns a row per run that has such a model and a baseline on its own federation."""
    found = []
    for run, label in zip(runs, labels(runs), strict=True):
        against = counterpart(run, runs, baseline)
        if against is None or not len(run.curve("top1", model).round):
            continue
        ends = against.curve("top1", model).mean
        if not len(ends):
            continue
        target = float(ends[-1])
        first, mine = against.to_reach(target, model), run.to_reach(target, model)
        fewer = improvement(first and first.rounds, mine and mine.rounds)
        chosen = run.chosen_on_test and model == "personal"
        found.append(Row(label, target, mine, fewer, chosen))
    return found


def caption(baseline: str, model: str) -> str:
    """Says which target, which number has to reach it, and what is counted."""
    which = {
        "personal": "the personal models' mean top-1 over clients, each on its own test part",
        "shared": "the shared model's mean top-1 over clients, each on its own test part",
    }[model]
    return (
        f"Target: {which}, where {baseline} ended on the same clients. Rounds: the first evaluated "
        "one at which a run is as good; seconds of training and bytes down and up until then. "
        f"Times fewer: {baseline}'s rounds to the target over the run's. {MISSING}: never reached. "
        "Runs on other clients are left out."
    )


def terminal(runs: Sequence[Run], baseline: str) -> Table:
    """Returns the table of the personal models for a terminal; the page has the shared ones too."""
    found, said = rows(runs, baseline, "personal"), caption(baseline, "personal")
    note = f"\n{tables.FOOTNOTE}" if any(row.chosen_on_test for row in found) else ""
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        caption=Text(said + note, style="dim"),
        caption_justify="left",
    )
    table.add_column(HEAD[0], overflow="fold", min_width=11, max_width=22)
    for header in HEAD[1:]:
        table.add_column(header, justify="right", no_wrap=True)
    for row in found:
        label, *cells = row.cells()
        table.add_row(Text(label), *cells)
    return table
