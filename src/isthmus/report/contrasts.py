"""Methods over their seeds, compared with a reference on the same clients."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from isthmus.errors import IsthmusError, nearest
from isthmus.experiment.settings import list_settings
from isthmus.report import statistics
from isthmus.report.groups import Group, group_by_seed, make_key, name_apart
from isthmus.report.statistics import Interval, WinTieLoss
from isthmus.report.tables.summary import SummaryRow, average_over_seeds, summarize
from isthmus.run.record import RecordedRun

FEDERATION = list_settings("data")  # runs that differ in one of them are on other data
REFERENCE = "fedavg"


class Difference(NamedTuple):
    """Personal top-1 minus the reference's, client by client on the same split."""

    mean: Interval  # a fraction
    seeds: tuple[int, ...]  # that both have
    crossed: bool  # these have one split: the pairs are clients, each averaged over its seeds
    pairs: int
    tally: WinTieLoss
    p: float
    holm: float  # the same, corrected for all differences of the block
    chosen_on_test: bool  # the personal models of one of the two were


class MethodRow(NamedTuple):
    """One method with one choice of settings: its numbers at the last evaluated round."""

    group: Group
    runs: tuple[SummaryRow, ...]  # one per seed
    averages: SummaryRow  # over the seeds
    top1: Interval
    difference: Difference | None  # to the reference; None where no pair is known
    best: (
        bool  # the highest mean of several, of those that are federated and not chosen on test data
    )
    tied: bool  # the interval of its difference to the best holds zero

    @property
    def label(self) -> str:
        """The name of the row."""
        return self.group.label

    @property
    def harmed(self) -> tuple[int, int] | None:
        """The clients below their accuracy in `local`, and those that have one there.

        A client counts once for each seed.
        """
        known = [(run.harmed, run.clients) for run in self.runs if run.harmed is not None]
        return (sum(int(n) for n, _ in known), sum(of for _, of in known)) if known else None


class MethodBlock(NamedTuple):
    """All methods on one federation, or on the same rule's divisions of it, one per seed."""

    name: str
    reference: str | None  # the label of the row that others are compared with, if it is here
    rows: tuple[MethodRow, ...]


class Ranks(NamedTuple):
    """Average ranks of the methods that every block has."""

    labels: tuple[str, ...]
    average: tuple[float, ...]
    critical: float
    p: float | None  # Friedman's; None with two methods


class Comparison(NamedTuple):
    """Methods, seeds and data sets in one table."""

    reference: str  # a method
    blocks: tuple[MethodBlock, ...]
    ranks: Ranks | None  # with two data sets or more

    @property
    def rows(self) -> list[MethodRow]:
        """The rows of all blocks."""
        return [row for block in self.blocks for row in block.rows]


def compare(runs: Sequence[RecordedRun], reference: str | None = None) -> Comparison:
    """Compare every method with a reference: the one named, FedAvg, or the first.

    Runs on different data come in blocks; within a block, runs that differ in the seed are one row.
    """
    if not runs:
        raise IsthmusError("no runs were given; name at least one run's directory")
    against = choose_reference(runs, reference) or runs[0].method
    by_data: dict[frozenset[tuple[str, str]], list[RecordedRun]] = {}
    for run in runs:
        by_data.setdefault(make_key(run.settings, FEDERATION), []).append(run)
    names = name_apart([together[0] for together in by_data.values()], "data", FEDERATION)
    blocks = tuple(
        _block(name, together, against)
        for name, together in zip(names, by_data.values(), strict=True)
    )
    return Comparison(against, blocks, _rank(blocks))


def choose_reference(runs: Sequence[RecordedRun], named: str | None = None) -> str | None:
    """Return the method to compare the others with: the one named, else FedAvg if it is there."""
    methods = list(dict.fromkeys(run.method for run in runs))
    if named is not None and named not in methods:
        raise IsthmusError(
            f"there is no run of {named!r} to compare with; {nearest(named, methods)}"
        )
    return named or (REFERENCE if REFERENCE in methods else None)


def have_several_seeds(runs: Sequence[RecordedRun]) -> bool:
    """Whether some method has runs that differ in the seed alone."""
    try:
        return any(len(group.runs) > 1 for group in group_by_seed(runs))
    except IsthmusError:  # one experiment given twice can be shown, but not compared
        return False


