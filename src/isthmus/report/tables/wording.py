"""What the tables of a comparison print, column by column, and what their captions say."""

from collections.abc import Callable, Sequence
from math import isnan
from typing import NamedTuple

from isthmus.experiment.settings import list_settings
from isthmus.metrics.metric import METRICS
from isthmus.report.contrasts import Comparison, Difference, MethodBlock, MethodRow
from isthmus.report.statistics import LEVEL, RESAMPLES, Interval
from isthmus.report.tables.formats import (
    BATCHED,
    DAGGER,
    FOOTNOTE,
    MISSING,
    format_bounds,
    format_bytes,
    format_metric,
    format_p,
    format_percent,
    format_points,
)
from isthmus.report.tables.summary import (
    describe_bounds,
    describe_scope,
    describe_selection,
    name_unfinished,
)

TIED = "≈"
FEW = 10  # data sets; below, the approximations of rank tests are rough


class ComparisonColumn(NamedTuple):
    """One column: its title, a short one of two lines, and how a row's number prints."""

    title: str
    short: tuple[str, str]
    cell: Callable[[MethodRow, str], str]  # of a row, and the mark of its differences


COLUMNS = (
    ComparisonColumn(
        "personal top-1 %, mean [interval]",
        ("personal", "top-1 %"),
        lambda row, _: _format_interval(row.top1, format_percent, _mark(row)),
    ),
    ComparisonColumn(
        "personal top-1 %, worst 5 %",
        ("worst", "5 %"),
        lambda row, _: row.averages.mark(format_percent(row.averages.worst)),
    ),
    ComparisonColumn(
        "personal ECE %",
        ("ECE", "%"),
        lambda row, _: row.averages.mark_metric(
            METRICS["ece"], format_metric("ece", row.averages.means["ece"])
        ),
    ),
    ComparisonColumn(
        "shared top-1 %, clients",
        ("shared", "top-1 %"),
        lambda row, _: format_percent(row.averages.shared),
    ),
    ComparisonColumn(
        "difference, points [interval]",
        ("difference", "points"),
        lambda row, mark: _if_compared(
            row, lambda it: _format_interval(it.mean, format_points, mark)
        ),
    ),
    ComparisonColumn(
        "wins / ties / losses",
        ("w/t/l", "pairs"),
        lambda row, mark: _if_compared(row, lambda it: "/".join(map(str, it.tally)) + mark),
    ),
    ComparisonColumn(
        "p, Holm",
        ("p", "Holm"),
        lambda row, mark: _if_compared(row, lambda it: format_p(it.holm) + mark),
    ),
    ComparisonColumn(
        "clients harmed",
        ("harmed", "clients"),
        lambda row, _: row.averages.mark(_format_harmed(row)),
    ),
    ComparisonColumn(
        "bytes, down and up",
        ("bytes", "sent"),
        lambda row, _: format_bytes(row.averages.down_bytes + row.averages.up_bytes),
    ),
)


def print_rows(block: MethodBlock) -> list[list[str]]:
    """Prints the rows of a block, each in the order of COLUMNS."""
    oracle = any(row.averages.chosen_on_test for row in block.rows if row.label == block.reference)
    marks = [DAGGER if oracle or row.averages.chosen_on_test else "" for row in block.rows]
    return [
        [column.cell(row, mark) for column in COLUMNS]
        for row, mark in zip(block.rows, marks, strict=True)
    ]


