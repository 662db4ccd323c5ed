"""The comparison of methods over seeds and data sets, for terminals, papers and programs."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Group as Stack
from rich.table import Table
from rich.text import Text

from isthmus.experiment.settings import list_settings
from isthmus.metrics.metric import METRICS
from isthmus.report.contrasts import (
    Comparison,
    Difference,
    MethodBlock,
    MethodRow,
    compare,
    have_same_split,
)
from isthmus.report.groups import SEEDED
from isthmus.report.statistics import LEVEL, RESAMPLES, Interval
from isthmus.report.tables.formats import (
    DAGGER,
    FOOTNOTE,
    MISSING,
    Column,
    build_terminal_table,
    format_bounds,
    format_bytes,
    format_p,
    format_percent,
    format_points,
)
from isthmus.report.tables.summary import describe_scope, list_exceptions
from isthmus.report.templates import render, render_paragraph
from isthmus.run.cells import format_lines
from isthmus.run.record import RecordedRun
from isthmus.system.files import write_text

TIED = "≈"
FEW = 10  # data sets; below, the approximations of rank tests are rough
NARROW = ("personal", "worst", "difference", "w/t/l", "p", "harmed")  # in 80 columns


COLUMNS = (
    Column(
        "personal top-1 %, mean [interval]",
        ("personal", "top-1 %"),
        lambda row: _format_interval(row.top1, format_percent, _mark(row)),
    ),
    Column(
        "personal top-1 %, worst 5 %",
        ("worst", "5 %"),
        lambda row: row.averages.mark(format_percent(row.averages.worst)),
    ),
    Column("personal ECE %", ("ECE", "%"), lambda row: row.averages.print_metric(METRICS["ece"])),
    Column(
        "shared top-1 %, clients",
        ("shared", "top-1 %"),
        lambda row: format_percent(row.averages.shared),
    ),
    Column(
        "difference, points [interval]",
        ("difference", "points"),
        lambda row: _compare(
            row, lambda it, dagger: _format_interval(it.mean, format_points, dagger)
        ),
    ),
    Column(
        "wins / ties / losses",
        ("w/t/l", "pairs"),
        lambda row: _compare(row, lambda it, dagger: "/".join(map(str, it.tally)) + dagger),
    ),
    Column(
        "p, Holm",
        ("p", "Holm"),
        lambda row: _compare(row, lambda it, dagger: format_p(it.holm) + dagger),
    ),
    Column(
        "clients harmed",
        ("harmed", "clients"),
        lambda row: row.averages.mark("{}/{}".format(*row.harmed) if row.harmed else MISSING),
    ),
    Column(
        "bytes, down and up",
        ("bytes", "sent"),
        lambda row: format_bytes(row.averages.down_bytes + row.averages.up_bytes),
    ),
)


def write(
    runs: Sequence[RecordedRun],
    out: Path,
    reference: str | None = None,
    missing: Mapping[str, str] = MappingProxyType({}),
) -> Comparison:
    """Write table.md, table.tex and table.csv to a directory; return what is in them.

    `missing` has runs that should be in the tables, and why they are not; table.csv leaves it out.
    """
    comparison = compare(runs, reference)
    write_text(out / "table.md", markdown(comparison, missing))
    write_text(out / "table.tex", latex(comparison, missing))
    write_text(out / "table.csv", csv(comparison))
    return comparison


def terminal(comparison: Comparison) -> Stack:
    """Return the tables for a terminal of 80 columns; the files have the other columns."""
    parts: list[Table | Text] = []
    narrow = [i for i, column in enumerate(COLUMNS) if column.short[0] in NARROW]
    for block in comparison.blocks:
        title = block.name if len(comparison.blocks) > 1 else None
        heads = ["\n".join(COLUMNS[i].short) for i in narrow]
        table = build_terminal_table(heads, title=title, title_justify="left", show_edge=False)
        for row, line in zip(block.rows, print_rows(block), strict=True):
            bold = "bold" if row.best else ""
            printed = [
                Text(line[i].replace(" [", "\n["), style=bold if i == 0 else "") for i in narrow
            ]
            table.add_row(Text(row.label), *printed)
        parts.append(table)
    if comparison.ranks is not None:
        table = build_terminal_table(["average\nrank"], show_edge=False)
        for label, rank in list_ranks(comparison):
            table.add_row(Text(label), f"{rank:.2f}")
        parts.append(table)
    return Stack(*parts, Text(), *(Text(text, style="dim") for text in list_notes(comparison)))


def markdown(comparison: Comparison, missing: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return all columns in Markdown, the notes under them."""
    return render("comparison.md", **_collect_values(comparison, missing))


