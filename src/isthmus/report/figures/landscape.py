"""Landscape: how good models are in the plane around the shared and the own ones."""

from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from isthmus.errors import IsthmusError
from isthmus.report.figures import paper
from isthmus.report.figures.measured import (
    MEASURED,
    Landscape,
    LandscapeModel,
    name_data,
    read_landscape,
)
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
    build_layout,
    make_inert,
    place_bar_below,
    round_numbers,
)
from isthmus.report.section import FigureInput, PrintFigure, Report, SectionContent
from isthmus.report.tables.formats import join_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VIEWS = (LOSS, ACCURACY)
SYMBOLS = {"shared": "star", "own": "circle", "personal": "diamond"}
SIGNS = {"shared": "★", "own": "●", "personal": "◆"}
MARKERS = {"shared": "*", "own": "o", "personal": "D"}
MEASURABLE = ("path", "line", "simplex")  # models on the way, as the records call them
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)  # of a loss


def show(report: Report) -> SectionContent | None:
    """Shows the planes that were measured, and says how to measure one where there is none."""
    panels, figures, waiting = [], {}, []
    for i, run in enumerate(report.runs):
        plane = read_landscape(run)
        if plane is None:
            if np.isin(run.clients.model, MEASURABLE).any():
                waiting.append(run)
            continue
        name = f"landscape-{i}"
        figures[f"figure-{name}"] = plot_contours(plane)
        figures[f"figure-{name}-surface"] = plot_surface(plane)
        data = [name_data(name, plane.split) for name in plane.on]
        panels.append(
            {
                "name": name,
                "tone": report.tones[i],
                "label": report.rows[i].label,
                "through": join_names([model.name for model in plane.models[:3]]),
                "round": plane.round,
                "last": run.last,
                "options": data,
                "about": describe_data(plane)[0],
                "head": ["model", "distance", *data],
                "lines": _list_losses(plane),
            }
        )
    if not panels and not waiting:
        return None
    values = {
        "panels": panels,
        "names": list(figures),
        "waiting": join_names([run.path.name for run in waiting]),
        "first_waiting": str(waiting[0].path) if waiting else "",
    }
    return SectionContent(values, figures)


def plot_contours(plane: Landscape) -> go.Figure:
    """Draws a plane from above; a list chooses the data that its models were measured on."""
    result = go.Figure(layout=_build_layout())
    for view in VIEWS:
        result.add_contour(
            x=round_numbers(plane.x),
            y=round_numbers(plane.y),
            ncontours=18,
            contours={"coloring": "fill"},
            line={"width": 0.7, "color": MUTED[0]},
            visible=view is VIEWS[0],
            **_draw_grid(plane, view),
            **_choose_colours(view),
        )
    for path in _list_paths(plane):
        x, y = zip(*((model.x, model.y) for model in path), strict=True)
        result.add_scatter(
            x=round_numbers(x),
            y=round_numbers(y),
            mode="lines",
            line={"color": INK[0], "width": 1.5, "dash": "dash"},
            hoverinfo="skip",
        )
    result.add_scatter(
        x=round_numbers([model.x for model in plane.models]),
        y=round_numbers([model.y for model in plane.models]),
        mode="markers+text",
        text=_list_labels(plane),
        textposition=[_choose_side(model, plane) for model in plane.models],
        textfont={"color": INK[0], "size": 12},
        cliponaxis=False,
        marker={
            "symbol": [SYMBOLS[model.kind] for model in plane.models],
            "size": [15 if model.kind == "shared" else 11 for model in plane.models],
            "color": [_choose_tone(model) for model in plane.models],
            "line": {"width": 1.5, "color": SURFACE[0]},
        },
        customdata=_describe_models(plane)[0],
        hovertemplate="%{customdata}<extra></extra>",
        name="models",
        meta={"from": {"customdata": "models"}},
    )
    result.update_xaxes(title_text="distance between models", showgrid=False, constrain="domain")
    result.update_yaxes(scaleanchor="x", showgrid=False, constrain="domain")
    result.layout.meta |= {"tables": list_choices(plane)}
    return result