def describe(comparison: Comparison) -> str:
    """Says which model, clients, split, round and rule of choice, which seeds, which interval."""
    rows = [row for block in comparison.blocks for row in block.rows]
    several = any(len(row.runs) > 1 for row in rows)
    sentences = [
        "Personal: the model each client deploys, on its own test part; "
        + ("mean over seeds of the mean over clients" if several else "mean over clients")
        + ", at the last round that was evaluated.",
        f"[ ]: {100 * LEVEL:g} % percentile bootstrap interval, {RESAMPLES} resamples of "
        f"{_describe_resampling(rows)}.",
        f"Bold: the highest mean{_except_oracles(rows)}; {TIED}: the interval of the difference to "
        "it, client by client, holds zero.",
        "Worst 5 %: mean over the lowest twentieth of a seed's clients. ECE, shared model on the "
        "same test parts, bytes: means over seeds of a run's figure.",
    ]
    if any(row.difference for row in rows):
        sentences += _describe_differences(comparison, rows)
    if any(row.harmed for row in rows):
        sentences.append(
            "Harmed: clients strictly below the accuracy they reach training alone (local), of "
            "those of all seeds whose split local has too."
        )
    if any(run.per_batch for row in rows for run in row.runs):
        sentences.append(BATCHED)
    sentences.append(f"{MISSING}: not recorded, or nothing to hold it against.")
    for block in comparison.blocks:
        name = f"{block.name}: " if len(comparison.blocks) > 1 else ""
        sentences += [name + " ".join(describe_block(block, comparison.reference))]
    return " ".join(sentences)


def _describe_resampling(rows: Sequence[MethodRow]) -> str:
    units = {
        "clients; a single seed cannot tell how another would fare"
        if len(row.runs) == 1
        else "seeds and of clients, the same in all of them"
        if row.crossed
        else "seeds, and of clients within each"
        for row in rows
    }
    return ", or of ".join(sorted(units, reverse=True))


def _except_oracles(rows: Sequence[MethodRow]) -> str:
    oracles = any(row.averages.chosen_on_test for row in rows)
    bounds = any(not row.averages.federated for row in rows)
    without = " and ".join([DAGGER] * oracles + ["what is not federated"] * bounds)
    return f" without {without}" if without else ""


def _describe_differences(comparison: Comparison, rows: Sequence[MethodRow]) -> list[str]:
    differences = [row.difference for row in rows if row.difference]
    each = sorted({difference.pairs for difference in differences})
    pairs = str(each[0]) if len(each) == 1 else f"{each[0]} to {each[-1]}"
    what = (
        "clients, each averaged over the seeds, whose split is one"
        if all(difference.crossed for difference in differences)
        else "(seed, client) pairs"
        if any(len(difference.seeds) > 1 for difference in differences)
        else "clients"
    )
    return [
        f"Difference: to {comparison.reference}, of the same seed, split and client. Wins, ties, "
        "losses: pairs above, equal (the same number of right answers) and below.",
        f"p: Wilcoxon signed-rank over {pairs} {what}, corrected by Holm for all rows of a data "
        "set. It takes pairs as independent, which clients that share a model are not: it is "
        "about these trained models, and too small for the methods as such"
        + (
            "; the interval, which also resamples seeds, allows for that."
            if any(len(difference.seeds) > 1 for difference in differences)
            else ", of which one seed says little."
        ),
    ]


def describe_block(block: MethodBlock, reference: str) -> list[str]:
    """Says what holds for one block: clients, round, seeds, choice, what was left out."""
    runs = [run for row in block.rows for run in row.runs]
    sentences = [f"Means {describe_scope(runs)}.", _describe_seeds(block)]
    if block.reference is None:
        sentences.append(f"No run of {reference}, so no difference.")
    elif block.reference != reference:
        sentences.append(f"Differences are to {block.reference}.")
    sentences += [text for text in (_name_left_out(block), _describe_budgets(block)) if text]
    averages = [row.averages for row in block.rows]
    others = (describe_bounds(averages), describe_selection(averages), name_unfinished(runs))
    return sentences + [text for text in others if text]


