"""Paths: how good models are from the shared one to the clients' own."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from isthmus.errors import IsthmusError
from isthmus.report.figures import lines, paper
from isthmus.report.figures.theme import (
    ACCURACY,
    CALIBRATION,
    GRID,
    LOSS,
    SURFACE,
    View,
    build_layout,
    find_colour,
    round_numbers,
)
from isthmus.report.section import FigureInput, PrintFigure, Report, SectionContent
from isthmus.report.tables.formats import DAGGER, MISSING, join_names
from isthmus.run.columns import Floats, Integers
from isthmus.run.record import PathCurve, RecordedRun, find_counterpart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VIEWS = (ACCURACY, LOSS, CALIBRATION)
METRICS = tuple(view.metric for view in VIEWS)


class ClientPaths(NamedTuple):
    """What was measured along the paths of the M clients that have an end of their own."""

    client: Integers  # [M]
    lam: Floats  # [L]
    chosen: Floats  # [M]: where the client's personal model lies
    values: Mapping[str, Floats]  # of each metric, [M, L]
    personal: Mapping[str, Floats]  # of each metric, [M]

    def mean(self, metric: str) -> Floats:
        """Averages a metric over the clients, at each place."""
        mean: Floats = np.mean(self.values[metric], axis=0)
        return mean


def collect_path(run: RecordedRun) -> ClientPaths | None:
    """Collects what a run recorded along its paths at the last evaluated round, if it has paths."""
    along = {metric: run.along(metric) for metric in METRICS}
    first = along["top1"]
    if first is None:
        return None
    places = np.searchsorted(run.federation.client, first.client)
    return ClientPaths(
        first.client,
        first.lam,
        first.chosen,
        {metric: each.values for metric, each in along.items() if each is not None},
        {metric: run.values(metric)[places] for metric in METRICS},
    )


def find_middle(path: ClientPaths) -> int:
    """Finds the place in the middle, where a slider starts."""
    return len(path.lam) // 2


class Reference(NamedTuple):
    """A model that a path is held against: a horizontal line."""

    name: str
    colour: str
    dash: str
    run: RecordedRun
    model: str
    places: Integers

    def mean(self, metric: str) -> float:
        """Returns the mean over the clients that have a value, nan if none has."""
        values = self.run.values(metric, self.model)[self.places]
        known = values[~np.isnan(values)]
        return float(known.mean()) if known.size else np.nan


def find_references(run: RecordedRun, runs: Sequence[RecordedRun]) -> list[Reference]:
    """Finds FedAvg's shared model and training alone, on the clients that the path is drawn for."""
    along = run.along("top1")
    if along is None:
        return []
    places = np.searchsorted(run.federation.client, along.client)
    references = []
    for method, model, dash, name in (
        ("fedavg", "shared", "dash", "fedavg, shared model"),
        ("local", "personal", "dot", "local, training alone"),
    ):
        other = find_counterpart(run, runs, method)
        if other is not None and not np.isnan(other.values("top1", model)[places]).all():
            colour = find_colour(other, runs)
            references.append(Reference(name, colour, dash, other, model, places))
    return references


def show(report: Report) -> SectionContent | None:
    """Shows accuracy, loss and calibration along the paths, and the places of the clients."""
    paths = {i: path for i, run in enumerate(report.runs) if (path := collect_path(run))}
    drawn = {i: path for i, path in paths.items() if path.client.size}
    if not paths:
        return None
    figures = {}
    for i, path in drawn.items():
        run = report.runs[i]
        figures[f"figure-path-{i}"] = plot_path(run, path, report.runs)
        figures[f"figure-path-{i}-clients"] = plot_clients(run, path, report.tones[i])
    if figures:
        lines.align(list(figures.values()))
    values = {
        "waiting": join_names([report.rows[i].label for i in paths if i not in drawn]),
        "panels": [_describe_panel(report, i, path) for i, path in drawn.items()],
        "shown": [report.rows[i] for i in drawn],
        "apfl": any(run.method == "apfl" for run in report.runs),
        "head": ["λ", *(report.rows[i].label for i in drawn)],
        "lines": _list_means(list(drawn.values())),
    }
    return SectionContent(values, figures)


