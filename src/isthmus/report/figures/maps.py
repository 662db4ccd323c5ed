"""Figures for a paper that are maps: simplices, planes of models, similarities of clients."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from isthmus.errors import IsthmusError
from isthmus.records.reader import Run
from isthmus.report.figures import geometry
from isthmus.report.figures.theme import LOSS, SHOWN_AT_MOST, View
from isthmus.report.groups import Group

SHADES = "cividis"  # told apart in grey, and by every common kind of colour vision
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)  # of a loss
SIGNS = {"shared": "*", "own": "o", "personal": "D"}


def simplices(figure: Figure, groups: Sequence[Group], view: View) -> str:
    """Draws where clients are in a simplex, one panel per group, and how good its models are."""
    shown = [(group, run) for group, run in _firsts(groups) if geometry.surface(run) is not None]
    if not shown:
        raise IsthmusError(
            "no run here has a simplex; expected one of floco, floco-plus; add one of them"
        )
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, (group, run) in zip(panels, shown, strict=True):
        models = _simplex(axes, run, view)
        axes.set_title(group.label if len(shown) > 1 else "", fontsize=7)
    figure.colorbar(models, ax=panels.tolist(), shrink=0.75, label=view.axis)
    clients = geometry.places(shown[0][1], "personal", "top1")
    return (
        "Discs: clients at their points of the simplex, with the class they have most examples "
        f"of; outlines: the regions they train. Hexagons: its models, mean {view.axis} over all "
        f"clients, each on its own data. In the first panel "
        f"{geometry.projected(clients.at).said}.{_seed(shown[0][0])}"
    )


def planes(figure: Figure, groups: Sequence[Group], view: View) -> str:
    """Draws the plane of models that was measured of each group's first run."""
    shown = [(group, run, geometry.landscape(run)) for group, run in _firsts(groups)]
    found = [(group, plane) for group, _, plane in shown if plane is not None]
    if not found:
        raise IsthmusError(
            f"no plane was measured of {shown[0][1].path}; expected landscape.csv in a run; "
            f"make it with: isthmus landscape {shown[0][1].path}"
        )
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (group, plane) in zip(panels, found, strict=True):
        values = view.factor * plane.values[view.metric][0]
        ends = float(np.nanmin(values)), float(np.nanmax(values))
        steps = np.geomspace if view is LOSS and ends[0] > 0 else np.linspace
        levels: dict[str, Any] = {"levels": steps(*ends, 15) if ends[0] < ends[1] else 1}
        norm = LogNorm(*ends) if steps is np.geomspace else None
        field = axes.contourf(plane.x, plane.y, values, cmap=SHADES, norm=norm, **levels)
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
                SIGNS[model.kind],
                color="white",
                markeredgecolor="black",
                markersize=9 if model.kind == "shared" else 5,
            )
            if m < 3:
                box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6}
                right = model.x > np.mean([each.x for each in plane.models])
                axes.annotate(
                    model.name,
                    (model.x, model.y),
                    (4 if right else -4, 4),
                    textcoords="offset points",
                    ha="left" if right else "right",
                    fontsize=6,
                    bbox=box,
                )
        axes.set(aspect="equal", xlabel="distance between models")
        axes.set_title(group.label if len(found) > 1 else "", fontsize=7)
        axes.grid(visible=False)
    group, plane = found[0]
    whose = plane.on[0]
    data = (
        "the server's test set"
        if whose == geometry.SERVER
        else (f"the {plane.split} part of client {whose}")
    )
    return (
        f"The plane through three models, at their distances; {view.axis} on {data} "
        f"({plane.n[0]:,} examples), on a grid of {len(plane.x)} by {len(plane.y)} models, after "
        f"round {plane.round}. Star: a shared model; disc: a client's own; diamond: personal. "
        f"Numbers are clients.{_seed(group)}"
    )


def similarities(figure: Figure, groups: Sequence[Group], view: View) -> str:
    """Draws how alike clients' labels are and, below, what each of their two networks adds."""
    runs = [
        (group, run)
        for group, run in _firsts(groups)
        if run.settings.get("method.similarity") == "labels"
    ]
    if not runs:
        raise IsthmusError(
            "no run here mixes by the similarity of labels; expected fedsimsup; add a run of it"
        )
    group, run = runs[0]
    found = geometry.similarity(run, SHOWN_AT_MOST)
    above, below = figure.subplots(2, height_ratios=(3, 1))
    shades = above.imshow(found.matrix, cmap=SHADES, vmin=0, vmax=1, aspect="auto")
    figure.colorbar(shades, ax=above, label="cosine of label counts")
    places = np.arange(len(found.client))
    names = [str(client) for client in found.client.tolist()]
    many = len(names) > 30
    above.set(ylabel="client", xticks=[])
    above.set_yticks([] if many else places, [] if many else names, fontsize=5)
    above.grid(visible=False)
    bars: dict[str, Any] = {"width": 0.4, "edgecolor": "black", "linewidth": 0.3}
    below.bar(places - 0.2, np.nan_to_num(100 * found.own_adds), color="0.35", **bars)
    below.bar(
        places + 0.2, np.nan_to_num(100 * found.shared_adds), color="white", hatch="////", **bars
    )
    below.set(xlabel="client", ylabel="points added", xlim=(-0.5, len(names) - 0.5))
    below.set_xticks([] if many else places, [] if many else names, fontsize=5, rotation=90)
    return (
        "Above: cosine of clients' label counts, similar clients next to each other. Below: points "
        "of top-1 accuracy that the own network adds to the shared one (full), and the shared one "
        f"to the own (hatched), on clients' own test parts.{_seed(group)}"
    )


def _firsts(groups: Sequence[Group]) -> list[tuple[Group, Run]]:
    return [(group, group.runs[0]) for group in groups]


def _seed(group: Group) -> str:
    return f" Seed {group.runs[0].seed}." if len(group.runs) > 1 else ""


def _simplex(axes: Axes, run: Run, view: View) -> Any:
    found = geometry.surface(run)
    assert found is not None  # there is something to draw
    clients = geometry.places(run, "personal", "top1")
    drawing = geometry.projected(clients.at)
    for edge in combinations(drawing.corners, 2):
        axes.plot(*np.stack(edge).T, color="0.4", linewidth=0.6)
    d = found.on.index(geometry.EVERYONE) if geometry.EVERYONE in found.on else 0
    shade: dict[str, Any] = {"c": view.factor * found.values[view.metric][d], "cmap": SHADES}
    across, up = drawing(found.at).T
    models = axes.scatter(across, up, marker="h", s=60, alpha=0.8, **shade)
    rho = float(run.settings.get("method.rho", 0.0))
    for at in clients.at[clients.placed]:
        axes.plot(*geometry.outline(at, rho, drawing.corners).T, color="0.2", linewidth=0.4)
    x, y = drawing(clients.at).T
    axes.scatter(x, y, s=46, facecolor="white", edgecolor="black", linewidth=0.6, zorder=3)
    main = run.federation.labels[np.searchsorted(run.federation.client, clients.client)].argmax(1)
    for right, up, label in zip(x.tolist(), y.tolist(), main.tolist(), strict=True):
        axes.annotate(str(label), (right, up), ha="center", va="center", fontsize=5, zorder=4)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return models
