"""Costs: the bytes that were sent, and the seconds that were spent."""

from collections.abc import Callable, Sequence

import numpy as np

from isthmus.report.contrasts import choose_reference
from isthmus.report.figures.figure import Axis, Bars, Figure
from isthmus.report.figures.theme import choose_colours
from isthmus.report.groups import Group
from isthmus.report.section import Report, SectionContent
from isthmus.report.tables import reach
from isthmus.report.tables.formats import format_bytes
from isthmus.report.tables.summary import describe_seeds

TRAFFIC = (("down_bytes", "down to clients"), ("up_bytes", "up to the server"))
TIME = (("train_seconds", "training"), ("evaluate_seconds", "evaluation"))


def show(report: Report) -> SectionContent:
    """Show bytes and seconds, and what it took to become as good as the baseline."""
    groups = report.groups
    baseline = choose_reference(report.runs, report.reference)
    reached = {
        model: reach.compute(report.runs, baseline, model)
        for model in ("personal", "shared")
        if baseline is not None and len(groups) > 1
    }
    values = {
        "height": 90 + 34 * len(groups),
        "seeds": describe_seeds(groups),
        "lines": [
            [
                row.label,
                str(row.round),
                format_bytes(row.down_bytes),
                format_bytes(row.up_bytes),
                format_bytes((row.down_bytes + row.up_bytes) / max(row.round, 1)),
                f"{group.total('train_seconds'):,.1f}",
                f"{group.total('evaluate_seconds'):,.1f}",
            ]
            for group, row in zip(groups, report.averages, strict=True)
        ],
        "reference": baseline,
        "reached": [
            {
                "model": model,
                "rows": rows,
                "lines": [row.cells() for row in rows],
                "caption": reach.describe(baseline or "", model),
            }
            for model, rows in reached.items()
            if rows
        ],
        "head": reach.HEAD,
    }
    most = max(group.total("down_bytes") + group.total("up_bytes") for group in groups)
    unit, size = ("GB", 1e9) if most >= 1e9 else ("MB", 1e6)
    figures = {
        "figure-traffic": _build(groups, TRAFFIC, f"traffic, {unit}", size, format_bytes),
        "figure-time": _build(groups, TIME, "time, seconds", 1, "{:,.1f} s".format),
    }
    return SectionContent(values, figures)


def _build(
    groups: Sequence[Group],
    parts: Sequence[tuple[str, str]],
    title: str,
    size: float,
    format_amount: Callable[[float], str],
) -> Figure:
    """Return what groups spent of two kinds, means over seeds; the second is hatched."""
    labels = [group.label for group in groups]
    bars: list[Bars] = []
    for column, name in parts:
        spent = [group.total(column) for group in groups]
        bars.append(
            Bars(
                y=labels,
                x=np.array(spent) / size,
                across=True,
                name=name,
                data=[format_amount(amount) for amount in spent],
                colour=choose_colours([group.runs[0] for group in groups]),
                hatched=bool(bars),
                hover=f"<b>%{{y}}</b>: <b>%{{customdata}}</b> {name}",
            )
        )
    x, y = Axis(title, from_zero=True), Axis(names=labels, reversed=True, grid=False)
    return Figure(bars, x, y, stacked=True, gap=0.35)
