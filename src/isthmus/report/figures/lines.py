"""Lines of clients over places, as figures of paths and of branches draw them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from isthmus.report.figures import theme
from isthmus.report.figures.theme import View, round_numbers
from isthmus.run.record import PathCurve

LINES_AT_MOST = 60  # clients drawn one by one; more become a band


def draw_clients(along: PathCurve, view: View, colour: str) -> dict[str, Any]:
    """Gives the trace of every client's line or, of many clients, of a band."""
    few = len(along.client) <= LINES_AT_MOST
    return (draw_lines if few else draw_band)(along, view, colour)


def align(paths: Sequence[go.Figure]) -> None:
    """Gives figures of paths the same vertical range in each view, so that they compare."""
    for place, view in enumerate(paths[0].layout.meta["views"]):
        values = [value for figure in paths for value in _list_heights(figure, view["name"])]
        if not values:
            continue
        margin = 0.05 * (max(values) - min(values)) or 1.0
        limits = round_numbers([min(values) - margin, max(values) + margin])
        for figure in paths:
            figure.layout.meta["views"][place]["range"] = limits
            if place == 0:
                figure.layout.yaxis.range = limits


def _list_heights(figure: go.Figure, view: str) -> list[float]:
    seen = [trace.y for trace in figure.data if trace.meta and trace.meta["view"] == view]
    seen += figure.layout.meta.get("tables", {}).get(view, [])
    return [value for column in seen for value in column if value is not None]


def draw_mean(along: PathCurve, view: View, colour: str, where: str = "") -> dict[str, Any]:
    """Gives the trace of the mean over clients."""
    return {
        "x": round_numbers(along.lam),
        "y": round_numbers(view.factor * np.mean(along.values, axis=0)),
        "mode": "lines+markers",
        "line": {"color": colour, "width": 3.5},
        "marker": {"size": 7},
        "name": "mean over clients",
        "hovertemplate": f"{where}<b>%{{y:.4~g}}{view.unit}</b><br>mean over "
        f"{len(along.client)} clients, own test parts<extra></extra>",
    }


def draw_lines(along: PathCurve, view: View, colour: str) -> dict[str, Any]:
    """Gives the trace of every client's line."""
    # One trace for all clients: a gap after each keeps their lines apart.
    gap = np.full((len(along.client), 1), np.nan)
    places = np.hstack([np.tile(along.lam, (len(along.client), 1)), gap])
    values = np.hstack([view.factor * along.values, gap])
    return {
        "x": round_numbers(places.ravel()),
        "y": round_numbers(values.ravel(), digits=4),
        "customdata": np.repeat(along.client, len(along.lam) + 1).tolist(),
        "mode": "lines",
        "line": {"color": colour, "width": 1},
        "opacity": 0.28,
        "name": "each client",
        "hovertemplate": "client %{customdata}, λ = %{x:.2~g}: %{y:.4~g}" + view.unit + "<br>"
        "its own test part<extra></extra>",
    }


def draw_band(along: PathCurve, view: View, colour: str) -> dict[str, Any]:
    """Gives the trace of a band that holds four fifths of the clients at each place."""
    known = along.values[~np.isnan(along.values).any(axis=1)]
    low, high = (
        view.factor * np.quantile(known, [0.1, 0.9], axis=0)
        if len(known)
        else np.full((2, len(along.lam)), np.nan)
    )
    return theme.draw_band(along.lam, low, high, colour) | {
        "name": "from the 10th to the 90th hundredth of the clients"
    }
