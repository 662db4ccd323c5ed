"""The section about a simplex: where the clients are in it, and how good its models are."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from isthmus.report import markup, tables
from isthmus.report.columns import Floats, Integers
from isthmus.report.figures import (
    ACCURACY,
    GRID,
    LOSS,
    SERIES,
    SURFACE,
    ZERO,
    View,
    classes,
    colours,
    layout,
    numbers,
)
from isthmus.report.markup import escaped, folded, plot, swatch, views
from isthmus.report.records import Run

OUTLINED_AT_MOST = 60  # clients whose regions are drawn
DIRECTIONS = np.linspace(0, 2 * np.pi, 48, endpoint=False)  # in which a region is measured


class Places(NamedTuple):
    """Where the models of a kind lie at the last evaluated round, and whose they are."""

    client: Integers  # [M]
    at: Floats  # [M, V]
    values: Floats  # [M]


def section(runs: Sequence[Run], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]) -> str:
    """Shows the simplices of the runs that have one."""
    panels, names, grids = "", [], ""
    tones = colours(runs)
    for i, run in enumerate(runs):
        if not (run.clients.model == "simplex").any():
            continue
        name = f"figure-simplex-{i}"
        drawn[name] = figure(run)
        names.append(name)
        panels += (
            f"<div class='card'><h3>{swatch(tones[i])}{escaped(rows[i].label)}</h3>"
            f"<p>{_said(run)}</p>"
            f"{plot(name, 460, 'Clients and models in the simplex of last layers')}</div>"
        )
        grids += markup.table(
            ["point", "accuracy, %", "loss, nats"],
            _means(run),
            f"{rows[i].label}: mean over all clients, each on its own test part",
        )
    if not names:
        return ""
    caption = (
        "The corners are the vertices of the simplex; with more than three, a point is drawn at "
        "the mean of the corners with its coordinates as weights, so that different points may "
        "coincide. Discs: clients, each at its point, with the class it has most examples of. "
        "Outlines: what a client trains. Squares: models of the simplex, coloured by their mean "
        "over all clients, each on its own test part, at the last evaluated round; of a method "
        "with private simplices, each client's own."
    )
    return (
        "<p>All models of the simplex share everything but their last layer, and every one of them "
        "is trained to work. Clients whose training moves the vertices alike are placed near each "
        "other.</p>"
        f"<div class='controls'>{views(drawn[names[0]], names, 'simplex-metric')}</div>"
        f"<div class='panels'>{panels}</div><p class='caption'>{caption}</p>"
        + folded("The models of the simplex as a table", grids)
    )


def figure(run: Run) -> go.Figure:
    """Draws a simplex on a regular polygon: its models, its clients, and what they train."""
    shown = (ACCURACY, LOSS)
    result = go.Figure(layout=layout(shown))
    clients = places(run, "personal", "top1")
    corners = _corners(clients.at.shape[1])
    outline = np.vstack([corners, corners[:1]])
    result.add_scatter(**_line(outline), line={"color": ZERO[0], "width": 1.5}, hoverinfo="skip")
    for view in shown:
        result.add_scatter(**_models(run, view, corners), visible=view is shown[0])
    rho = float(run.settings.get("method.rho", 0.0))
    placed = clients.at[_placed(clients)]
    if 0 < len(placed) <= OUTLINED_AT_MOST:
        gap = np.full((1, 2), np.nan)
        around = np.vstack([np.vstack([_outline(at, rho, corners), gap]) for at in placed])
        thin = {"color": ZERO[0], "width": 1}
        result.add_scatter(**_line(around), line=thin, opacity=0.7, hoverinfo="skip")
    result.add_scatter(**_clients(run, clients, corners))
    hidden = {"visible": False, "range": [-1.15, 1.15]}
    result.update_layout(xaxis=hidden, yaxis=hidden | {"scaleanchor": "x"})
    return result


def places(run: Run, model: str, metric: str) -> Places:
    """Finds the places of a kind of model, and a metric there, on the clients' own test parts."""
    rows = (run.clients.model == model) & (run.clients.split == "test") & (run.clients.n > 0)
    rows &= (run.clients.round == run.last) & (run.clients.client >= 0)
    at = np.array([[float(number) for number in text.split()] for text in run.clients.at[rows]])
    return Places(run.clients.client[rows], at, getattr(run.clients, metric)[rows])


