"""The comparison of methods over seeds and data sets, for terminals, papers and programs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Group as Stack
from rich.table import Table
from rich.text import Text

from isthmus.report.contrasts import Comparison, MethodBlock, MethodRow, compare
from isthmus.report.groups import SEEDED
from isthmus.report.statistics import LEVEL, RESAMPLES
from isthmus.report.tables.formats import build_terminal_table
from isthmus.report.tables.wording import COLUMNS, list_notes, list_ranks, print_rows
from isthmus.report.templates import render
from isthmus.run.cells import format_lines
from isthmus.run.record import RecordedRun
from isthmus.system.files import write_text

NARROW = ("personal", "worst", "difference", "w/t/l", "p", "harmed")  # in 80 columns


def write(
    runs: Sequence[RecordedRun],
    out: Path,
    reference: str | None = None,
    missing: Mapping[str, str] = MappingProxyType({}),
) -> Comparison:
    """Leaves table.md, table.tex and table.csv in a directory; returns what is in them.

    `missing` says of runs that should be in the tables why they are not; those for people say it.
    """
    comparison = compare(runs, reference)
    write_text(out / "table.md", markdown(comparison, missing))
    write_text(out / "table.tex", latex(comparison, missing))
    write_text(out / "table.csv", csv(comparison))
    return comparison


def terminal(comparison: Comparison) -> Stack:
    """Returns the tables for a terminal of 80 columns; the files have the other columns."""
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
    """Returns all columns in Markdown, the notes under them."""
    return render("comparison.md", **_values(comparison, missing))


def latex(comparison: Comparison, missing: Mapping[str, str] = MappingProxyType({})) -> str:
    """Returns all columns in LaTeX with booktabs, the notes under them."""
    return render("comparison.tex", **_values(comparison, missing))


def _values(comparison: Comparison, missing: Mapping[str, str]) -> dict[str, Any]:
    methods = dict.fromkeys(row.label for block in comparison.blocks for row in block.rows)
    names = ", ".join(block.name for block in comparison.blocks)
    return {
        "title": f"{len(methods)} methods on {names}, held against {comparison.reference}.",
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
    """Returns every number in full, one row per method and data set, with all its settings."""
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
        "ece_per_batch" if averages.per_batch else "ece": averages.means["ece"],
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