def _block(name: str, runs: Sequence[RecordedRun], against: str) -> MethodBlock:
    groups = group_by_seed(runs)
    of_runs = summarize(runs)
    by_path = {row.run.path: row for row in of_runs}
    averages = average_over_seeds(groups, of_runs)
    means = {
        group.label: statistics.bootstrap(
            [run.over_clients("top1") for run in group.runs], have_same_split(group.runs)
        )
        for group in groups
    }
    reference = next((group for group in groups if group.method == against), None)
    best = _find_best(groups, means) if len(groups) > 1 else None
    known = {
        group.label: difference
        for group in groups
        if reference is not None and group is not reference
        if (difference := _difference(group, reference)) is not None
    }
    corrected = statistics.holm([difference.p for difference in known.values()]).tolist()
    differences = {
        label: difference._replace(holm=p)
        for (label, difference), p in zip(known.items(), corrected, strict=True)
    }
    rows = [
        MethodRow(
            group=group,
            runs=tuple(
                by_path[run.path]._replace(label=label)
                for run, label in zip(group.runs, _name_runs(group), strict=True)
            ),
            averages=average,
            top1=means[group.label],
            difference=differences.get(group.label),
            best=group is best,
            tied=best is not None and group is not best and _is_tied(group, best, means),
        )
        for group, average in zip(groups, averages, strict=True)
    ]
    return MethodBlock(name, reference and reference.label, tuple(rows))


def _name_runs(group: Group) -> list[str]:
    if len(group.runs) == 1:
        return [group.label]
    return [f"{group.label} · seed {run.seed}" for run in group.runs]


def have_same_split(runs: Sequence[RecordedRun]) -> bool:
    """Whether several runs are on one split of the data."""
    return len(runs) > 1 and len({run.split_digest for run in runs} - {None}) == 1


def _find_best(groups: Sequence[Group], means: Mapping[str, Interval]) -> Group | None:
    known = [group for group in groups if not np.isnan(means[group.label].mean)]
    first = {group.label: group.runs[0] for group in known}
    fair = [
        group
        for group in known
        if first[group.label].federated and not first[group.label].chosen_on_test
    ]
    return max(fair or known, key=lambda group: means[group.label].mean, default=None)


def _is_tied(group: Group, best: Group, means: Mapping[str, Interval]) -> bool:
    difference = _difference(group, best)
    if difference is None:
        return means[group.label].holds(means[best.label].mean)
    return difference.mean.holds(0.0)


def _difference(group: Group, reference: Group) -> Difference | None:
    both = [
        (run, other)
        for run in group.runs
        for other in reference.runs
        if (run.seed, run.split_digest) == (other.seed, other.split_digest)
        and run.split_digest is not None
    ]
    differences = [
        statistics.pair(run.values("top1"), other.values("top1"), run.values("n"))
        for run, other in both
    ]
    if not sum(len(seed) for seed in differences):
        return None
    crossed = have_same_split([run for run, _ in both])
    # Sums of fractions that cancel may leave 1e-17, which is no win.
    pairs = np.mean(differences, axis=0).round(12) if crossed else np.concatenate(differences)
    p = statistics.wilcoxon(pairs)
    return Difference(
        mean=statistics.bootstrap(differences, crossed),
        seeds=tuple(run.seed or 0 for run, _ in both),
        crossed=crossed,
        pairs=len(pairs),
        tally=statistics.win_tie_loss(pairs),
        p=p,
        holm=p,
        chosen_on_test=group.runs[0].chosen_on_test or reference.runs[0].chosen_on_test,
    )


def _rank(blocks: Sequence[MethodBlock]) -> Ranks | None:
    scores = [{row.label: row.top1.mean for row in block.rows} for block in blocks]
    labels = [label for label in scores[0] if all(label in block for block in scores)]
    if len(blocks) < 2 or len(labels) < 2:
        return None
    table = [[block[label] for label in labels] for block in scores]
    return Ranks(
        labels=tuple(labels),
        average=tuple(statistics.average_ranks(table).tolist()),
        critical=statistics.critical_difference(len(labels), len(blocks)),
        p=statistics.friedman(table) if len(labels) > 2 else None,
    )