def _said(run: Run) -> str:
    clients = places(run, "personal", "top1")
    count, total = int(_placed(clients).sum()), len(clients.client)
    accuracy = 100 * float(np.mean(clients.values))
    if not count:
        return f"no client is placed yet; at the centre <strong>{accuracy:.2f} %</strong>"
    return (
        f"personal models, each at its client's point: <strong>{accuracy:.2f} %</strong>; "
        f"{count} of {total} clients are placed"
    )


def _placed(clients: Places) -> np.ndarray[Any, np.dtype[np.bool_]]:
    centre = 1 / clients.at.shape[1]
    away: np.ndarray[Any, np.dtype[np.bool_]] = np.abs(clients.at - centre).max(1) > 1e-5
    return away


def _grid(run: Run, metric: str) -> tuple[Floats, Floats]:
    found = places(run, "simplex", metric)
    grid, point = np.unique(found.at, axis=0, return_inverse=True)
    means = np.bincount(point.ravel(), weights=found.values) / np.bincount(point.ravel())
    return grid, means


def _means(run: Run) -> list[list[str]]:
    grid, accuracy = _grid(run, "top1")
    _, loss = _grid(run, "loss")
    return [
        [" ".join(f"{number:.2g}" for number in at), f"{100 * top:.2f}", f"{nats:.3f}"]
        for at, top, nats in zip(grid, accuracy, loss, strict=True)
    ]


def _corners(vertices: int) -> Floats:
    angles = np.pi / 2 + 2 * np.pi * np.arange(vertices) / vertices
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)  # [V, 2]


def _outline(alpha: Floats, rho: float, corners: Floats) -> Floats:
    """Finds how far a region goes in all directions: mass rho / 2 goes to the best corner."""
    reached = []
    for angle in DIRECTIONS:
        order = np.argsort(corners @ [np.cos(angle), np.sin(angle)])
        left = np.minimum(np.cumsum(alpha[order[:-1]]), rho / 2)
        moved = alpha.copy()
        moved[order[:-1]] -= np.diff(left, prepend=0)
        moved[order[-1]] += left[-1] if len(left) else 0
        reached.append(moved @ corners)
    return np.array([*reached, reached[0]])


def _line(places: Floats) -> dict[str, Any]:
    return {"x": numbers(places[:, 0]), "y": numbers(places[:, 1]), "mode": "lines"}


def _models(run: Run, view: View, corners: Floats) -> dict[str, Any]:
    grid, means = _grid(run, view.metric)
    drawn = grid @ corners
    return {
        "x": numbers(drawn[:, 0]),
        "y": numbers(drawn[:, 1]),
        "mode": "markers",
        "marker": {
            "symbol": "square",
            "size": 22,
            "color": numbers(view.factor * means),
            "colorscale": [[0, GRID[0]], [1, SERIES[0][0]]],
            "reversescale": view is LOSS,
            "line": {"width": 1, "color": ZERO[0]},
            "colorbar": {
                "title": {"text": view.axis, "side": "right", "font": {"size": 12}},
                "thickness": 10,
                "outlinewidth": 0,
                "len": 0.9,
            },
        },
        "customdata": [" ".join(f"{number:.2g}" for number in at) for at in grid],
        "hovertemplate": "model at (%{customdata}): <b>%{marker.color:.4~g}" + view.unit + "</b>"
        "<br>mean over all clients, own test parts<extra></extra>",
        "meta": {"view": view.metric},
    }


def _clients(run: Run, clients: Places, corners: Floats) -> dict[str, Any]:
    drawn = clients.at @ corners
    place = np.searchsorted(run.federation.client, clients.client)
    main = run.federation.labels[place].argmax(1)
    return {
        "x": numbers(drawn[:, 0]),
        "y": numbers(drawn[:, 1]),
        "mode": "markers+text",
        "text": [str(c) for c in main.tolist()],
        "textfont": {"color": SURFACE[0], "size": 10},
        "marker": {
            "size": 15,
            "color": [SERIES[c % len(SERIES)][0] for c in main.tolist()],
            "line": {"width": 1, "color": SURFACE[0]},
        },
        "customdata": [
            [
                int(client),
                " ".join(f"{number:.2g}" for number in at),
                f"{100 * value:.2f}",
                classes(run.federation, int(i), 3),
            ]
            for client, at, value, i in zip(*clients, place, strict=True)
        ],
        "hovertemplate": "<b>client %{customdata[0]}</b> at (%{customdata[1]}): "
        "<b>%{customdata[2]} %</b><br>its own test part; %{customdata[3]}<extra></extra>",
    }
