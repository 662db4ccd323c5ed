"""The comparison of methods over seeds and data sets, for terminals, papers and programs."""

import csv as delimited
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group as Stack
from rich.table import Table
from rich.text import Text

from isthmus.records.reader import Run
from isthmus.report.contrasts import Block, Comparison, Row, compare
from isthmus.report.groups import SEEDED
from isthmus.report.statistics import LEVEL, RESAMPLES
from isthmus.report.tables import summary as tables
from isthmus.report.tables.wording import COLUMNS, cells, notes, ranked

NARROW = ("personal", "worst", "difference", "w/t/l", "p", "harmed")  # in 80 columns
PREAMBLE = r"""% In an article such as this one:
% \documentclass{article}
% \usepackage{booktabs}
% \usepackage[margin=2cm]{geometry}
% \begin{document}
% \input{table}
% \end{document}
"""
SPELLED = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "†": r"$^{\dag}$",
        "‡": r"$^{\ddag}$",
        "≈": r"$^{\approx}$",
        "±": r"$\pm$",
        "·": r"$\cdot$",
        "−": "$-$",
        "–": "--",
        "<": "$<$",
        ">": "$>$",
        "\n": " ",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    }
)


def write(runs: Sequence[Run], out: Path, reference: str | None = None) -> Comparison:
    """Leaves table.md, table.tex and table.csv in a directory; returns what is in them."""
    comparison = compare(runs, reference)
    out.mkdir(parents=True, exist_ok=True)
    for name, written in (("md", markdown), ("tex", latex), ("csv", csv)):
        place = out / f"table.{name}"
        # A reader never finds half a table.
        draft = place.with_name(place.name + ".part")
        draft.write_text(written(comparison), encoding="utf-8")
        draft.replace(place)
    return comparison


def terminal(comparison: Comparison) -> Stack:
    """Returns the tables for a terminal of 80 columns; the files have the other columns."""
    parts: list[Table | Text] = []
    kept = [i for i, column in enumerate(COLUMNS) if column.short[0] in NARROW]
    for block in comparison.blocks:
        table = _table(block.name if len(comparison.blocks) > 1 else None)
        for i in kept:
            table.add_column("\n".join(COLUMNS[i].short), justify="right", no_wrap=True)
        for row, line in zip(block.rows, cells(block), strict=True):
            bold = "bold" if row.best else ""
            printed = [
                Text(line[i].replace(" [", "\n["), style=bold if i == 0 else "") for i in kept
            ]
            table.add_row(Text(row.label), *printed)
        parts.append(table)
    if comparison.ranks is not None:
        table = _table(None)
        table.add_column("average\nrank", justify="right")
        for label, rank in ranked(comparison):
            table.add_row(Text(label), f"{rank:.2f}")
        parts.append(table)
    return Stack(*parts, Text(), *(Text(text, style="dim") for text in notes(comparison)))


def _table(title: str | None) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("method", overflow="fold", min_width=11, max_width=22)
    return table


def markdown(comparison: Comparison) -> str:
    """Returns all columns in Markdown, the notes under them."""
    lines = []
    for block in comparison.blocks:
        if len(comparison.blocks) > 1:
            lines += [f"### {tables.inert(block.name)}", ""]
        lines += [
            "| method | " + " | ".join(column.title for column in COLUMNS) + " |",
            "|:---|" + "---:|" * len(COLUMNS),
        ]
        for row, (first, *rest) in zip(block.rows, cells(block), strict=True):
            shown = f"**{first}**" if row.best else first
            lines.append("| " + " | ".join([tables.inert(row.label), shown, *rest]) + " |")
        lines.append("")
    if comparison.ranks is not None:
        lines += ["| method | average rank |", "|:---|---:|"]
        lines += [f"| {tables.inert(label)} | {rank:.2f} |" for label, rank in ranked(comparison)]
        lines.append("")
    return "\n".join([*lines, "\n\n".join(map(tables.inert, notes(comparison)))]) + "\n"


