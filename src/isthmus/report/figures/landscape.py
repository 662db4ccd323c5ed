"""The section about a plane of models: how good they are around the shared and the own ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from isthmus.records.reader import Run
from isthmus.report import controls, markup
from isthmus.report.controls import bar_below
from isthmus.report.figures.geometry import SERVER, Landscape, Marked, landscape
from isthmus.report.figures.theme import (
    ACCURACY,
    FONT,
    GRID,
    INK,
    LOSS,
    MUTED,
    SERIES,
    SURFACE,
    View,
    colours,
    layout,
    numbers,
    plain,
)
from isthmus.report.markup import escaped, folded, listed, plot, swatch, views
from isthmus.report.tables import summary as tables

VIEWS = (LOSS, ACCURACY)
SYMBOLS = {"shared": "star", "own": "circle", "personal": "diamond"}
SIGNS = {"shared": "★", "own": "●", "personal": "◆"}
MEASURABLE = ("path", "line", "simplex")  # models on the way, as the records call them
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def section(runs: Sequence[Run], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]) -> str:
    """Shows the planes that were measured, and says how to measure one where there is none."""
    parts, names, waiting, marks = [], [], [], ""
    for i, run in enumerate(runs):
        found = landscape(run)
        if found is None:
            if np.isin(run.clients.model, MEASURABLE).any():
                waiting.append(run)
            continue
        name = f"figure-landscape-{i}"
        drawn[name], drawn[f"{name}-surface"] = contour(found), relief(found)
        names += [name, f"{name}-surface"]
        parts.append((rows[i].label, _panel(name, run, runs, rows[i].label, found)))
        marks += markup.table(
            ["model", "distance", *(_whose(found, d) for d in range(len(found.on)))],
            _lines(found),
            f"{rows[i].label}: loss in nats of the marked models, on the data in the head; "
            "distance from the first",
        )
    if not waiting and not names:
        return ""
    how = (
        f"<p class='note'>No plane of models has been measured{' yet' if not names else ''} in "
        f"{escaped(listed([run.path.name for run in waiting]))}: "
        f"<code>isthmus landscape {escaped(str(waiting[0].path))}</code> does it, then this "
        "report again.</p>"
        if waiting
        else ""
    )
    if not names:
        return how
    caption = (
        "Every point is a model: the plane holds the three models named above, at the distances "
        "that there are between their parameters. Models on a regular grid were measured on the "
        "data chosen above; lines and colours between them are interpolated, and loss has a "
        "logarithmic scale. "
        "★ a shared model, ● a client's own end of the path, ◆ its personal model; dashed: the "
        "path between shared and own. On the surface, a line leads up from each to its name."
    )
    return (
        "<p>Two good models need not have anything good between them. The land around them shows "
        "whether a low valley joins them, or a ridge parts them.</p>"
        f"<div class='controls'>{views(drawn[names[0]], names, 'landscape-metric')}</div>"
        f"{controls.panels('landscape-run', 'Run', parts)}<p class='caption'>{caption}</p>{how}"
        + folded("The marked models as a table", marks)
    )


def contour(found: Landscape) -> go.Figure:
    """Draws a plane from above; a list chooses the data that its models were measured on."""
    result = go.Figure(layout=_layout())
    for view in VIEWS:
        result.add_contour(
            x=numbers(found.x),
            y=numbers(found.y),
            ncontours=18,
            contours={"coloring": "fill"},
            line={"width": 0.7, "color": MUTED[0]},
            visible=view is VIEWS[0],
            **_grid(found, view),
            **_colours(view),
        )
    for path in _paths(found):
        x, y = zip(*((model.x, model.y) for model in path), strict=True)
        result.add_scatter(
            x=numbers(x),
            y=numbers(y),
            mode="lines",
            line={"color": INK[0], "width": 1.5, "dash": "dash"},
            hoverinfo="skip",
        )
    result.add_scatter(
        x=numbers([model.x for model in found.models]),
        y=numbers([model.y for model in found.models]),
        mode="markers+text",
        text=_labels(found),
        textposition=[_beside(model, found) for model in found.models],
        textfont={"color": INK[0], "size": 12},
        cliponaxis=False,
        marker={
            "symbol": [SYMBOLS[model.kind] for model in found.models],
            "size": [15 if model.kind == "shared" else 11 for model in found.models],
            "color": [_tone(model) for model in found.models],
            "line": {"width": 1.5, "color": SURFACE[0]},
        },
        customdata=_told(found)[0],
        hovertemplate="%{customdata}<extra></extra>",
        name="models",
        meta={"from": {"customdata": "told"}},
    )
    result.update_xaxes(title_text="distance between models", showgrid=False, constrain="domain")
    result.update_yaxes(scaleanchor="x", showgrid=False, constrain="domain")
    controls.explored(result, choices(found))
    return result


def relief(found: Landscape) -> go.Figure:
    """Draws a plane as a surface in space, with the data of `contour`."""
    result = go.Figure(layout=_layout())
    axis = {
        "title": {"text": "distance", "font": {"size": 11}},
        "gridcolor": GRID[0],
        "backgroundcolor": "rgba(0,0,0,0)",
        "color": MUTED[0],
        "tickfont": {"size": 10},
        "nticks": 5,
    }
    for view in VIEWS:
        first = view is VIEWS[0]
        result.add_surface(
            x=numbers(found.x),
            y=numbers(found.y),
            visible=first,
            **_grid(found, view),
            **_colours(view),
            showscale=False,
        )
        result.add_scatter3d(
            x=numbers(np.repeat([model.x for model in found.models], 3)),
            y=numbers(np.repeat([model.y for model in found.models], 3)),
            z=_stems(found, view)[0],
            mode="lines+text",
            text=[
                text
                for model, label in zip(found.models, _labels(found), strict=True)
                for text in ("", f"{SIGNS[model.kind]} {label}", "")
            ],
            textfont={"color": INK[0], "size": 11, "family": FONT},
            line={"color": INK[0], "width": 2},
            hoverinfo="skip",
            visible=first,
            meta={"view": view.metric, "from": {"z": f"stem {view.metric}"}},
        )
    result.update_layout(
        scene={
            "xaxis": axis,
            "yaxis": axis,
            "zaxis": {**axis, "title": {"text": ""}, "showticklabels": False},
            "aspectmode": "manual",
            "aspectratio": {"x": 1, "y": float(_ratio(found)), "z": 0.7},
            "camera": {"eye": {"x": 0.9, "y": -1.25, "z": 1.2}},
            "dragmode": "turntable",
        },
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
    )
    return result


def choices(found: Landscape) -> dict[str, list[Any]]:
    """Lists, for all data that models were measured on, what the figures show."""
    tables: dict[str, list[Any]] = {
        "said": said_of(found),
        "told": _told(found),
        "printed": _printed(found),
    }
    for view in VIEWS:
        tables[view.metric] = _heights(found, view)
        tables[f"stem {view.metric}"] = _stems(found, view)
    return tables


def said_of(found: Landscape) -> list[str]:
    """Says what the data are: whose, which part, how many examples, after which round."""
    return [
        f"{_whose(found, d)}: {n:,} examples, {len(found.x)} × {len(found.y)} models, after round "
        f"{found.round}"
        for d, n in enumerate(found.n.tolist())
    ]


def _panel(name: str, run: Run, runs: Sequence[Run], label: str, found: Landscape) -> str:
    tone = dict(zip((r.path for r in runs), colours(runs), strict=True))[run.path]
    chooser = controls.choice(
        name.replace("figure", "choice"),
        [name, f"{name}-surface"],
        "Models measured on",
        [_whose(found, d) for d in range(len(found.on))],
        said_of(found)[0],
    )
    through = listed([model.name for model in found.models[:3]])
    stale = (
        ""
        if found.round == run.last
        else (
            f" It was measured after round {found.round}; the run's last evaluation is of round "
            f"{run.last}."
        )
    )
    shapes = controls.panels(
        name.replace("figure", "shape"),
        "Drawn as",
        [
            ("contour lines", plot(name, 470, "A plane of models, seen from above")),
            ("a surface, to be turned", plot(f"{name}-surface", 470, "The plane as a surface")),
        ],
    )
    return (
        f"<div class='card'><h3>{swatch(tone)}{escaped(label)}</h3><p>the plane through "
        f"<strong>{escaped(through)}</strong> (numbers are clients).{stale}</p>"
        f"<div class='controls'>{chooser}</div>{shapes}</div>"
    )


def _layout() -> go.Layout:
    result = layout(VIEWS)
    # The vertical axis is a distance in every view.
    result.yaxis.title.text = ""
    result.meta = {"views": [{**view, "axis": ""} for view in result.meta["views"]]}
    return result


def _whose(found: Landscape, d: int) -> str:
    name = found.on[d]
    return "the server's test set" if name == SERVER else f"the {found.split} part of client {name}"


def _heights(found: Landscape, view: View) -> list[list[list[float | None]]]:
    return [
        [numbers(_scaled(row, view), digits=4) for row in plane]
        for plane in found.values[view.metric]
    ]


def _stems(found: Landscape, view: View) -> list[list[float | None]]:
    """Gives, for each model, its height, one above all others where its name stands, and a gap."""
    result = []
    for d, plane in enumerate(found.values[view.metric]):
        heights = [_scaled(model.values[view.metric][d], view) for model in found.models]
        above = max(float(np.nanmax(_scaled(plane, view))), *map(float, heights))
        stems = [value for height in heights for value in (float(height), above, np.nan)]
        result.append(numbers(stems, digits=4))
    return result


def _scaled(values: Any, view: View) -> Any:
    return np.log10(np.maximum(values, 1e-6)) if view is LOSS else view.factor * values


def _printed(found: Landscape) -> list[list[list[float | None]]]:
    """Gives the losses themselves, where their logarithms are drawn."""
    return [[numbers(row, digits=3) for row in plane] for plane in found.values["loss"]]


def _grid(found: Landscape, view: View) -> dict[str, Any]:
    """Gives what a grid shows first, where else it takes it from, and what it says of a point."""
    if view is LOSS:
        return {
            "z": _heights(found, view)[0],
            "customdata": _printed(found)[0],
            "hovertemplate": "loss <b>%{customdata}</b><extra></extra>",
            "meta": {"view": view.metric, "from": {"z": "loss", "customdata": "printed"}},
        }
    return {
        "z": _heights(found, view)[0],
        "hovertemplate": "accuracy <b>%{z:.4~g} %</b><extra></extra>",
        "meta": {"view": view.metric, "from": {"z": view.metric}},
    }


def _told(found: Landscape) -> list[list[str]]:
    return [
        [
            f"<b>{plain(model.name)}</b><br>loss {model.values['loss'][d]:.4g}, "
            f"accuracy {100 * model.values['top1'][d]:.4g} %"
            for model in found.models
        ]
        for d in range(len(found.on))
    ]


def _colours(view: View) -> dict[str, Any]:
    bar = bar_below(view) | {"y": -0.17}  # the axis has its numbers there
    if view is LOSS:
        bar |= {
            "tickvals": [float(np.log10(tick)) for tick in TICKS],
            "ticktext": [f"{tick:g}" for tick in TICKS],
        }
    # Deep where it is good, in both views.
    scale = [[0, SERIES[0][0]], [1, GRID[0]]] if view is LOSS else [[0, GRID[0]], [1, SERIES[0][0]]]
    return {"colorscale": scale, "colorbar": bar}


def _paths(found: Landscape) -> list[tuple[Marked, Marked]]:
    shared = next(
        (model for model in found.models if model.kind == "shared" and not model.of), None
    )
    return [(shared, model) for model in found.models if shared is not None and model.kind == "own"]


def _labels(found: Landscape) -> list[str]:
    # Names of models beside the three would cover each other; their signs tell, and pointing does.
    return [plain(model.name) if m < 3 else "" for m, model in enumerate(found.models)]


def _beside(model: Marked, found: Landscape) -> str:
    """Finds the side of a model that is away from the others."""
    x, y = (np.mean([getattr(each, axis) for each in found.models]) for axis in "xy")
    return f"{'top' if model.y > y else 'bottom'} {'right' if model.x > x else 'left'}"


def _tone(model: Marked) -> str:
    return {"shared": INK[0], "own": SERIES[1][0], "personal": SERIES[3][0]}[model.kind]


def _ratio(found: Landscape) -> float:
    return float(np.ptp(found.y) / np.ptp(found.x))


def _lines(found: Landscape) -> list[list[str]]:
    return [
        [
            model.name,
            f"{np.hypot(model.x - found.models[0].x, model.y - found.models[0].y):.3f}",
            *(f"{loss:.4f}" for loss in model.values["loss"]),
        ]
        for model in found.models
    ]