def _describe_seeds(block: MethodBlock) -> str:
    by_seeds: dict[str, list[str]] = {}
    for row in block.rows:
        seeds = ", ".join(map(str, row.group.seeds))
        by_seeds.setdefault(f"{'seeds' if len(row.runs) > 1 else 'seed'} {seeds}", []).append(
            row.label
        )
    listed = (
        next(iter(by_seeds))
        if len(by_seeds) == 1
        else "; ".join(f"{seeds} ({', '.join(labels)})" for seeds, labels in by_seeds.items())
    )
    splits = {run.split_digest for row in block.rows for run in row.group.runs}
    if None in splits:
        split = "not every split is known"
    elif len(splits) == 1:
        split = f"one split, {next(iter(splits))}"
    else:
        split = f"{len(splits)} splits"
    return f"{listed[0].upper()}{listed[1:]}; {split}."


def _name_left_out(block: MethodBlock) -> str | None:
    reference = next((row for row in block.rows if row.label == block.reference), None)
    if reference is None:
        return None
    missing = []
    for row in block.rows:
        if row is reference:
            continue
        used = row.difference.seeds if row.difference else ()
        seeds = sorted({*row.group.seeds, *reference.group.seeds} - set(used))
        if seeds:
            missing.append(f"{row.label} {', '.join(map(str, seeds))}")
    if not missing:
        return None
    return (
        f"Seeds left out of differences to {reference.label}, since one of the two has no run of "
        f"them on the same split: {'; '.join(missing)}."
    )


def _describe_budgets(block: MethodBlock) -> str | None:
    different = []
    for key in list_settings("budget"):
        given = {row.label: row.group.runs[0].settings.get(key, MISSING) for row in block.rows}
        if len(set(given.values())) > 1:
            different.append(f"{key}: " + ", ".join(f"{label} {n}" for label, n in given.items()))
    return f"Budgets differ – {'; '.join(different)}." if different else None


def describe_ranks(comparison: Comparison) -> str | None:
    """Says what the average ranks are and what difference of them counts."""
    ranks = comparison.ranks
    if ranks is None:
        return None
    n, level = len(comparison.blocks), f"{1 - LEVEL:.2g}"
    few = f" {n} data sets are few for such a test." if n < FEW else ""
    tested = (
        "" if ranks.p is None else f"Friedman's test that all rank alike: p {format_p(ranks.p)}. "
    )
    return (
        f"Average rank over {n} data sets, by mean personal top-1; 1 is best. {tested}"
        f"Critical difference (Nemenyi, {level}): {ranks.critical:.2f}; ranks that are closer are "
        f"not told apart.{few}"
    )


def list_ranks(comparison: Comparison) -> list[tuple[str, float]]:
    """Lists methods by average rank, best first; one chosen on test data is marked."""
    ranks = comparison.ranks
    if ranks is None:
        return []
    oracles = {
        row.label
        for block in comparison.blocks
        for row in block.rows
        if row.averages.chosen_on_test
    }
    ordered = sorted(zip(ranks.average, ranks.labels, strict=True))
    return [(label + (DAGGER if label in oracles else ""), rank) for rank, label in ordered]


def list_notes(comparison: Comparison) -> list[str]:
    """Lists the paragraphs under the table: what the numbers are, ranks, the dagger."""
    oracle = any(row.averages.chosen_on_test for block in comparison.blocks for row in block.rows)
    texts = [describe(comparison), describe_ranks(comparison), FOOTNOTE if oracle else None]
    return [text for text in texts if text]


def _format_interval(it: Interval, printed: Callable[[float], str], mark: str) -> str:
    if isnan(it.mean):
        return MISSING
    return f"{printed(it.mean)}{mark}{format_bounds(it, printed)}"


def _if_compared(row: MethodRow, printed: Callable[[Difference], str]) -> str:
    return MISSING if row.difference is None else printed(row.difference)


def _format_harmed(row: MethodRow) -> str:
    return MISSING if row.harmed is None else "{}/{}".format(*row.harmed)


def _mark(row: MethodRow) -> str:
    return (TIED if row.tied else "") + (DAGGER if row.averages.chosen_on_test else "")
