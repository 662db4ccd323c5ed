"""The figure of a path: accuracy and loss from the shared model to the clients' own."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from isthmus.errors import IsthmusError
from isthmus.report.figures import ACCURACY, GRID, LOSS, View, colours, layout, numbers, veil
from isthmus.report.records import Along, Run
from isthmus.report.tables import DAGGER

BRANCHES = ("1 0", "1 1", "0 1")  # weights of a shared and an own network, whose logits are added
LINES_AT_MOST = 60  # clients drawn one by one along the path; more become a band


def path(run: Run, runs: Sequence[Run]) -> go.Figure:
    """Draws accuracy and loss from the shared model to the clients' own, and the places chosen."""
    views = (ACCURACY, LOSS)
    figure = go.Figure(layout=layout(views))
    colour = dict(zip((r.path for r in runs), colours(runs), strict=True))[run.path]
    mark = DAGGER if run.chosen_on_test else ""
    for view in views:
        along = _drawn(run, view)
        shown = {"meta": {"view": view.metric}, "visible": view is views[0]}
        if len(along.client) <= LINES_AT_MOST:
            figure.add_scatter(**_clients_lines(along, view, colour), **shown)
        else:
            figure.add_scatter(**_band(along, view, colour), **shown)
        for reference in references(run, runs):
            level = view.factor * reference.mean(view.metric)
            figure.add_scatter(
                x=[0, 1],
                y=numbers([level, level]),
                mode="lines",
                line={"color": reference.colour, "width": 1.6, "dash": reference.dash},
                name=reference.name,
                hovertemplate=f"<b>{reference.name}</b>: <b>%{{y:.4~g}}{view.unit}</b><br>"
                "mean over the same clients, own test parts<extra></extra>",
                **shown,
            )
        figure.add_scatter(**_mean(along, view, colour, "λ = %{x:.2~g}: "), **shown)
    chosen = _drawn(run, views[0]).chosen
    lam, counts = np.unique(chosen[~np.isnan(chosen)].round(6), return_counts=True)
    figure.add_bar(
        x=numbers(lam),
        y=counts.tolist(),
        width=0.05,
        yaxis="y2",
        marker={"color": colour, "opacity": 0.75, "line": {"width": 0}},
        name="clients choosing this place",
        hovertemplate=f"λ = %{{x:.2~g}}{mark}: chosen by <b>%{{y}}</b> clients<extra></extra>",
    )
    figure.update_xaxes(
        title_text="place on the path, λ",
        tickvals=[0, 0.25, 0.5, 0.75, 1],
        ticktext=["0<br>shared", "¼", "½", "¾", "1<br>own"],
        range=[-0.04, 1.04],
        anchor="y2",
        showgrid=True,
    )
    figure.update_layout(
        yaxis={"domain": [0.3, 1]},
        yaxis2={
            "domain": [0, 0.17],
            "title": {"text": "clients"},
            "rangemode": "tozero",
            "nticks": 3,
            "tickformat": "d",
            "gridcolor": GRID[0],
            "zeroline": False,
            "automargin": True,
        },
    )
    return figure


def side_by_side(run: Run, metric: str) -> Along | None:
    """Returns a metric of the shared network, of its sum with the own one, and of the own one.

    They lie at 0, 1/2 and 1. Clients whose own network is not trained yet are left out.
    """
    values = np.stack([run.values(metric, "path", at=at) for at in BRANCHES], axis=1)
    owner = ~np.isnan(values).any(axis=1)
    if not owner.any():
        return None
    client = run.federation.client[owner]
    return Along(client, np.array([0, 0.5, 1]), values[owner], np.full(len(client), np.nan))


def branches(run: Run, runs: Sequence[Run]) -> go.Figure:
    """Draws the accuracy and loss of two networks whose logits are added, and of their sum."""
    views = (ACCURACY, LOSS)
    figure = go.Figure(layout=layout(views))
    colour = dict(zip((r.path for r in runs), colours(runs), strict=True))[run.path]
    for view in views:
        along = side_by_side(run, view.metric)
        assert along is not None  # there is something to draw
        shown = {"meta": {"view": view.metric}, "visible": view is views[0]}
        if len(along.client) <= LINES_AT_MOST:
            lines = _clients_lines(along, view, colour)
            lines["hovertemplate"] = (
                "client %{customdata}: %{y:.4~g}" + view.unit + "<extra></extra>"
            )
            figure.add_scatter(**lines, **shown)
        else:
            figure.add_scatter(**_band(along, view, colour), **shown)
        figure.add_scatter(**_mean(along, view, colour), **shown)
    figure.update_xaxes(
        tickvals=[0, 0.5, 1],
        ticktext=["shared<br>alone", "sum", "own<br>alone"],
        range=[-0.06, 1.06],
    )
    return figure


