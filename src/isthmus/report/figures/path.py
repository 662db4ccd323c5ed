"""Paths: how good models are from the shared one to the clients' own."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from isthmus.errors import IsthmusError
from isthmus.report import statistics
from isthmus.report.figures.figure import (
    ACCURACY,
    CALIBRATION,
    LOSS,
    Axis,
    Band,
    Bars,
    Figure,
    Lines,
    Mark,
    Points,
    View,
    align,
    offer_views,
    summarize_lines,
)
from isthmus.report.figures.theme import DASHED, DOTTED, SURFACE, Style, choose_colours
from isthmus.report.section import Drawing, FigureInput, PrintFigure, Report, SectionContent
from isthmus.report.tables.formats import DAGGER, format_percent, join_names
from isthmus.report.tables.summary import describe_bands
from isthmus.run.columns import Floats, Integers
from isthmus.run.record import ClientPaths, RecordedRun, find_counterpart

VIEWS = (ACCURACY, LOSS, CALIBRATION)
METRICS = tuple(view.metric for view in VIEWS)
PLACE = "λ = %{x:.2~g}"


class Reference(NamedTuple):
    """A model that a path is compared with: a horizontal line."""

    name: str
    style: Style
    means: Mapping[str, float]  # of each metric, over the clients that have a value


def find_references(run: RecordedRun, runs: Sequence[RecordedRun]) -> list[Reference]:
    """Find FedAvg's shared model and training alone, on the clients that the path is drawn for."""
    along = run.along()
    if along is None:
        return []
    places = np.searchsorted(run.federation.client, along.client)
    references = []
    for method, model, dash, name in (
        ("fedavg", "shared", DASHED, "fedavg, shared model"),
        ("local", "personal", DOTTED, "local, training alone"),
    ):
        other = find_counterpart(run, runs, method)
        if other is not None and not np.isnan(other.values("top1", model)[places]).all():
            values = {metric: other.values(metric, model)[places] for metric in METRICS}
            means = {name: statistics.mean([each]) for name, each in values.items()}
            tones = zip(runs, choose_colours(runs), strict=True)
            colour = next(tone for each, tone in tones if each is other)
            references.append(Reference(name, Style(colour, dash), means))
    return references


def show(report: Report) -> SectionContent | None:
    """Show accuracy, loss and calibration along the paths, and the places of the clients."""
    panels = report.read_runs(RecordedRun.along)
    drawn = [panel for panel in panels if panel.found.client.size]
    if not panels:
        return None
    figures = {}
    for panel in drawn:
        name, path = f"figure-path-{panel.place}", panel.found
        figures[name] = build(panel.run, path, report.runs, panel.tone)
        figures[f"{name}-clients"] = build_clients(panel.run, path, panel.tone)
    values = {
        "waiting": join_names([panel.row.label for panel in panels if not panel.found.client.size]),
        "panels": drawn,
        "shown": [panel.row for panel in drawn],
        "apfl": any(run.method == "apfl" for run in report.runs),
        "lines": _list_means([panel.found for panel in drawn]),
        "find_references": lambda run: find_references(run, report.runs),
        "DOTTED": DOTTED,
        "describe_steps": describe_steps,
    }
    return SectionContent(values, align(figures) if figures else {})


def _list_means(paths: Sequence[ClientPaths]) -> list[list[str]]:
    means = [
        dict(zip(path.lam.tolist(), path.mean("top1").tolist(), strict=True)) for path in paths
    ]
    return [
        [f"{lam:g}", *(format_percent(mean.get(lam)) for mean in means)]
        for lam in sorted({lam for mean in means for lam in mean})
    ]


