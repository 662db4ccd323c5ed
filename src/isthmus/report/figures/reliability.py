"""Calibration: how confident the models are, and how often they are right."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isthmus.errors import IsthmusError
from isthmus.report.figures.figure import Axis, Figure, Lines, Mark
from isthmus.report.figures.theme import DOTTED, ZERO, Style, choose_styles, make_inert
from isthmus.report.groups import Group
from isthmus.report.section import Drawing, FigureInput, PrintFigure, Report, SectionContent
from isthmus.report.tables.formats import DAGGER, format_metric
from isthmus.report.tables.summary import IN_TABLES
from isthmus.run.columns import Floats


def pool_bins(group: Group) -> tuple[Floats, Floats, Floats] | None:
    """Return (n, top-1, confidence) of each bin, the test examples of all seeds together."""
    of_runs = [known for run in group.runs if (known := run.bins()) is not None]
    if not of_runs:
        return None
    n = np.sum([each[0] for each in of_runs], axis=0)
    right, sure = (
        np.sum([np.nan_to_num(each[0] * each[i]) for each in of_runs], axis=0) / np.maximum(n, 1)
        for i in (1, 2)
    )
    return n, right, sure


def show(report: Report) -> SectionContent | None:
    """Show how confident the personal models are and how often right, all clients together."""
    rows = list(zip(report.groups, report.averages, strict=True))
    shown = [row for group, row in rows if pool_bins(group) is not None]
    if not shown:
        return None
    values = {
        "shown": shown,
        "head": ["method", *(metric.heading for metric in IN_TABLES)],
        "lines": [
            [
                row.label,
                *(
                    row.mark(format_metric(metric.name, group.pool(metric.name)))
                    for metric in IN_TABLES
                ),
            ]
            for group, row in rows
        ],
    }
    return SectionContent(values, {"figure-reliability": build(report.groups)})


def build(groups: Sequence[Group]) -> Figure:
    """Return top-1 against confidence, all clients' and seeds' test examples together."""
    styles = choose_styles([group.runs[0] for group in groups])
    ends = np.array([0, 100])
    marks: list[Mark] = [Lines(x=ends, y=ends, style=Style(ZERO[0], DOTTED), width=1.5)]
    for place, (group, style) in enumerate(zip(groups, styles, strict=True)):
        bins = pool_bins(group)
        if bins is None:
            continue
        n, right, sure = (column[bins[0] > 0] for column in bins)
        mark = DAGGER if group.runs[0].chosen_on_test else ""
        marks.append(
            Lines(
                x=100 * sure,
                y=100 * right,
                data=n.astype(int),
                name=group.label + mark,
                style=style,
                hover=f"<b>{make_inert(group.label)}{mark}</b><br>%{{customdata}} examples of mean "
                "confidence %{x:.3~g} %<br>of which right: <b>%{y:.3~g} %</b>",
                shown={"run": place},
            )
        )
    limits = (0, 102)
    x, y = Axis("mean confidence in the bin, %", limits), Axis("right, %", limits)
    return Figure(marks, x, y)


def draw(given: FigureInput) -> Drawing:
    """Return top-1 against confidence, for print."""
    known = [pool_bins(group) is not None for group in given.groups]
    if not any(known):
        raise IsthmusError("none of these runs has a reliability.csv; run them again to record it")
    figure = replace(build(given.groups), legend=given.list_legend(known))
    many = ", of all seeds" if len(given.groups) < len(given.runs) else ""
    caption = (
        "Share of right answers against mean confidence in fifteen bins; personal models, pooled "
        f"over all clients' test examples{many}. Dotted: perfect calibration."
    )
    return Drawing([figure], caption)


PRINT_FIGURE = PrintFigure("reliability", "accuracy against confidence", draw, 1.1)
