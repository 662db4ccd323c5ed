"""Reliability: how sure the models are, and how often they are right."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from isthmus.errors import IsthmusError
from isthmus.report.figures import paper
from isthmus.report.figures.theme import (
    ZERO,
    build_layout,
    choose_styles,
    make_inert,
    round_numbers,
)
from isthmus.report.groups import Group
from isthmus.report.section import FigureInput, PrintFigure, Report, SectionContent
from isthmus.report.tables.formats import DAGGER, format_metric
from isthmus.report.tables.summary import IN_TABLES
from isthmus.run.columns import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def pool_bins(group: Group) -> tuple[Floats, Floats, Floats] | None:
    """Returns (n, top-1, confidence) of each bin, the test examples of all seeds together."""
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
    """Shows how sure the personal models are and how often right, all clients together."""
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
    return SectionContent(values, {"figure-reliability": plot(report.groups)})


def plot(groups: Sequence[Group]) -> go.Figure:
    """Draws top-1 against confidence, all clients' and seeds' test examples together."""
    figure = go.Figure(layout=build_layout())
    figure.add_scatter(
        x=[0, 100],
        y=[0, 100],
        mode="lines",
        line={"color": ZERO[0], "dash": "dot", "width": 1.5},
        hoverinfo="skip",
    )
    drawn = zip(groups, choose_styles([group.runs[0] for group in groups]), strict=True)
    for place, (group, style) in enumerate(drawn):
        bins = pool_bins(group)
        if bins is None:
            continue
        n, right, sure = (column[bins[0] > 0] for column in bins)
        name = make_inert(group.label) + (DAGGER if group.runs[0].chosen_on_test else "")
        figure.add_scatter(
            x=round_numbers(100 * sure),
            y=round_numbers(100 * right),
            customdata=n.astype(int).tolist(),
            meta={"run": place},
            mode="lines+markers",
            name=name,
            line=style.line | {"width": 2},
            marker={"symbol": style.symbol, "size": 8},
            hovertemplate=f"<b>{name}</b><br>%{{customdata}} examples of mean confidence "
            "%{x:.3~g} %<br>of which right: <b>%{y:.3~g} %</b><extra></extra>",
        )
    figure.update_xaxes(title_text="mean confidence in the bin, %", range=[0, 102])
    figure.update_yaxes(title_text="right, %", range=[0, 102])
    return figure


def draw(figure: "Figure", given: FigureInput) -> str:
    """Draws top-1 against confidence for print; returns the caption."""
    axes = figure.subplots()
    axes.plot([0, 100], [0, 100], color="0.4", linewidth=0.8, linestyle=(0, (1, 2)))
    of_groups = [pool_bins(group) for group in given.groups]
    for bins, style in zip(of_groups, given.styles, strict=True):
        if bins is not None:
            n, right, sure = bins
            paper.draw_curve(axes, 100 * sure[n > 0], 100 * right[n > 0], style)
    if not any(bins is not None for bins in of_groups):
        raise IsthmusError("these runs have no reliability.csv; expected one; run them again")
    axes.set(
        xlabel="mean confidence in the bin, %", ylabel="right, %", xlim=(0, 101), ylim=(0, 101)
    )
    axes.set_aspect("equal")
    paper.draw_legend(figure, given, [bins is not None for bins in of_groups])
    many = ", of all seeds" if given.several_seeds else ""
    return (
        "Share of right answers against mean confidence in fifteen bins; personal models, pooled "
        f"over all clients' test examples{many}. Dotted: confidence that is what it claims to be."
    )


PRINT_FIGURE = PrintFigure("reliability", "how sure, how right", draw, 1.1)