def build(run: RecordedRun, path: ClientPaths, runs: Sequence[RecordedRun], colour: str) -> Figure:
    """Return a metric from the shared model to the clients' own; a slider moves ring and dots."""
    start = len(path.lam) // 2  # in the middle
    here = f"client %{{customdata}}, {PLACE}: <b>%{{y:.4~g}}"
    marks: list[Mark] = []
    for view in VIEWS:
        metric, shown = view.metric, {"view": view.metric}
        lines, mean = summarize_lines(
            path.client, path.lam, path.values[metric], view, colour, PLACE
        )
        marks += [lines, *_draw_references(run, runs, view), mean]
        marks.append(_draw_personal(run, path, view, colour))
        marks.append(
            Points(
                x=np.full(len(path.client), path.lam[start]),
                y=view.factor * path.values[metric][:, start],
                data=path.client,
                colour=colour,
                edge=(1, SURFACE[0]),
                name="each client, here",
                hover=f"{here}{view.unit}</b><br>its own test part",
                shown=shown,
                tables={"x": "lam", "y": metric},
            )
        )
        marks.append(
            Points(
                x=path.lam[[start]],
                y=view.factor * path.mean(metric)[[start]],
                colour="rgba(0,0,0,0)",
                size=17,
                edge=(3.5, colour),
                name="mean, here",
                shown=shown,
                tables={"x": "place", "y": f"mean {metric}"},
            )
        )
    lam, counts = count_places(path.chosen)
    mark = DAGGER if run.chosen_on_test else ""
    marks.append(
        Bars(
            x=lam,
            y=counts,
            width=0.05,
            lower=True,
            colour=colour,
            edge=0,
            name="personal models at this place",
            hover=f"λ = %{{x:.2~g}}{mark}: the place of <b>%{{y}}</b> clients",
        )
    )
    ticks = {0: "0<br>shared", 0.25: "¼", 0.5: "½", 0.75: "¾", 1: "1<br>own"}
    return Figure(
        marks,
        x=Axis("place on the path, λ", (-0.04, 1.04), ticks),
        below=Axis("clients", from_zero=True),
        switches={"views": offer_views(VIEWS)},
        tables=list_steps(path),
    )


def build_clients(run: RecordedRun, path: ClientPaths, colour: str) -> Figure:
    """Return every client's model at the slider's place beside its personal one, client by client.

    Its data come from the tables of `build`, which the slider names first.
    """
    start = len(path.lam) // 2
    order = np.lexsort((path.client, path.chosen))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    marks: list[Mark] = []
    for view in VIEWS:
        marks.append(_draw_personal(run, path, view, colour, rank))
        marks.append(
            Points(
                x=rank,
                y=view.factor * path.values[view.metric][:, start],
                data=path.client,
                colour=colour,
                name="each client, here",
                hover=f"client %{{customdata}}: <b>%{{y:.4~g}}{view.unit}</b> at the slider's place"
                "<br>its own test part",
                shown={"view": view.metric},
                tables={"y": view.metric},
            )
        )
    return Figure(
        marks,
        x=Axis("clients, by the λ of their personal model", labelled=False, grid=False),
        switches={"views": offer_views(VIEWS)},
    )


def count_places(chosen: Floats) -> tuple[Floats, Integers]:
    """Return the places that personal models have on their paths, and how many have each."""
    lam, counts = np.unique(chosen[~np.isnan(chosen)].round(6), return_counts=True)
    return lam, counts


def list_steps(path: ClientPaths) -> dict[str, list[Any]]:
    """Return, for every place that was measured, what a slider shows there."""
    tables: dict[str, list[Any]] = {
        "place": list(path.lam[:, None]),
        "lam": [np.full(len(path.client), lam) for lam in path.lam],
        "words": describe_steps(path),
    }
    for view in VIEWS:
        values = view.factor * path.values[view.metric]
        tables[view.metric] = list(values.T)
        tables[f"mean {view.metric}"] = list(values.mean(axis=0)[:, None])
    return tables


def describe_steps(path: ClientPaths) -> list[str]:
    """Describe, for every place that was measured, how good the models there are."""
    accuracy, loss, error = (path.mean(view.metric) for view in VIEWS)
    return [
        f"λ = {lam:.2g}: mean accuracy {100 * top:.2f} %, loss {nats:.3f}, "
        f"calibration error {100 * gap:.2f} %"
        for lam, top, nats, gap in zip(path.lam, accuracy, loss, error, strict=True)
    ]


