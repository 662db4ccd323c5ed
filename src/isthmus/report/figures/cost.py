"""Costs: the bytes that were sent, and the seconds that were spent."""

from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from isthmus.report.contrasts import choose_reference
from isthmus.report.figures.theme import (
    build_layout,
    choose_colours,
    hatch,
    make_inert,
    round_numbers,
)
from isthmus.report.groups import Group
from isthmus.report.section import Report, SectionContent
from isthmus.report.tables import reach
from isthmus.report.tables.formats import format_bytes
from isthmus.report.tables.summary import describe_seeds


def show(report: Report) -> SectionContent:
    """Shows bytes and seconds, and what it took to become as good as the reference."""
    groups = report.groups
    reference = choose_reference(report.runs, report.reference)
    reached = {
        model: reach.compute(report.runs, reference, model)
        for model in ("personal", "shared")
        if reference is not None and len(groups) > 1
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
        "reference": reference,
        "reached": [
            {
                "model": model,
                "rows": rows,
                "lines": [row.cells() for row in rows],
                "caption": reach.describe(reference or "", model),
            }
            for model, rows in reached.items()
            if rows
        ],
        "head": reach.HEAD,
    }
    return SectionContent(
        values, {"figure-traffic": plot_traffic(groups), "figure-time": plot_time(groups)}
    )


def plot_traffic(groups: Sequence[Group]) -> go.Figure:
    """Draws the bytes that went down to clients and up to the server, means over seeds."""
    parts = (("down_bytes", "down to clients", ""), ("up_bytes", "up to the server", "/"))
    most = max(group.total("down_bytes") + group.total("up_bytes") for group in groups)
    unit, size = ("GB", 1e9) if most >= 1e9 else ("MB", 1e6)
    figure = _plot_costs(groups, parts, size, format_bytes)
    figure.update_xaxes(title_text=f"traffic, {unit}")
    return figure


def plot_time(groups: Sequence[Group]) -> go.Figure:
    """Draws the seconds spent on training and on evaluation, means over seeds."""
    parts = (("train_seconds", "training", ""), ("evaluate_seconds", "evaluation", "/"))
    figure = _plot_costs(groups, parts, 1, lambda spent: f"{spent:,.1f} s")
    figure.update_xaxes(title_text="time, seconds")
    return figure


def _plot_costs(
    groups: Sequence[Group],
    parts: Sequence[tuple[str, str, str]],
    size: float,
    format_amount: Callable[[float], str],
) -> go.Figure:
    figure = go.Figure(layout=build_layout())
    names = [make_inert(group.label) for group in groups]
    tones = choose_colours([group.runs[0] for group in groups])
    for column, name, pattern in parts:
        spent = [group.total(column) for group in groups]
        figure.add_bar(
            y=names,
            x=round_numbers([amount / size for amount in spent]),
            orientation="h",
            name=name,
            customdata=[format_amount(amount) for amount in spent],
            marker=hatch(tones, pattern),
            hovertemplate=f"<b>%{{y}}</b>: <b>%{{customdata}}</b> {name}<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.35)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(rangemode="tozero")
    return figure
