"""The section about paths: how good models are from the shared one to the clients' own."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from isthmus.errors import IsthmusError
from isthmus.records.reader import Along, Run
from isthmus.report import controls, markup
from isthmus.report.figures.geometry import Path, walked
from isthmus.report.figures.theme import (
    ACCURACY,
    CALIBRATION,
    GRID,
    LOSS,
    SURFACE,
    View,
    colours,
    layout,
    numbers,
    veil,
)
from isthmus.report.markup import escaped, folded, footnote, listed, plot, swatch, views
from isthmus.report.tables import summary as tables
from isthmus.report.tables.summary import DAGGER, MISSING

VIEWS = (ACCURACY, LOSS, CALIBRATION)
LINES_AT_MOST = 60  # clients drawn one by one along the path; more become a band


def section(runs: Sequence[Run], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]) -> str:
    """Shows accuracy, loss and calibration along the paths, and the places of the clients."""
    parts, names, shown, waiting, lines = [], [], [], [], []
    for i, run in enumerate(runs):
        path = walked(run)
        if path is None:
            continue
        if path.client.size == 0:
            waiting.append(rows[i].label)
            continue
        name = f"figure-path-{i}"
        drawn[name], drawn[f"{name}-clients"] = along_path(run, runs), of_clients(run, runs)
        names += [name, f"{name}-clients"]
        shown.append(rows[i])
        lines.append((rows[i].label, path))
        parts.append((rows[i].label, _panel(name, run, runs, rows[i], path)))
    late = (
        f"<p class='note'>Not drawn: in {escaped(listed(waiting))} no client has trained an own "
        "end yet.</p>"
        if waiting
        else ""
    )
    if not names:
        return late
    align([drawn[name] for name in names])
    given = "; of apfl, its mixing share" if any(run.method == "apfl" for run in runs) else ""
    caption = (
        "Models on the straight line (1 − λ) · shared + λ · own, each on the client's own test "
        "part, at the last evaluated round. The slider stops where models were measured, and shows "
        "their recorded figures. Bold: mean over the clients that have an own end, the ring at the "
        "slider's place. Dots: each client's model at the slider's place. Open diamonds: each "
        f"client's personal model, at the place it has{given}. Thin lines: each client, or a band "
        "from the 10th to the 90th hundredth of many. Horizontal lines: means over the same "
        "clients. Bars: how many of these clients have their personal model there. "
        f"{escaped(tables.selection(shown) or '')} The curves are measured on the test parts "
        "whatever the rule." + (f" {tables.BATCHED}" if any(row.per_batch for row in shown) else "")
    )
    return (
        "<p>Walk from the shared model to the client's own. If the two were strangers, the models "
        "between them would be useless: accuracy would sag in the middle. A path that stays high, "
        "or rises above both ends, is the isthmus these methods build.</p>"
        f"<div class='controls'>{views(drawn[names[0]], names, 'path-metric')}</div>"
        f"{controls.panels('path-run', 'Run', parts)}<p class='caption'>{caption}</p>"
        f"{footnote(shown, 'p')}{late}" + folded("The curves as a table", _table(lines))
    )


def along_path(run: Run, runs: Sequence[Run]) -> go.Figure:
    """Draws a metric from the shared model to the clients' own; a slider moves ring and dots."""
    path = drawable(run)
    start = _start(path)
    figure = go.Figure(layout=layout(VIEWS))
    colour = dict(zip((r.path for r in runs), colours(runs), strict=True))[run.path]
    mark = DAGGER if run.chosen_on_test else ""
    for view in VIEWS:
        metric, factor = view.metric, view.factor
        along = Along(path.client, path.lam, path.values[metric], path.chosen)
        shown = {"meta": {"view": metric}, "visible": view is VIEWS[0]}
        one_by_one = len(path.client) <= LINES_AT_MOST
        figure.add_scatter(**(lines if one_by_one else band)(along, view, colour), **shown)
        for reference in references(run, runs):
            level = factor * reference.mean(metric)
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
        figure.add_scatter(**mean_line(along, view, colour, "λ = %{x:.2~g}: "), **shown)
        figure.add_scatter(
            x=numbers(path.chosen),
            y=numbers(factor * path.personal[metric]),
            customdata=path.client.tolist(),
            **_personal(view, colour, mark),
            **shown,
        )
        figure.add_scatter(
            x=[float(path.lam[start])] * len(path.client),
            y=numbers(factor * path.values[metric][:, start]),
            customdata=path.client.tolist(),
            mode="markers",
            marker={"size": 7, "color": colour, "line": {"width": 1, "color": SURFACE[0]}},
            name="each client, here",
            hovertemplate="client %{customdata}, λ = %{x:.2~g}: <b>%{y:.4~g}"
            f"{view.unit}</b><br>its own test part<extra></extra>",
            visible=shown["visible"],
            meta={"view": metric, "from": {"x": "lam", "y": metric}},
        )
        figure.add_scatter(
            x=[float(path.lam[start])],
            y=numbers(factor * path.mean(metric)[[start]]),
            mode="markers",
            marker={
                "size": 17,
                "color": "rgba(0,0,0,0)",
                "line": {"width": 3.5, "color": colour},
            },
            hoverinfo="skip",
            name="mean, here",
            visible=shown["visible"],
            meta={"view": metric, "from": {"x": "place", "y": f"mean {metric}"}},
        )
    lam, counts = np.unique(path.chosen[~np.isnan(path.chosen)].round(6), return_counts=True)
    figure.add_bar(
        x=numbers(lam),
        y=counts.tolist(),
        width=0.05,
        yaxis="y2",
        marker={"color": colour, "opacity": 0.75, "line": {"width": 0}},
        name="personal models at this place",
        hovertemplate=f"λ = %{{x:.2~g}}{mark}: the place of <b>%{{y}}</b> clients<extra></extra>",
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
    controls.explored(figure, steps(path))
    return figure


def of_clients(run: Run, runs: Sequence[Run]) -> go.Figure:
    """Draws every client's model at the slider's place beside its personal one, client by client.

    Its data come from the tables of `along_path`, which the slider names first.
    """
    path = drawable(run)
    start = _start(path)
    figure = go.Figure(layout=layout(VIEWS))
    colour = dict(zip((r.path for r in runs), colours(runs), strict=True))[run.path]
    mark = DAGGER if run.chosen_on_test else ""
    order = np.lexsort((path.client, path.chosen))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    for view in VIEWS:
        shown = {"x": rank.tolist(), "visible": view is VIEWS[0]}
        figure.add_scatter(
            y=numbers(view.factor * path.personal[view.metric]),
            customdata=[
                [int(client), f"{place:.2g}"]
                for client, place in zip(path.client, path.chosen, strict=True)
            ],
            **_personal(view, colour, mark, "%{customdata[0]}", "%{customdata[1]}"),
            meta={"view": view.metric},
            **shown,
        )
        figure.add_scatter(
            y=numbers(view.factor * path.values[view.metric][:, start]),
            customdata=path.client.tolist(),
            mode="markers",
            marker={"size": 7, "color": colour},
            name="each client, here",
            hovertemplate="client %{customdata}: <b>%{y:.4~g}"
            f"{view.unit}</b> at the slider's place<br>its own test part<extra></extra>",
            meta={"view": view.metric, "from": {"y": view.metric}},
            **shown,
        )
    figure.update_xaxes(
        title_text="clients, by the λ of their personal model",
        showticklabels=False,
        showgrid=False,
    )
    return figure


def steps(path: Path) -> dict[str, list[Any]]:
    """Lists, for every place that was measured, what a slider shows there."""
    found: dict[str, list[Any]] = {
        "place": [[round(float(lam), 6)] for lam in path.lam],
        "lam": [[round(float(lam), 6)] * len(path.client) for lam in path.lam],
        "said": _said(path),
    }
    for view in VIEWS:
        values = view.factor * path.values[view.metric]
        found[view.metric] = [numbers(column) for column in values.T]
        found[f"mean {view.metric}"] = [numbers([mean]) for mean in values.mean(axis=0)]
    return found


def drawable(run: Run) -> Path:
    """Collects a run's path, or says why there is none to draw."""
    path = walked(run)
    if path is None or path.client.size == 0:
        raise IsthmusError(
            f"{run.path} has no client with an own end; expected a path, as superfed-mm or apfl "
            "have after some rounds; take such a run, or a later evaluation"
        )
    return path


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
        values = [value for figure in paths for value in _heights(figure, view["name"])]
        if not values:
            continue
        margin = 0.05 * (max(values) - min(values)) or 1.0
        limits = numbers([min(values) - margin, max(values) + margin])
        for figure in paths:
            views = [dict(each) for each in figure.layout.meta["views"]]
            views[place]["range"] = limits
            figure.layout.meta = {**figure.layout.meta, "views": views}
            if place == 0:
                figure.layout.yaxis.range = limits


def _heights(figure: go.Figure, view: str) -> list[float]:
    seen = [trace.y for trace in figure.data if trace.meta and trace.meta["view"] == view]
    seen += figure.layout.meta.get("tables", {}).get(view, [])
    return [value for column in seen for value in column if value is not None]


def _panel(name: str, run: Run, runs: Sequence[Run], row: tables.Row, path: Path) -> str:
    means = 100 * path.mean("top1")
    chosen = 100 * np.nanmean(path.personal["top1"])
    said = (
        f"shared end <strong>{means[0]:.2f} %</strong>, own end "
        f"<strong>{means[-1]:.2f} %</strong>, personal models "
        f"<strong>{escaped(row.marked(f'{chosen:.2f} %'))}</strong>; "
        f"{len(path.client)} of {len(run.federation.client)} clients have an own end"
    )
    keys = "".join(
        f"<br>{swatch(reference.colour, f'key {reference.dash}')}{escaped(reference.name)}: "
        f"{100 * reference.mean('top1'):.2f} %"
        for reference in references(run, runs)
    )
    tone = dict(zip((r.path for r in runs), colours(runs), strict=True))[run.path]
    slider = controls.slider(
        name.replace("figure", "slider"),
        [name, f"{name}-clients"],
        "Place on the path, λ",
        _said(path),
        _start(path),
    )
    return (
        f"<div class='card'><h3>{swatch(tone)}{escaped(row.label)}</h3><p>{said}{keys}</p>{slider}"
        f"<div class='beside'>{plot(name, 430, 'A metric from the shared to the own model')}"
        f"{plot(f'{name}-clients', 430, 'Each client at the place of the slider')}</div></div>"
    )


def _said(path: Path) -> list[str]:
    accuracy, loss, error = (path.mean(view.metric) for view in VIEWS)
    return [
        f"λ = {lam:.2g}: mean accuracy {100 * top:.2f} %, loss {nats:.3f}, "
        f"calibration error {100 * gap:.2f} %"
        for lam, top, nats, gap in zip(path.lam, accuracy, loss, error, strict=True)
    ]


def _start(path: Path) -> int:
    return len(path.lam) // 2


def _table(lines: Sequence[tuple[str, Path]]) -> str:
    means = [
        dict(zip(path.lam.tolist(), (100 * path.mean("top1")).tolist(), strict=True))
        for _, path in lines
    ]
    return markup.table(
        ["λ", *(label for label, _ in lines)],
        [
            [f"{lam:g}", *(f"{mean[lam]:.2f}" if lam in mean else MISSING for mean in means)]
            for lam in sorted({lam for mean in means for lam in mean})
        ],
        "Mean top-1 accuracy, %, over the clients that have an own end, on their test parts",
    )


def _personal(
    view: View, colour: str, mark: str, client: str = "%{customdata}", lam: str = "%{x:.2~g}"
) -> dict[str, Any]:
    return {
        "mode": "markers",
        "marker": {"symbol": "diamond-open", "size": 9, "color": colour, "line": {"width": 1.5}},
        "name": "personal models",
        "hovertemplate": f"<b>personal model of client {client}</b>, λ = {lam}{mark}: "
        f"<b>%{{y:.4~g}}{view.unit}</b><br>its own test part<extra></extra>",
    }


def mean_line(along: Along, view: View, colour: str, where: str = "") -> dict[str, Any]:
    """Gives the trace of the mean over clients."""
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


def lines(along: Along, view: View, colour: str) -> dict[str, Any]:
    """Gives the trace of every client's line."""
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


def band(along: Along, view: View, colour: str) -> dict[str, Any]:
    """Gives the trace of a band that holds four fifths of the clients at each place."""
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