def _draw_personal(
    run: RecordedRun, path: ClientPaths, view: View, colour: str, rank: Integers | None = None
) -> Points:
    """Return the personal models at their places, or at their ranks by these."""
    mark = DAGGER if run.chosen_on_test else ""
    return Points(
        x=path.chosen if rank is None else rank,
        y=view.factor * path.personal[view.metric],
        data=[
            [int(client), f"{place:.2g}"]
            for client, place in zip(path.client, path.chosen, strict=True)
        ],
        colour=colour,
        symbol="diamond-open",
        size=9,
        edge=(1.5, colour),
        name="personal models",
        hover=f"<b>personal model of client %{{customdata[0]}}</b>, λ = %{{customdata[1]}}{mark}: "
        f"<b>%{{y:.4~g}}{view.unit}</b><br>its own test part",
        shown={"view": view.metric},
    )


def _draw_references(run: RecordedRun, runs: Sequence[RecordedRun], view: View) -> list[Lines]:
    return [
        Lines(
            x=np.array([0, 1]),
            y=np.full(2, view.factor * reference.means[view.metric]),
            style=reference.style,
            width=1.6,
            name=reference.name,
            hover=f"<b>{reference.name}</b>: <b>%{{y:.4~g}}{view.unit}</b><br>"
            "mean over the same clients, own test parts",
            shown={"view": view.metric},
        )
        for reference in find_references(run, runs)
    ]


def draw(given: FigureInput) -> Drawing:
    """Return a metric along the paths, and how many personal models lie where, for print."""
    view, shown = given.view, []
    marks: list[Mark] = []
    for group, style in zip(given.groups, given.styles, strict=True):
        of_runs = [along for run in group.runs if (along := run.along()) and along.client.size]
        shown.append(bool(of_runs))
        if not of_runs:
            continue
        lam = of_runs[0].lam
        means = view.factor * np.stack([along.mean(view.metric) for along in of_runs])  # [S, L]
        if len(means) > 1:
            low, high = means.min(0), means.max(0)
            marks.append(Band(x=lam, low=low, high=high, colour=style.colour))
        marks.append(Lines(x=lam, y=means.mean(0), style=style))
        places, counts = count_places(np.concatenate([along.chosen for along in of_runs]))
        share = 100 * counts / max(counts.sum(), 1)
        marks.append(Lines(x=places, y=share, style=style, lower=True))
    if not any(shown):
        raise IsthmusError(
            "none of these runs has a path to trained own models; add a run of superfed-mm or "
            "superfed-lm, or wait for a later evaluation"
        )
    found: dict[str, list[Reference]] = {}
    for run in given.runs:
        for reference in find_references(run, given.runs):
            found.setdefault(reference.name, []).append(reference)
    marks += [
        Lines(
            x=np.array([0, 1]),
            y=np.full(2, view.factor * np.mean([each.means[view.metric] for each in same])),
            style=same[0].style._replace(colour="0.45"),
            label=name,
        )
        for name, same in found.items()
    ]
    figure = Figure(
        marks,
        x=Axis("place on the path, λ (0 shared, 1 own)"),
        y=Axis(view.axis),
        below=Axis("clients, %", from_zero=True),
        share=0.25,
        legend=given.list_legend(shown),
    )
    horizontal = " Horizontal: means over the same clients." if found else ""
    caption = (
        "Above: models on the line (1 − λ) · shared + λ · own, mean over the clients with a "
        f"trained own model, each on its own test part.{horizontal} Below: share of clients whose "
        f"personal model is at that point.{describe_bands(given.groups)}"
    )
    return Drawing([figure], caption)


PRINT_FIGURE = PrintFigure("path", "a metric from the shared to the own models", draw, 1.0, METRICS)
