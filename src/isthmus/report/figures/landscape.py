"""Landscape: how good models are in the plane around the shared and the own ones."""

from typing import Any

import numpy as np

from isthmus.errors import IsthmusError
from isthmus.report.figures.figure import (
    ACCURACY,
    LOSS,
    Axis,
    Field,
    Figure,
    Lines,
    Mark,
    Points,
    Shade,
    Stems,
    View,
    offer_views,
)
from isthmus.report.figures.measured import (
    MEASURED,
    Landscape,
    LandscapeModel,
    describe_data,
    list_names,
    read_landscape,
)
from isthmus.report.figures.theme import DASHED, INK, SERIES, SURFACE, Style, make_inert
from isthmus.report.section import (
    Drawing,
    FigureInput,
    PrintFigure,
    Report,
    SectionContent,
    name_seed,
)
from isthmus.run.columns import Floats

VIEWS = (LOSS, ACCURACY)
SYMBOLS = {"shared": "star", "own": "circle", "personal": "diamond"}
SIGNS = {"shared": "★", "own": "●", "personal": "◆"}
TONES = {"shared": INK[0], "own": SERIES[1][0], "personal": SERIES[3][0]}
MEASURABLE = ("path", "line", "simplex")  # models on the way, as the records call them
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)  # of a loss


def show(report: Report) -> SectionContent | None:
    """Show the planes that were measured, and say how to measure one where there is none."""
    panels = report.read_runs(read_landscape)
    known = {panel.place for panel in panels}
    waiting = [
        run
        for place, run in enumerate(report.runs)
        if place not in known and np.isin(run.clients.model, MEASURABLE).any()
    ]
    if not panels and not waiting:
        return None
    figures = {}
    for panel in panels:
        figures[f"figure-landscape-{panel.place}"] = build(panel.found)
        figures[f"figure-landscape-{panel.place}-surface"] = build_surface(panel.found)
    values = {
        "panels": panels,
        "waiting": waiting,
        "describe_data": describe_data,
        "list_names": list_names,
        "list_losses": _list_losses,
    }
    return SectionContent(values, figures)


def build(plane: Landscape, title: str = "") -> Figure:
    """Return a plane from above; a list chooses the data that its models were measured on."""
    marks: list[Mark] = [_draw_field(plane, view) for view in VIEWS]
    for path in _list_paths(plane):
        x, y = np.array([(model.x, model.y) for model in path]).T
        marks.append(Lines(x=x, y=y, style=Style(INK[0], DASHED), width=1.5))
    marks.append(
        Points(
            x=np.array([model.x for model in plane.models]),
            y=np.array([model.y for model in plane.models]),
            labels=_list_labels(plane),
            sides=[_choose_side(model, plane) for model in plane.models],
            symbol=[SYMBOLS[model.kind] for model in plane.models],
            size=[15 if model.kind == "shared" else 11 for model in plane.models],
            colour=[TONES[model.kind] for model in plane.models],
            edge=(1.5, SURFACE[0]),
            data=_describe_models(plane)[0],
            hover="%{customdata}",
            name="models",
            tables={"data": "models"},
        )
    )
    return Figure(
        marks,
        x=Axis("distance between models", grid=False),
        y=Axis(grid=False),
        switches={"views": offer_views(VIEWS, titled=False)},
        tables=list_choices(plane),
        equal=True,
        title=title,
    )


def build_surface(plane: Landscape) -> Figure:
    """Return a plane as a surface in space, with the tables of `build`."""
    marks: list[Mark] = []
    texts = [
        text
        for model, label in zip(plane.models, _list_labels(plane), strict=True)
        for text in ("", f"{SIGNS[model.kind]} {label}", "")
    ]
    for view in VIEWS:
        marks.append(_draw_field(plane, view, surface=True))
        marks.append(
            Stems(
                x=np.repeat([model.x for model in plane.models], 3),
                y=np.repeat([model.y for model in plane.models], 3),
                z=_draw_stems(plane, view)[0],
                labels=texts,
                shown={"view": view.metric},
                tables={"z": f"stem {view.metric}"},
            )
        )
    depth = float(np.ptp(plane.y) / np.ptp(plane.x))
    return Figure(marks, switches={"views": offer_views(VIEWS, titled=False)}, depth=depth)