def _describe_panel(report: Report, i: int, path: ClientPaths) -> dict[str, Any]:
    run, row = report.runs[i], report.rows[i]
    means = 100 * path.mean("top1")
    chosen = 100 * np.nanmean(path.personal["top1"])
    return {
        "name": f"path-{i}",
        "tone": report.tones[i],
        "label": row.label,
        "shared": f"{means[0]:.2f} %",
        "own": f"{means[-1]:.2f} %",
        "personal": row.mark(f"{chosen:.2f} %"),
        "clients": len(path.client),
        "total": len(run.federation.client),
        "references": [
            (reference, f"{100 * reference.mean('top1'):.2f} %")
            for reference in find_references(run, report.runs)
        ],
        "steps": describe_steps(path),
        "start": find_middle(path),
    }


def _list_means(paths: Sequence[ClientPaths]) -> list[list[str]]:
    means = [
        dict(zip(path.lam.tolist(), (100 * path.mean("top1")).tolist(), strict=True))
        for path in paths
    ]
    return [
        [f"{lam:g}", *(f"{mean[lam]:.2f}" if lam in mean else MISSING for mean in means)]
        for lam in sorted({lam for mean in means for lam in mean})
    ]


def plot_path(run: RecordedRun, path: ClientPaths, runs: Sequence[RecordedRun]) -> go.Figure:
    """Draws a metric from the shared model to the clients' own; a slider moves ring and dots."""
    start = find_middle(path)
    figure = go.Figure(layout=build_layout(VIEWS))
    colour = find_colour(run, runs)
    mark = DAGGER if run.chosen_on_test else ""
    references = find_references(run, runs)
    for view in VIEWS:
        metric, factor = view.metric, view.factor
        along = PathCurve(path.client, path.lam, path.values[metric], path.chosen)
        shown = {"meta": {"view": metric}, "visible": view is VIEWS[0]}
        figure.add_scatter(**lines.draw_clients(along, view, colour), **shown)
        for reference in references:
            level = factor * reference.mean(metric)
            figure.add_scatter(
                x=[0, 1],
                y=round_numbers([level, level]),
                mode="lines",
                line={"color": reference.colour, "width": 1.6, "dash": reference.dash},
                name=reference.name,
                hovertemplate=f"<b>{reference.name}</b>: <b>%{{y:.4~g}}{view.unit}</b><br>"
                "mean over the same clients, own test parts<extra></extra>",
                **shown,
            )
        figure.add_scatter(**lines.draw_mean(along, view, colour, "λ = %{x:.2~g}: "), **shown)
        figure.add_scatter(
            x=round_numbers(path.chosen),
            y=round_numbers(factor * path.personal[metric]),
            customdata=path.client.tolist(),
            **_draw_personal(view, colour, mark),
            **shown,
        )
        figure.add_scatter(
            x=[float(path.lam[start])] * len(path.client),
            y=round_numbers(factor * path.values[metric][:, start]),
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
            y=round_numbers(factor * path.mean(metric)[[start]]),
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
        x=round_numbers(lam),
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
    figure.layout.meta |= {"tables": list_steps(path)}
    return figure


def plot_clients(run: RecordedRun, path: ClientPaths, colour: str) -> go.Figure:
    """Draws every client's model at the slider's place beside its personal one, client by client.

    Its data come from the tables of `plot_path`, which the slider names first.
    """
    start = find_middle(path)
    figure = go.Figure(layout=build_layout(VIEWS))
    mark = DAGGER if run.chosen_on_test else ""
    order = np.lexsort((path.client, path.chosen))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    for view in VIEWS:
        shown = {"x": rank.tolist(), "visible": view is VIEWS[0]}
        figure.add_scatter(
            y=round_numbers(view.factor * path.personal[view.metric]),
            customdata=[
                [int(client), f"{place:.2g}"]
                for client, place in zip(path.client, path.chosen, strict=True)
            ],
            **_draw_personal(view, colour, mark, "%{customdata[0]}", "%{customdata[1]}"),
            meta={"view": view.metric},
            **shown,
        )
        figure.add_scatter(
            y=round_numbers(view.factor * path.values[view.metric][:, start]),
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


def list_steps(path: ClientPaths) -> dict[str, list[Any]]:
    """Lists, for every place that was measured, what a slider shows there."""
    tables: dict[str, list[Any]] = {
        "place": [[round(float(lam), 6)] for lam in path.lam],
        "lam": [[round(float(lam), 6)] * len(path.client) for lam in path.lam],
        "words": describe_steps(path),
    }
    for view in VIEWS:
        values = view.factor * path.values[view.metric]
        tables[view.metric] = [round_numbers(column) for column in values.T]
        tables[f"mean {view.metric}"] = [round_numbers([mean]) for mean in values.mean(axis=0)]
    return tables


def describe_steps(path: ClientPaths) -> list[str]:
    """Says, for every place that was measured, how good the models there are."""
    accuracy, loss, error = (path.mean(view.metric) for view in VIEWS)
    return [
        f"λ = {lam:.2g}: mean accuracy {100 * top:.2f} %, loss {nats:.3f}, "
        f"calibration error {100 * gap:.2f} %"
        for lam, top, nats, gap in zip(path.lam, accuracy, loss, error, strict=True)
    ]


def _draw_personal(
    view: View, colour: str, mark: str, client: str = "%{customdata}", lam: str = "%{x:.2~g}"
) -> dict[str, Any]:
    return {
        "mode": "markers",
        "marker": {"symbol": "diamond-open", "size": 9, "color": colour, "line": {"width": 1.5}},
        "name": "personal models",
        "hovertemplate": f"<b>personal model of client {client}</b>, λ = {lam}{mark}: "
        f"<b>%{{y:.4~g}}{view.unit}</b><br>its own test part<extra></extra>",
    }


def draw(figure: "Figure", given: FigureInput) -> str:
    """Draws a metric along the paths, and who chose which place, for print."""
    above, below = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    view, shown = given.view, []
    for group, style in zip(given.groups, given.styles, strict=True):
        of_runs = [along for run in group.runs if (along := run.along(view.metric)) is not None]
        of_runs = [along for along in of_runs if along.client.size]
        shown.append(bool(of_runs))
        if not of_runs:
            continue
        lam = of_runs[0].lam
        means = view.factor * np.stack([along.values.mean(0) for along in of_runs])  # [S, L]
        if len(means) > 1:
            paper.draw_band(above, lam, np.stack([means.min(0), means.max(0)]), style)
        paper.draw_curve(above, lam, means.mean(0), style)
        chosen = np.concatenate([along.chosen for along in of_runs])
        places, counts = np.unique(chosen[~np.isnan(chosen)].round(6), return_counts=True)
        paper.draw_curve(below, places, 100 * counts / max(counts.sum(), 1), style)
    if not any(shown):
        raise IsthmusError(
            "no run here has a path with an own end; expected one of superfed-mm, superfed-lm; "
            "add one, or draw it after a later evaluation"
        )
    horizontal = _draw_references(above, given)
    above.set(ylabel=view.axis)
    below.set(xlabel="place on the path, λ (0 shared, 1 own)", ylabel="clients, %", ylim=(0, None))
    paper.draw_legend(figure, given, shown)
    return (
        "Above: models on the line (1 − λ) · shared + λ · own, mean over the clients that have an "
        f"own end, each on its own test part.{horizontal} Below: share of clients whose personal "
        f"model lies there.{paper.describe_bands(given)}"
    )


def _draw_references(axes: "Axes", given: FigureInput) -> str:
    means: dict[str, list[float]] = {}
    for run in given.runs:
        for reference in find_references(run, given.runs):
            means.setdefault(reference.name, []).append(reference.mean(given.view.metric))
    patterns = ((1.0, 1.5), (4.0, 2.0))
    for (name, values), dash in zip(means.items(), patterns, strict=False):
        level = given.view.factor * float(np.mean(values))
        axes.axhline(level, color="0.45", linewidth=0.9, linestyle=(0, dash))
        axes.annotate(name, (1, level), ha="right", va="bottom", fontsize=6, color="0.3")
    return " Horizontal: means over the same clients." if means else ""


PRINT_FIGURE = PrintFigure("path", "from the shared to the own model", draw, 1.0, METRICS)