def plot_surface(plane: Landscape) -> go.Figure:
    """Draws a plane as a surface in space, with the data of `plot_contours`."""
    result = go.Figure(layout=_build_layout())
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
            x=round_numbers(plane.x),
            y=round_numbers(plane.y),
            visible=first,
            **_draw_grid(plane, view),
            **_choose_colours(view),
            showscale=False,
        )
        result.add_scatter3d(
            x=round_numbers(np.repeat([model.x for model in plane.models], 3)),
            y=round_numbers(np.repeat([model.y for model in plane.models], 3)),
            z=_draw_stems(plane, view)[0],
            mode="lines+text",
            text=[
                text
                for model, label in zip(plane.models, _list_labels(plane), strict=True)
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
            "aspectratio": {"x": 1, "y": float(np.ptp(plane.y) / np.ptp(plane.x)), "z": 0.7},
            "camera": {"eye": {"x": 0.9, "y": -1.25, "z": 1.2}},
            "dragmode": "turntable",
        },
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
    )
    return result


def list_choices(plane: Landscape) -> dict[str, list[Any]]:
    """Lists, for all data that models were measured on, what the figures show."""
    tables: dict[str, list[Any]] = {
        "words": describe_data(plane),
        "models": _describe_models(plane),
        "printed": _list_exact_losses(plane),
    }
    for view in VIEWS:
        tables[view.metric] = _list_heights(plane, view)
        tables[f"stem {view.metric}"] = _draw_stems(plane, view)
    return tables


def describe_data(plane: Landscape) -> list[str]:
    """Says what the data are: whose, which part, how many examples, after which round."""
    return [
        f"{name_data(name, plane.split)}: {n:,} examples, {len(plane.x)} × {len(plane.y)} models, "
        f"after round {plane.round}"
        for name, n in zip(plane.on, plane.n.tolist(), strict=True)
    ]


def _build_layout() -> go.Layout:
    result = build_layout(VIEWS)
    # The vertical axis is a distance in every view.
    result.yaxis.title.text = ""
    result.meta = {"views": [{**view, "axis": ""} for view in result.meta["views"]]}
    return result


def _list_heights(plane: Landscape, view: View) -> list[list[list[float | None]]]:
    return [
        [round_numbers(_scale(row, view), digits=4) for row in values]
        for values in plane.values[view.metric]
    ]


def _draw_stems(plane: Landscape, view: View) -> list[list[float | None]]:
    """Gives, for each model, its height, one above all others where its name stands, and a gap."""
    result = []
    for d, values in enumerate(plane.values[view.metric]):
        heights = [_scale(model.values[view.metric][d], view) for model in plane.models]
        above = max(float(np.nanmax(_scale(values, view))), *map(float, heights))
        stems = [value for height in heights for value in (float(height), above, np.nan)]
        result.append(round_numbers(stems, digits=4))
    return result


def _scale(values: Any, view: View) -> Any:
    return np.log10(np.maximum(values, 1e-6)) if view is LOSS else view.factor * values


def _list_exact_losses(plane: Landscape) -> list[list[list[float | None]]]:
    """Gives the losses themselves, where their logarithms are drawn."""
    return [[round_numbers(row, digits=3) for row in values] for values in plane.values["loss"]]


def _draw_grid(plane: Landscape, view: View) -> dict[str, Any]:
    """Gives what a grid shows first, where else it takes it from, and what it says of a point."""
    if view is LOSS:
        return {
            "z": _list_heights(plane, view)[0],
            "customdata": _list_exact_losses(plane)[0],
            "hovertemplate": "loss <b>%{customdata}</b><extra></extra>",
            "meta": {"view": view.metric, "from": {"z": "loss", "customdata": "printed"}},
        }
    return {
        "z": _list_heights(plane, view)[0],
        "hovertemplate": "accuracy <b>%{z:.4~g} %</b><extra></extra>",
        "meta": {"view": view.metric, "from": {"z": view.metric}},
    }


def _describe_models(plane: Landscape) -> list[list[str]]:
    return [
        [
            f"<b>{make_inert(model.name)}</b><br>loss {model.values['loss'][d]:.4g}, "
            f"accuracy {100 * model.values['top1'][d]:.4g} %"
            for model in plane.models
        ]
        for d in range(len(plane.on))
    ]


def _choose_colours(view: View) -> dict[str, Any]:
    bar = place_bar_below(view) | {"y": -0.17}  # the axis has its numbers there
    if view is LOSS:
        bar |= {
            "tickvals": [float(np.log10(tick)) for tick in TICKS],
            "ticktext": [f"{tick:g}" for tick in TICKS],
        }
    # Deep where it is good, in both views.
    scale = [[0, SERIES[0][0]], [1, GRID[0]]] if view is LOSS else [[0, GRID[0]], [1, SERIES[0][0]]]
    return {"colorscale": scale, "colorbar": bar}