def list_choices(plane: Landscape) -> dict[str, list[Any]]:
    """Return, for all data that models were measured on, what the figures show."""
    tables: dict[str, list[Any]] = {
        "words": describe_data(plane),
        "models": _describe_models(plane),
        "printed": list(plane.values["loss"]),  # where their logarithms are drawn
    }
    for view in VIEWS:
        tables[view.metric] = list(_scale(plane.values[view.metric], view))
        tables[f"stem {view.metric}"] = _draw_stems(plane, view)
    return tables


def _draw_field(plane: Landscape, view: View, surface: bool = False) -> Field:
    """Return the values of a plane: the logarithm of a loss, which is printed as it is."""
    values = plane.values[view.metric][0]
    ticks = {float(np.log10(tick)): f"{tick:g}" for tick in TICKS} if view is LOSS else {}
    printed = "loss <b>%{customdata:.3~g}</b>" if view is LOSS else "accuracy <b>%{z:.4~g} %</b>"
    return Field(
        x=plane.x,
        y=plane.y,
        z=_scale(values, view),
        data=values if view is LOSS else (),
        surface=surface,
        # The axis has its numbers above the bar.
        shade=Shade(view.axis, deep_is_low=view is LOSS, ticks=ticks, below=0.17),
        hover=printed,
        shown={"view": view.metric},
        tables={"z": view.metric} | ({"data": "printed"} if view is LOSS else {}),
    )


def _draw_stems(plane: Landscape, view: View) -> list[Floats]:
    """Return, for each model, its height, one above all others for its name, and a gap."""
    result = []
    for d, values in enumerate(plane.values[view.metric]):
        heights = _scale(np.array([model.values[view.metric][d] for model in plane.models]), view)
        above = np.full_like(heights, max(np.nanmax(_scale(values, view)), heights.max()))
        result.append(np.stack([heights, above, np.full_like(heights, np.nan)], axis=1).ravel())
    return result


def _scale(values: Floats, view: View) -> Floats:
    scaled: Floats = np.log10(np.maximum(values, 1e-6)) if view is LOSS else view.factor * values
    return scaled


def _describe_models(plane: Landscape) -> list[list[str]]:
    return [
        [
            f"<b>{make_inert(model.name)}</b><br>loss {model.values['loss'][d]:.4g}, "
            f"accuracy {100 * model.values['top1'][d]:.4g} %"
            for model in plane.models
        ]
        for d in range(len(plane.on))
    ]


def _list_paths(plane: Landscape) -> list[tuple[LandscapeModel, LandscapeModel]]:
    shared = next(
        (model for model in plane.models if model.kind == "shared" and not model.of), None
    )
    return [(shared, model) for model in plane.models if shared is not None and model.kind == "own"]


def _list_labels(plane: Landscape) -> list[str]:
    # Names of models beside the three would cover each other; their signs tell, and pointing does.
    return [model.name if m < 3 else "" for m, model in enumerate(plane.models)]


def _choose_side(model: LandscapeModel, plane: Landscape) -> str:
    """Find the side of a model that is away from the others."""
    x, y = (np.mean([getattr(each, axis) for each in plane.models]) for axis in "xy")
    return f"{'top' if model.y > y else 'bottom'} {'right' if model.x > x else 'left'}"


def _list_losses(plane: Landscape) -> list[list[str]]:
    return [
        [
            model.name,
            f"{np.hypot(model.x - plane.models[0].x, model.y - plane.models[0].y):.3f}",
            *(f"{loss:.4f}" for loss in model.values["loss"]),
        ]
        for model in plane.models
    ]


def draw(given: FigureInput) -> Drawing:
    """Return the plane that was measured of each group's first run, for print."""
    planes = given.read_groups(read_landscape)
    if not planes:
        first = given.groups[0].runs[0].path
        raise IsthmusError(
            f"none of these runs has a landscape.csv; measure one with: isthmus landscape {first}"
        )
    figures = [build(plane, group.label if len(planes) > 1 else "") for group, plane in planes]
    group, plane = planes[0]
    caption = (
        f"The plane through three models, at their distances; {given.view.axis} on "
        f"{list_names(plane)[0]} ({plane.n[0]:,} examples), on a grid of "
        f"{len(plane.x)} by {len(plane.y)} models, after round {plane.round}. Star: a shared "
        "model; disc: a client's own; diamond: personal. Numbers are clients."
        f"{name_seed(group)}"
    )
    return Drawing(figures, caption, {"view": given.view.metric})


PRINT_FIGURE = PrintFigure(
    "landscape", "the plane that `isthmus landscape` measured", draw, 1.05, MEASURED
)
