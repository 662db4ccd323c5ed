"""Simplex: the positions of clients in it, and how good its models are."""

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.errors import IsthmusError
from isthmus.report.figures.figure import (
    ACCURACY,
    LOSS,
    Axis,
    Figure,
    Lines,
    Mark,
    Points,
    Shade,
    View,
    offer_views,
)
from isthmus.report.figures.measured import (
    EVERYONE,
    MEASURED,
    Surface,
    collect_surface,
    describe_data,
    list_names,
    read_coordinates,
)
from isthmus.report.figures.theme import INK, MARKS, SERIES, SURFACE, ZERO, Style, list_classes
from isthmus.report.section import (
    Drawing,
    FigureInput,
    PrintFigure,
    Report,
    SectionContent,
    name_seed,
)
from isthmus.run.columns import Floats, Integers
from isthmus.run.record import RecordedRun

OUTLINED_AT_MOST = 60  # clients whose regions are drawn
VIEWS = (ACCURACY, LOSS)


class ClientPlaces(NamedTuple):
    """Where the models of a kind lie in a simplex, and whose they are."""

    client: Integers  # [M]
    at: Floats  # [M, V]
    values: Floats  # [M]

    @property
    def placed(self) -> NDArray[np.bool_]:
        """Which are away from the centre, where all are before they have places."""
        away: NDArray[np.bool_] = np.abs(self.at - 1 / self.at.shape[1]).max(1) > 1e-5
        return away


class SimplexProjection(NamedTuple):
    """How a simplex is drawn: where its corners are; what lies between them lies between them."""

    corners: Floats  # [V, 2], at most 1 from the origin
    about: str  # how it is drawn, in words

    def __call__(self, at: Floats) -> Floats:
        """Return where points [..., V] are drawn, [..., 2]."""
        return at @ self.corners


def find_places(run: RecordedRun) -> ClientPlaces:
    """Find the clients' personal models in a simplex, and their top-1 on own test parts."""
    rows = (run.clients.model == "personal") & (run.clients.split == "test") & (run.clients.n > 0)
    rows &= (run.clients.round == run.last) & (run.clients.client >= 0)
    return ClientPlaces(
        run.clients.client[rows],
        read_coordinates(run.clients.at[rows].tolist()),
        run.clients.top1[rows],
    )


def choose_projection(at: Floats) -> SimplexProjection:
    """Return how to draw a simplex with points [M, V] in it.

    Up to three vertices it is drawn as it is. With more, along the two principal components of the
    points; where these do not differ in two directions, on a regular polygon.
    """
    vertices = at.shape[1]
    angles = np.pi / 2 + 2 * np.pi * np.arange(vertices) / vertices
    polygon = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    if vertices <= 3:
        shape = ("point", "line", "triangle")[vertices - 1]
        return SimplexProjection(polygon, f"the simplex is a {shape}, drawn as it is")
    mean = at.mean(0)
    _, s, components = np.linalg.svd(at - mean, full_matrices=False)
    if len(s) < 2 or s[1] < 1e-6:
        return SimplexProjection(
            polygon,
            f"the {vertices} vertices are drawn as a regular polygon, and a point at their mean "
            "with its coordinates as weights: different points may coincide",
        )
    seen = components[:2].T * np.sign(components[:2].sum(1) + 1e-12)  # [V, 2]
    corners = seen - mean @ seen  # coordinates sum to 1: this subtracts the mean
    share = float((s[:2] ** 2).sum() / (s**2).sum())
    return SimplexProjection(
        corners / np.linalg.norm(corners, axis=1).max(),
        f"{vertices} vertices are projected to the two directions in which the clients' points "
        f"differ most ({100 * share:.0f} % of their variance): different points may coincide",
    )


def outline_region(alpha: Floats, rho: float, corners: Floats, directions: int = 48) -> Floats:
    """Return how far a region goes in all directions: mass rho / 2 goes to the best corner."""
    reached = []
    for angle in np.linspace(0, 2 * np.pi, directions, endpoint=False):
        order = np.argsort(corners @ [np.cos(angle), np.sin(angle)])
        left = np.minimum(np.cumsum(alpha[order[:-1]]), rho / 2)
        moved = alpha.copy()
        moved[order[:-1]] -= np.diff(left, prepend=0)
        moved[order[-1]] += left[-1] if len(left) else 0
        reached.append(moved @ corners)
    return np.array([*reached, reached[0]])


def show(report: Report) -> SectionContent | None:
    """Show the simplices of the runs that have one."""
    panels = report.read_runs(collect_surface)
    figures = {f"figure-simplex-{panel.place}": build(panel.run, panel.found) for panel in panels}
    values = {
        "panels": panels,
        "find_places": find_places,
        "choose_projection": choose_projection,
        "list_names": list_names,
        "list_models": _list_models,
        "describe_data": describe_data,
    }
    return SectionContent(values, figures) if panels else None


