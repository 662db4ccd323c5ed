"""The section about a simplex: where the clients are in it, and how good its models are."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import plotly.graph_objects as go

from isthmus.records.columns import Floats
from isthmus.records.reader import Run
from isthmus.report import controls, markup
from isthmus.report.figures.geometry import (
    EVERYONE,
    SERVER,
    Places,
    Projection,
    Surface,
    outline,
    places,
    projected,
    surface,
)
from isthmus.report.figures.theme import (
    ACCURACY,
    GRID,
    INK,
    LOSS,
    SERIES,
    SURFACE,
    SYMBOLS,
    ZERO,
    View,
    classes,
    colours,
    layout,
    numbers,
)
from isthmus.report.markup import escaped, folded, plot, swatch, views
from isthmus.report.tables import summary as tables

OUTLINED_AT_MOST = 60  # clients whose regions are drawn
VIEWS = (ACCURACY, LOSS)


def section(runs: Sequence[Run], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]) -> str:
    """Shows the simplices of the runs that have one."""
    parts, names, grids = [], [], ""
    tones = colours(runs)
    for i, run in enumerate(runs):
        found = surface(run) if (run.clients.model == "simplex").any() else None
        if found is None:
            continue
        name = f"figure-simplex-{i}"
        drawn[name] = figure(run)
        names.append(name)
        said = said_of(found)
        chooser = controls.choice(
            name.replace("figure", "choice"), [name], "Models measured on", options(found), said[0]
        )
        parts.append(
            (
                rows[i].label,
                f"<div class='card'><h3>{swatch(tones[i])}{escaped(rows[i].label)}</h3>"
                f"<p>{_said(run)}</p><div class='controls'>{chooser}</div>"
                f"{plot(name, 460, 'Clients and models in the simplex of last layers')}"
                f"{_finer(run, found)}</div>",
            )
        )
        grids += markup.table(
            ["point", "accuracy, %", "loss, nats"], _lines(found), f"{rows[i].label}: {said[0]}"
        )
    if not names:
        return ""
    caption = (
        "Hexagons: models of the simplex that were measured, coloured by how good they are on "
        "the data chosen above; of a method with private simplices, on a client's data that "
        "client's own. Marks with a number: clients, each at its point, with the class it has most "
        "examples of, which also gives its colour and shape. Outlines: the region that a client "
        "trains, all points within ρ of its own, in L1. A ring: the client whose data are chosen."
    )
    return (
        "<p>All models of the simplex share everything but their last layer, and every one of them "
        "is trained to work. Clients whose training moves the vertices alike are placed near each "
        "other.</p>"
        f"<div class='controls'>{views(drawn[names[0]], names, 'simplex-metric')}</div>"
        f"{controls.panels('simplex-run', 'Run', parts)}<p class='caption'>{caption}</p>"
        + folded("The models of the simplex as a table", grids)
    )


def figure(run: Run) -> go.Figure:
    """Draws a simplex: its models, its clients, what they train; a list chooses the data."""
    found = surface(run)
    assert found is not None  # there is something to draw
    clients = places(run, "personal", "top1")
    drawing = projected(clients.at)
    result = go.Figure(layout=layout(VIEWS))
    edges = combinations(drawing.corners, 2)
    result.add_scatter(
        **_line(
            _joined([np.stack(edge) for edge in edges])
            if len(drawing.corners) > 1
            else drawing.corners
        ),
        line={"color": ZERO[0], "width": 1.2},
        hoverinfo="skip",
    )
    for view in VIEWS:
        result.add_scatter(**_models(found, view, drawing), visible=view is VIEWS[0])
    rho = float(run.settings.get("method.rho", 0.0))
    placed = clients.at[clients.placed]
    if 0 < len(placed) <= OUTLINED_AT_MOST:
        around = _joined([outline(at, rho, drawing.corners) for at in placed])
        result.add_scatter(
            **_line(around), line={"color": INK[0], "width": 1}, opacity=0.6, hoverinfo="skip"
        )
    result.add_scatter(**_clients(run, clients, drawing))
    result.add_scatter(
        x=[],
        y=[],
        mode="markers",
        marker={"size": 26, "color": "rgba(0,0,0,0)", "line": {"width": 3, "color": INK[0]}},
        hoverinfo="skip",
        meta={"from": {"x": "ring x", "y": "ring y"}},
    )
    low, high = drawing.corners.min(0) - 0.12, drawing.corners.max(0) + 0.12
    hidden = {"visible": False, "constrain": "domain"}
    result.update_xaxes(range=[low[0], high[0]], **hidden)
    result.update_yaxes(range=[low[1], high[1]], scaleanchor="x", **hidden)
    controls.explored(result, choices(found, clients, drawing))
    return result


def choices(found: Surface, clients: Places, drawing: Projection) -> dict[str, list[Any]]:
    """Lists, for all data that models were measured on, what the figure shows."""
    rings = [drawing(clients.at[clients.client.astype(str) == name]) for name in found.on]
    return {
        **{
            view.metric: [numbers(view.factor * row, digits=4) for row in found.values[view.metric]]
            for view in VIEWS
        },
        "ring x": [numbers(ring[:, 0]) for ring in rings],
        "ring y": [numbers(ring[:, 1]) for ring in rings],
        "said": said_of(found),
    }


def options(found: Surface) -> list[str]:
    """Names the data that models were measured on, to choose from."""
    names = {SERVER: "the server's test set", EVERYONE: "all clients, their mean"}
    return [names.get(name, f"client {name}") for name in found.on]


def said_of(found: Surface) -> list[str]:
    """Says what the data are: whose, which part, how many examples, after which round."""
    names = {
        SERVER: "the server's test set",
        EVERYONE: f"mean over clients, each on its own {found.split} part",
    }
    return [
        f"{names.get(name, f'the {found.split} part of client {name}')}: {n:,} examples, "
        f"{len(found.at)} models, after round {found.round}"
        for name, n in zip(found.on, found.n.tolist(), strict=True)
    ]


def _said(run: Run) -> str:
    clients = places(run, "personal", "top1")
    count, total = int(clients.placed.sum()), len(clients.client)
    accuracy = 100 * float(np.mean(clients.values))
    how = escaped(projected(clients.at).said)
    if not count:
        return f"no client is placed yet; at the centre <strong>{accuracy:.2f} %</strong>; {how}"
    return (
        f"personal models, each at its client's point: <strong>{accuracy:.2f} %</strong>; "
        f"{count} of {total} clients are placed; {how}"
    )


def _finer(run: Run, found: Surface) -> str:
    if found.measured:
        return ""
    return (
        "<p class='note'>A finer grid, and the server's test set: <code>isthmus landscape "
        f"{escaped(str(run.path))}</code>, then this report again.</p>"
    )


def _lines(found: Surface) -> list[list[str]]:
    return [
        [" ".join(f"{number:.2g}" for number in at), f"{100 * top:.2f}", f"{nats:.3f}"]
        for at, top, nats in zip(
            found.at, found.values["top1"][0], found.values["loss"][0], strict=True
        )
    ]


def _joined(pieces: Sequence[Floats]) -> Floats:
    # One trace for all: a gap after each keeps them apart.
    return np.vstack([np.vstack([piece, np.full((1, 2), np.nan)]) for piece in pieces])


def _line(places: Floats) -> dict[str, Any]:
    return {"x": numbers(places[:, 0]), "y": numbers(places[:, 1]), "mode": "lines"}


def _models(found: Surface, view: View, drawing: Projection) -> dict[str, Any]:
    places = drawing(found.at)
    return {
        "x": numbers(places[:, 0]),
        "y": numbers(places[:, 1]),
        "mode": "markers",
        "marker": {
            "symbol": "hexagon",
            "size": 25 if found.at.shape[1] <= 3 else 13,  # tiles, or points that may coincide
            "color": numbers(view.factor * found.values[view.metric][0], digits=4),
            "colorscale": [[0, GRID[0]], [1, SERIES[0][0]]],
            "reversescale": view is LOSS,
            "line": {"width": 0.5, "color": ZERO[0]},
            "colorbar": controls.bar_below(view),
        },
        "customdata": [" ".join(f"{number:.2g}" for number in at) for at in found.at],
        "hovertemplate": "model at (%{customdata}): <b>%{marker.color:.4~g}" + view.unit + "</b>"
        "<extra></extra>",
        "meta": {"view": view.metric, "from": {"marker.color": view.metric}},
    }


def _clients(run: Run, clients: Places, drawing: Projection) -> dict[str, Any]:
    drawn = drawing(clients.at)
    place = np.searchsorted(run.federation.client, clients.client)
    main = run.federation.labels[place].argmax(1).tolist()
    return {
        "x": numbers(drawn[:, 0]),
        "y": numbers(drawn[:, 1]),
        "mode": "markers+text",
        "text": [str(c) for c in main],
        "textfont": {"color": SURFACE[0], "size": 10},
        "marker": {
            "size": 16,
            "color": [SERIES[c % len(SERIES)][0] for c in main],
            "symbol": [SYMBOLS[c // len(SERIES) % 3] for c in main],
            "line": {"width": 1.5, "color": SURFACE[0]},
        },
        "name": "clients",
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