class Reference(NamedTuple):
    """A model that a path is held against: a horizontal line."""

    name: str
    colour: str
    dash: str
    run: Run
    model: str
    places: np.ndarray[Any, np.dtype[np.int64]]

    def mean(self, metric: str) -> float:
        """Returns the mean over the clients that have a value, nan if none has."""
        values = self.run.values(metric, self.model)[self.places]
        known = values[~np.isnan(values)]
        return float(known.mean()) if known.size else np.nan


def references(run: Run, runs: Sequence[Run]) -> list[Reference]:
    """Finds FedAvg's shared model and training alone, on the clients that the path is drawn for."""
    along = run.along("top1")
    if along is None or run.split_digest is None:
        return []
    places = np.searchsorted(run.federation.client, along.client)
    tones = colours(runs)
    found = []
    for method, model, dash in (("fedavg", "shared", "dash"), ("local", "personal", "dot")):
        same = [
            i
            for i, other in enumerate(runs)
            if other.method == method and other.split_digest == run.split_digest
        ]
        same.sort(key=lambda i: runs[i].seed != run.seed)
        for i in same[:1]:
            name = "local, training alone" if method == "local" else "fedavg, shared model"
            reference = Reference(name, tones[i], dash, runs[i], model, places)
            if not np.isnan(runs[i].values("top1", model)[places]).all():
                found.append(reference)
    return found


def align(paths: Sequence[go.Figure]) -> None:
    """Gives figures of paths the same vertical range in each view, so that they compare."""
    for place, view in enumerate(paths[0].layout.meta["views"]):
        values = [
            value
            for figure in paths
            for trace in figure.data
            if trace.meta and trace.meta["view"] == view["name"]
            for value in trace.y
            if value is not None
        ]
        if not values:
            continue
        margin = 0.05 * (max(values) - min(values)) or 1.0
        limits = numbers([min(values) - margin, max(values) + margin])
        for figure in paths:
            views = [dict(each) for each in figure.layout.meta["views"]]
            views[place]["range"] = limits
            figure.layout.meta = {"views": views}
            if place == 0:
                figure.layout.yaxis.range = limits


def _drawn(run: Run, view: View) -> Along:
    along = run.along(view.metric)
    if along is None or along.client.size == 0:
        raise IsthmusError(
            f"{run.path} has no client with an own end yet; draw its path after a later evaluation"
        )
    return along


def _mean(along: Along, view: View, colour: str, where: str = "") -> dict[str, Any]:
    return {
        "x": numbers(along.lam),
        "y": numbers(view.factor * np.mean(along.values, axis=0)),
        "mode": "lines+markers",
        "line": {"color": colour, "width": 3.5},
        "marker": {"size": 7},
        "name": "mean over clients",
        "hovertemplate": f"{where}<b>%{{y:.4~g}}{view.unit}</b><br>mean over "
        f"{len(along.client)} clients, own test parts<extra></extra>",
    }


def _clients_lines(along: Along, view: View, colour: str) -> dict[str, Any]:
    # One trace for all clients: a gap after each keeps their lines apart.
    gap = np.full((len(along.client), 1), np.nan)
    places = np.hstack([np.tile(along.lam, (len(along.client), 1)), gap])
    values = np.hstack([view.factor * along.values, gap])
    return {
        "x": numbers(places.ravel()),
        "y": numbers(values.ravel(), digits=4),
        "customdata": np.repeat(along.client, len(along.lam) + 1).tolist(),
        "mode": "lines",
        "line": {"color": colour, "width": 1},
        "opacity": 0.28,
        "name": "each client",
        "hovertemplate": "client %{customdata}, λ = %{x:.2~g}: %{y:.4~g}" + view.unit + "<br>"
        "its own test part<extra></extra>",
    }


def _band(along: Along, view: View, colour: str) -> dict[str, Any]:
    known = along.values[~np.isnan(along.values).any(axis=1)]
    low, high = (
        view.factor * np.quantile(known, [0.1, 0.9], axis=0)
        if len(known)
        else np.full((2, len(along.lam)), np.nan)
    )
    return {
        "x": numbers(np.concatenate([along.lam, along.lam[::-1]])),
        "y": numbers(np.concatenate([high, low[::-1]])),
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": veil(colour),
        "hoverinfo": "skip",
        "name": "from the 10th to the 90th hundredth of the clients",
    }
