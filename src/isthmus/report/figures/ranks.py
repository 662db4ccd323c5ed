"""Ranks: average ranks of methods over data sets."""

from collections.abc import Sequence

import plotly.graph_objects as go

from isthmus.report.figures.theme import ALONE, SERIES, build_layout, make_inert, round_numbers


def plot(ranks: Sequence[tuple[str, float]], critical: float) -> go.Figure:
    """Draws average ranks, best first, each with a bar as wide as the critical difference."""
    drawn = go.Figure(layout=build_layout())
    drawn.add_scatter(
        x=round_numbers([rank for _, rank in ranks]),
        y=[make_inert(name) for name, _ in ranks],
        mode="markers",
        marker={"color": SERIES[0][0], "size": 10},
        error_x={"array": round_numbers([critical / 2] * len(ranks)), "color": ALONE[0]},
        hovertemplate="<b>%{y}</b>: average rank <b>%{x:.3~g}</b><extra></extra>",
    )
    drawn.update_yaxes(autorange="reversed", showgrid=False)
    drawn.update_xaxes(title_text="average rank, 1 is best")
    return drawn