def latex(comparison: Comparison, missing: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return all columns in LaTeX with booktabs, the notes under them."""
    return render("comparison.tex", **_collect_values(comparison, missing))


def _collect_values(comparison: Comparison, missing: Mapping[str, str]) -> dict[str, Any]:
    methods = {row.label for row in comparison.rows}
    names = ", ".join(block.name for block in comparison.blocks)
    return {
        "title": f"{len(methods)} methods on {names}, compared with {comparison.reference}.",
        "columns": COLUMNS,
        "blocks": [
            (block.name, [*zip(block.rows, print_rows(block), strict=True)])
            for block in comparison.blocks
        ],
        "ranks": list_ranks(comparison),
        "notes": list_notes(comparison),
        # One line each, in a comment of LaTeX too.
        "missing": [" ".join(f"{what}: {why}".split()) for what, why in missing.items()],
    }


def csv(comparison: Comparison) -> str:
    """Return every number in full, one row per method and data set, with all its settings."""
    lines = [
        _collect_row(comparison, block, row) for block in comparison.blocks for row in block.rows
    ]
    header = dict.fromkeys(name for line in lines for name in line)
    return format_lines([header, *([line.get(name) for name in header] for line in lines)])


def _collect_row(comparison: Comparison, block: MethodBlock, row: MethodRow) -> dict[str, Any]:
    averages, difference, ranks = row.averages, row.difference, comparison.ranks
    tally = difference.tally if difference else (None,) * 3
    return {
        "data": block.name,
        "method": row.label,
        "model": "personal",
        "split": "test",
        "clients": " ".join(str(run.clients) for run in row.runs),
        "seeds": " ".join(map(str, row.group.seeds)),
        "splits": " ".join(str(run.split_digest) for run in row.group.runs),
        "round": " ".join(str(run.round) for run in row.runs),
        "status": " ".join(run.status for run in row.runs),
        "selection": averages.selection,
        "chosen_on_test": averages.chosen_on_test,
        "level": LEVEL,
        "resamples": RESAMPLES,
        "top1": row.top1.mean,
        "top1_low": row.top1.low,
        "top1_high": row.top1.high,
        "best": row.best,
        "tied_with_best": row.tied,
        "top1_worst_5_percent": averages.worst,
        "ece_per_batch" if averages.run.per_batch else "ece": averages.means["ece"],
        "shared_top1": averages.shared,
        "reference": block.reference,
        "difference": difference and difference.mean.mean,
        "difference_low": difference and difference.mean.low,
        "difference_high": difference and difference.mean.high,
        "difference_seeds": difference and " ".join(map(str, difference.seeds)),
        "pairs": difference and difference.pairs,
        **dict(zip(("wins", "ties", "losses"), tally, strict=True)),
        "p_wilcoxon": difference and difference.p,
        "p_holm": difference and difference.holm,
        "harmed": row.harmed and row.harmed[0],
        "harmed_of": row.harmed and row.harmed[1],
        "average_rank": ranks
        and dict(zip(ranks.labels, ranks.average, strict=True)).get(row.label),
        "down_bytes": averages.down_bytes,
        "up_bytes": averages.up_bytes,
        **{
            f"settings.{key}": value if isinstance(value, str) else json.dumps(value, default=str)
            for key, value in row.group.runs[0].settings.items()
            if key not in SEEDED
        },
    }


def print_rows(block: MethodBlock) -> list[list[str]]:
    """Print the rows of a block, each in the order of COLUMNS."""
    return [[column.cell(row) for column in COLUMNS] for row in block.rows]


def list_ranks(comparison: Comparison) -> list[tuple[str, float]]:
    """List methods by average rank, best first; one chosen on test data is marked."""
    ranks = comparison.ranks
    if ranks is None:
        return []
    oracles = {row.label for row in comparison.rows if row.averages.chosen_on_test}
    ordered = sorted(zip(ranks.average, ranks.labels, strict=True))
    return [(label + (DAGGER if label in oracles else ""), rank) for rank, label in ordered]


def list_notes(comparison: Comparison) -> list[str]:
    """List the paragraphs under the table: what the numbers are, ranks, the dagger."""
    notes = [describe(comparison)]
    if comparison.ranks is not None:
        values = {"ranks": comparison.ranks, "n": len(comparison.blocks), "FEW": FEW}
        notes.append(render_paragraph("ranks.txt", level=f"{1 - LEVEL:.2g}", **values))
    oracle = any(row.averages.chosen_on_test for row in comparison.rows)
    return [*notes, FOOTNOTE] if oracle else notes


def describe(comparison: Comparison) -> str:
    """Describe which model, clients, split, round, rule of choice, seeds and interval it is."""
    rows = comparison.rows
    bounds = {
        DAGGER: any(row.averages.chosen_on_test for row in rows),
        "what is not federated": any(not row.averages.run.federated for row in rows),
    }
    return render_paragraph(
        "comparison.txt",
        comparison=comparison,
        rows=rows,
        several_seeds=any(len(row.runs) > 1 for row in rows),
        paired_seeds=any(row.difference and len(row.difference.seeds) > 1 for row in rows),
        level=f"{100 * LEVEL:g}",
        resamples=RESAMPLES,
        units=sorted({_describe_resampling(row) for row in rows}, reverse=True),
        bounds=[what for what, occurs in bounds.items() if occurs],
        describe_scope=describe_scope,
        describe_seeds=_describe_seeds,
        name_left_out=lambda block: list(_name_left_out(block)),
        list_budgets=lambda block: list(_list_budgets(block)),
        list_exceptions=list_exceptions,
        TIED=TIED,
    )


def _describe_resampling(row: MethodRow) -> str:
    if len(row.runs) == 1:
        return "clients; a single seed cannot show how another would do"
    if have_same_split(row.group.runs):
        return "seeds and of clients, the same in all of them"
    return "seeds, and of clients within each"


def _describe_seeds(block: MethodBlock) -> str:
    by_seeds: dict[str, list[str]] = {}
    for row in block.rows:
        seeds = ", ".join(map(str, row.group.seeds))
        by_seeds.setdefault(f"{'seeds' if len(row.runs) > 1 else 'seed'} {seeds}", []).append(
            row.label
        )
    listed = "; ".join(f"{seeds} ({', '.join(labels)})" for seeds, labels in by_seeds.items())
    listed = next(iter(by_seeds)) if len(by_seeds) == 1 else listed
    splits = {run.split_digest for row in block.rows for run in row.group.runs}
    split = "not every split is known" if None in splits else f"{len(splits)} splits"
    split = (
        f"one split, {next(iter(splits))}" if len(splits - {None}) == len(splits) == 1 else split
    )
    return f"{listed[0].upper()}{listed[1:]}; {split}"


def _name_left_out(block: MethodBlock) -> Iterator[str]:
    """Yield the methods and their seeds that are in no difference to the reference."""
    reference = next((row for row in block.rows if row.label == block.reference), None)
    for row in block.rows:
        if reference is not None and row is not reference:
            used = row.difference.seeds if row.difference else ()
            seeds = sorted({*row.group.seeds, *reference.group.seeds} - set(used))
            if seeds:
                yield f"{row.label} {', '.join(map(str, seeds))}"


def _list_budgets(block: MethodBlock) -> Iterator[str]:
    """Yield the budgets that differ."""
    for key in list_settings("budget"):
        given = {row.label: row.group.runs[0].settings.get(key, MISSING) for row in block.rows}
        if len(set(given.values())) > 1:
            yield f"{key}: " + ", ".join(f"{label} {n}" for label, n in given.items())


def _format_interval(it: Interval, printed: Callable[[float], str], mark: str) -> str:
    if isnan(it.mean):
        return MISSING
    return f"{printed(it.mean)}{mark}{format_bounds(it, printed)}"


def _compare(row: MethodRow, printed: Callable[[Difference, str], str]) -> str:
    """Print a number of a row's difference, with the mark that it carries."""
    if row.difference is None:
        return MISSING
    return printed(row.difference, DAGGER if row.difference.chosen_on_test else "")


def _mark(row: MethodRow) -> str:
    return (TIED if row.tied else "") + (DAGGER if row.averages.chosen_on_test else "")