def _list_paths(plane: Landscape) -> list[tuple[LandscapeModel, LandscapeModel]]:
    shared = next(
        (model for model in plane.models if model.kind == "shared" and not model.of), None
    )
    return [(shared, model) for model in plane.models if shared is not None and model.kind == "own"]


def _list_labels(plane: Landscape) -> list[str]:
    # Names of models beside the three would cover each other; their signs tell, and pointing does.
    return [make_inert(model.name) if m < 3 else "" for m, model in enumerate(plane.models)]


def _choose_side(model: LandscapeModel, plane: Landscape) -> str:
    """Finds the side of a model that is away from the others."""
    x, y = (np.mean([getattr(each, axis) for each in plane.models]) for axis in "xy")
    return f"{'top' if model.y > y else 'bottom'} {'right' if model.x > x else 'left'}"


def _choose_tone(model: LandscapeModel) -> str:
    return {"shared": INK[0], "own": SERIES[1][0], "personal": SERIES[3][0]}[model.kind]


def _list_losses(plane: Landscape) -> list[list[str]]:
    return [
        [
            model.name,
            f"{np.hypot(model.x - plane.models[0].x, model.y - plane.models[0].y):.3f}",
            *(f"{loss:.4f}" for loss in model.values["loss"]),
        ]
        for model in plane.models
    ]


def draw(figure: "Figure", given: FigureInput) -> str:
    """Draws the plane that was measured of each group's first run, for print."""
    planes = [
        (group, plane)
        for group in given.groups
        if (plane := read_landscape(group.runs[0])) is not None
    ]
    if not planes:
        first = given.groups[0].runs[0].path
        raise IsthmusError(
            f"no plane was measured of {first}; expected landscape.csv in a run; "
            f"make it with: isthmus landscape {first}"
        )
    view = given.view
    panels = figure.subplots(1, len(planes), squeeze=False)[0]
    for axes, (group, plane) in zip(panels, planes, strict=True):
        _draw_plane(figure, axes, plane, view)
        axes.set_title(group.label if len(planes) > 1 else "", fontsize=7)
    group, plane = planes[0]
    return (
        f"The plane through three models, at their distances; {view.axis} on "
        f"{name_data(plane.on[0], plane.split)} ({plane.n[0]:,} examples), on a grid of "
        f"{len(plane.x)} by {len(plane.y)} models, after round {plane.round}. Star: a shared "
        "model; disc: a client's own; diamond: personal. Numbers are clients."
        f"{paper.name_seed(group)}"
    )


def _draw_plane(figure: "Figure", axes: "Axes", plane: Landscape, view: View) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator

    values = view.factor * plane.values[view.metric][0]
    ends = float(np.nanmin(values)), float(np.nanmax(values))
    steps = np.geomspace if view is LOSS and ends[0] > 0 else np.linspace
    levels: dict[str, Any] = {"levels": steps(*ends, 15) if ends[0] < ends[1] else 1}
    norm = LogNorm(*ends) if steps is np.geomspace else None
    field = axes.contourf(plane.x, plane.y, values, cmap=paper.SHADES, norm=norm, **levels)
    axes.contour(plane.x, plane.y, values, colors="0.2", linewidths=0.3, **levels)
    few = [tick for tick in TICKS if ends[0] < tick < ends[1]]
    ticks: Any = few if norm else MaxNLocator(6)
    bar = figure.colorbar(
        field, ax=axes, location="bottom", ticks=ticks, format="%g", label=view.axis
    )
    bar.ax.minorticks_off()
    for m, model in enumerate(plane.models):
        axes.plot(
            model.x,
            model.y,
            MARKERS[model.kind],
            color="white",
            markeredgecolor="black",
            markersize=9 if model.kind == "shared" else 5,
        )
        if m < 3:
            right = model.x > np.mean([each.x for each in plane.models])
            axes.annotate(
                model.name,
                (model.x, model.y),
                (4 if right else -4, 4),
                textcoords="offset points",
                ha="left" if right else "right",
                fontsize=6,
                bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6},
            )
    axes.set(aspect="equal", xlabel="distance between models")
    axes.grid(visible=False)


PRINT_FIGURE = PrintFigure(
    "landscape", "the plane that `isthmus landscape` measured", draw, 1.05, MEASURED
)