def build(run: RecordedRun, surface: Surface, title: str = "") -> Figure:
    """Return a simplex: its models, its clients, what they train; a list chooses the data."""
    clients = find_places(run)
    drawing = choose_projection(clients.at)
    pairs = [np.stack(edge) for edge in combinations(drawing.corners, 2)]
    edges = np.array(pairs or [drawing.corners])  # [E, 2, 2]
    marks: list[Mark] = [
        Lines(x=edges[..., 0], y=edges[..., 1], style=Style(ZERO[0]), width=1.2),
        *(_draw_models(surface, view, drawing) for view in VIEWS),
    ]
    rho = float(run.settings.get("method.rho", 0.0))
    placed = clients.at[clients.placed]
    if 0 < len(placed) <= OUTLINED_AT_MOST:
        around = np.stack([outline_region(at, rho, drawing.corners) for at in placed])
        style = Style(INK[0])
        marks.append(Lines(x=around[..., 0], y=around[..., 1], style=style, width=1, opacity=0.6))
    marks.append(_draw_clients(run, clients, drawing))
    ring = {"x": "ring x", "y": "ring y"}
    marks.append(Points(colour="rgba(0,0,0,0)", size=26, edge=(3, INK[0]), tables=ring))
    low, high = drawing.corners.min(0) - 0.12, drawing.corners.max(0) + 0.12
    across, up = zip(low, high, strict=True)
    return Figure(
        marks,
        x=Axis(range=across, hidden=True),
        y=Axis(range=up, hidden=True),
        switches={"views": offer_views(VIEWS, titled=False)},
        tables=list_choices(surface, clients, drawing),
        equal=True,
        title=title,
    )


def list_choices(
    surface: Surface, clients: ClientPlaces, drawing: SimplexProjection
) -> dict[str, list[Any]]:
    """Return, for all data that models were measured on, what the figure shows."""
    rings = [drawing(clients.at[clients.client.astype(str) == name]) for name in surface.on]
    return {
        **{view.metric: list(view.factor * surface.values[view.metric]) for view in VIEWS},
        "ring x": [ring[:, 0] for ring in rings],
        "ring y": [ring[:, 1] for ring in rings],
        "words": describe_data(surface),
    }


def _list_models(surface: Surface) -> list[list[str]]:
    return [
        [_print_point(at), f"{100 * top:.2f}", f"{nats:.3f}"]
        for at, top, nats in zip(
            surface.at, surface.values["top1"][0], surface.values["loss"][0], strict=True
        )
    ]


def _print_point(at: Floats) -> str:
    return " ".join(f"{number:.2g}" for number in at)


def _draw_models(surface: Surface, view: View, drawing: SimplexProjection) -> Points:
    x, y = drawing(surface.at).T
    return Points(
        x=x,
        y=y,
        data=[_print_point(at) for at in surface.at],
        symbol="hexagon",
        size=25 if surface.at.shape[1] <= 3 else 13,  # tiles, or points that may coincide
        colour=view.factor * surface.values[view.metric][0],
        edge=(0.5, ZERO[0]),
        shade=Shade(view.axis, deep_is_low=view is LOSS, below=0.02),
        hover=f"model at (%{{customdata}}): <b>%{{marker.color:.4~g}}{view.unit}</b>",
        shown={"view": view.metric},
        tables={"colour": view.metric},
    )


def _draw_clients(run: RecordedRun, clients: ClientPlaces, drawing: SimplexProjection) -> Points:
    place = np.searchsorted(run.federation.client, clients.client)
    main = run.federation.labels[place].argmax(1).tolist()
    x, y = drawing(clients.at).T
    return Points(
        x=x,
        y=y,
        labels=[str(c) for c in main],
        size=16,
        colour=[SERIES[c % len(SERIES)][0] for c in main],
        symbol=[MARKS[c // len(SERIES) % 3] for c in main],
        edge=(1.5, SURFACE[0]),
        name="clients",
        data=[
            [
                int(client),
                _print_point(at),
                f"{100 * value:.2f}",
                list_classes(run.federation, int(i), 3),
            ]
            for client, at, value, i in zip(*clients, place, strict=True)
        ],
        hover="<b>client %{customdata[0]}</b> at (%{customdata[1]}): "
        "<b>%{customdata[2]} %</b><br>its own test part; %{customdata[3]}",
    )


def draw(given: FigureInput) -> Drawing:
    """Return where clients are in a simplex, one figure per group, for print."""
    shown = given.read_groups(collect_surface)
    if not shown:
        raise IsthmusError("none of these runs has a simplex; add a run of floco or floco-plus")
    figures = [
        build(group.runs[0], surface, group.label if len(shown) > 1 else "")
        for group, surface in shown
    ]
    group, surface = shown[0]
    about = choose_projection(find_places(group.runs[0]).at).about
    caption = (
        "Discs: clients at their points of the simplex, with the class they have most examples "
        f"of; outlines: the regions they train. Hexagons: its models, mean {given.view.axis} over "
        f"all clients, each on its own data. In the first panel {about}.{name_seed(group)}"
    )
    choice = surface.on.index(EVERYONE) if EVERYONE in surface.on else 0
    return Drawing(figures, caption, {"view": given.view.metric}, choice)


PRINT_FIGURE = PrintFigure("simplex", "positions of FLOCO's clients", draw, 0.85, MEASURED)