def latex(comparison: Comparison) -> str:
    """Returns all columns in LaTeX with booktabs, the notes under them."""
    width = len(COLUMNS) + 1
    lines = [
        PREAMBLE + r"\begin{table}",
        r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{spelled(_title(comparison))}}}",
        r"\label{tab:comparison}",
        rf"\begin{{tabular}}{{l*{{{len(COLUMNS)}}}{{r}}}}",
        r"\toprule",
        _line(["", *(spelled(column.short[0]) for column in COLUMNS)]),
        _line(["method", *(spelled(column.short[1]) for column in COLUMNS)]),
    ]
    for block in comparison.blocks:
        lines.append(r"\midrule")
        if len(comparison.blocks) > 1:
            lines.append(
                _line([rf"\multicolumn{{{width}}}{{l}}{{\emph{{{spelled(block.name)}}}}}"])
            )
        for row, (first, *rest) in zip(block.rows, cells(block), strict=True):
            shown = _small(first, bold=row.best)
            lines.append(_line([spelled(row.label), shown, *map(_small, rest)]))
    lines += [r"\bottomrule", r"\end{tabular}"]
    if comparison.ranks is not None:
        lines += [r"\par\medskip", r"\begin{tabular}{lr}", r"\toprule"]
        lines += [_line(["method", "average rank"]), r"\midrule"]
        lines += [_line([spelled(label), f"{rank:.2f}"]) for label, rank in ranked(comparison)]
        lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [r"\par\medskip", r"\begin{minipage}{\linewidth}\scriptsize"]
    lines += [spelled(text) + r"\par" for text in notes(comparison)]
    return "\n".join([*lines, r"\end{minipage}", r"\end{table}"]) + "\n"


def spelled(text: str) -> str:
    r"""Spells text so that LaTeX prints it.

    >>> print(spelled("lr_decay=50 %, 3†"))
    lr\_decay=50 \%, 3$^{\dag}$
    """
    return text.translate(SPELLED)


def _title(comparison: Comparison) -> str:
    methods = dict.fromkeys(row.label for block in comparison.blocks for row in block.rows)
    names = ", ".join(block.name for block in comparison.blocks)
    return f"{len(methods)} methods on {names}, held against {comparison.reference}."


def _line(parts: Sequence[str]) -> str:
    return " & ".join(parts) + r" \\"


def _small(cell: str, bold: bool = False) -> str:
    value, bracket, bounds = map(spelled, cell.partition(" ["))
    shown = rf"\textbf{{{value}}}" if bold else value
    return shown + (rf" {{\scriptsize[{bounds}}}" if bracket else "")


def csv(comparison: Comparison) -> str:
    """Returns every number in full, one row per method and data set, with all its settings."""
    lines = [_record(comparison, block, row) for block in comparison.blocks for row in block.rows]
    header = dict.fromkeys(name for line in lines for name in line)
    text = io.StringIO()
    writer = delimited.DictWriter(text, list(header), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _record(comparison: Comparison, block: Block, row: Row) -> dict[str, Any]:
    first, difference, ranks = row.runs[0], row.difference, comparison.ranks
    tally = difference.tally if difference else (None,) * 3
    settings = row.group.runs[0].settings
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
        "selection": first.selection,
        "chosen_on_test": first.chosen_on_test,
        "level": LEVEL,
        "resamples": RESAMPLES,
        "top1": row.top1.mean,
        "top1_low": row.top1.low,
        "top1_high": row.top1.high,
        "best": row.best,
        "tied_with_best": row.tied,
        "top1_worst_5_percent": row.over_seeds(lambda run: run.worst),
        "ece_per_batch" if first.per_batch else "ece": row.over_seeds(lambda run: run.ece),
        "shared_top1": row.over_seeds(lambda run: run.shared),
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
        "down_bytes": row.over_seeds(lambda run: run.down_bytes),
        "up_bytes": row.over_seeds(lambda run: run.up_bytes),
        **{
            f"settings.{key}": value if isinstance(value, str) else json.dumps(value, default=str)
            for key, value in settings.items()
            if key not in SEEDED
        },
    }
