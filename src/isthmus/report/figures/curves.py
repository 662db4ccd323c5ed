"""The section about curves: over rounds, over seconds and over bytes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from isthmus.report import markup, seeds
from isthmus.report.figures import theme as figures
from isthmus.report.figures.theme import (
    ACCURACY,
    CALIBRATION,
    LOSS,
    Style,
    View,
    numbers,
    plain,
    veil,
)
from isthmus.report.groups import Group
from isthmus.report.markup import escaped, footnote, plot, views
from isthmus.report.seeds import Axis, Line
from isthmus.report.tables import summary as tables
from isthmus.report.tables.summary import DAGGER, MISSING, PER_BATCH

VARIANCE = View(seeds.VARIANCE, "Last layers", "variance of the last layers", 1, "", "log")
MODELS = ("personal", "shared")
MARKERS_AT_MOST = 15  # on one line


def section(
    groups: Sequence[Group], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]
) -> str:
    """Shows how the models become better as rounds, seconds and bytes are spent."""
    figure = drawn["figure-rounds"] = curves(groups)
    name = ["figure-rounds"]
    switches = "".join(
        views(figure, name, f"curves-{switch}", switch, said)
        for switch, said in (("views", "Number"), ("axes", "Against"), ("models", "Models"))
    )
    columns = _columns(groups, rows)
    table = markup.table(
        ["round", *columns],
        [
            [str(t), *(column.get(t, MISSING) for column in columns.values())]
            for t in sorted({t for column in columns.values() for t in column})
        ],
        "Mean top-1 accuracy, %, over clients on their own test parts",
    )
    band = (
        " <strong>Bands: from the lowest to the highest seed</strong>; lines: the mean of the "
        "seeds at each round that all of them evaluated."
        if any(len(group.runs) > 1 for group in groups)
        else ""
    )
    variance = (
        " Last layers: the total variance of those that came back in a round."
        if any(view["name"] == seeds.VARIANCE for view in figure.layout.meta["views"])
        else ""
    )
    caption = (
        "<strong>Personal models</strong> are what each client deploys, <strong>the shared "
        "model</strong> is the same for everybody, where a method has one. Mean over all clients "
        f"of a run, each on its own test part, at every evaluated round.{band} Seconds: of "
        "training, without evaluation, on the machine that ran it. Bytes: down to the clients and "
        "up to the server; a method that sends less than a thousandth of the most is a level line "
        "at where it ended."
        f"{variance} {escaped(tables.selection(rows) or '')}"
        + (f" {tables.BATCHED}" if any(row.per_batch for row in rows) else "")
    )
    what = "Mean over clients against rounds, seconds or bytes, one line per method"
    return (
        "<p>How good the models become as clients and server exchange more rounds, and what that "
        "costs in time and traffic. Higher is better for accuracy, lower for loss and calibration "
        "error.</p>"
        f"<figure class='card'><div class='controls'>{switches}</div>"
        f"{markup.legend(name, groups, rows)}{plot(name[0], 400, what)}"
        f"<figcaption>{caption}{footnote(rows)}</figcaption>"
        f"<details><summary>The accuracies as a table</summary>{table}</details></figure>"
    )


def curves(groups: Sequence[Group]) -> go.Figure:
    """Draws every number against everything it can be drawn against, one line per group."""
    shown = [(view, model) for view in (ACCURACY, LOSS, CALIBRATION) for model in MODELS]
    found = {
        (view, model): [seeds.series(group, view.metric, model) for group in groups]
        for view, model in shown
    }
    found[VARIANCE, ""] = [seeds.series(group, seeds.VARIANCE) for group in groups]
    kept = {key: each for key, each in found.items() if any(each)}
    offered = list(dict.fromkeys(view for view, _ in kept))
    figure = go.Figure(layout=figures.layout(offered))
    axes = seeds.axes(found[ACCURACY, "personal"])
    models = [model for model in MODELS if (ACCURACY, model) in kept]
    for (view, model), each in kept.items():
        for axis in axes:
            visible = (view, model or models[0], axis) == (ACCURACY, models[0], axes[0])
            meta = {"view": view.metric, "axis": axis.name} | ({"model": model} if model else {})
            _add(figure, groups, seeds.lines(each, axis), view, axis, meta, visible)
    said = {"personal": "Personal models", "shared": "Shared model"}
    figure.layout.meta |= {
        "axes": [{"name": axis.name, "label": axis.label, "axis": axis.title} for axis in axes],
        "models": [{"name": model, "label": said[model]} for model in models],
    }
    figure.update_xaxes(title_text=axes[0].title, rangemode="tozero")
    return figure


def _add(
    figure: go.Figure,
    groups: Sequence[Group],
    lines: Sequence[Line | None],
    view: View,
    axis: Axis,
    meta: dict[str, Any],
    visible: bool,
) -> None:
    styles = figures.styles([group.runs[0] for group in groups])
    drawn = list(enumerate(zip(groups, lines, styles, strict=True)))
    for place, (_, line, style) in drawn:
        if line is not None and line.seeds > 1:
            figure.add_scatter(
                **_band(line, view, style), meta=meta | {"run": place}, visible=visible
            )
    for place, (group, line, style) in drawn:
        if line is not None:
            name = plain(group.label)
            mark = (
                DAGGER if meta.get("model") == "personal" and group.runs[0].chosen_on_test else ""
            )
            mark += PER_BATCH if view is CALIBRATION and group.runs[0].per_batch else ""
            figure.add_scatter(
                **_mean(line, view, axis, style, name + mark, meta.get("model")),
                meta=meta | {"run": place},
                visible=visible,
            )


def _mean(
    line: Line, view: View, axis: Axis, style: Style, name: str, model: str | None
) -> dict[str, Any]:
    where = "sends next to nothing; it ended with" if line.level else f"%{{x:.4~g}} {axis.unit}, "
    where += "" if line.level else "after round %{customdata[0]}: "
    over = "mean over clients, own test parts" if model else "of those that came back"
    customdata: list[list[float | None]] = [[int(t)] for t in line.round]
    if line.seeds > 1:
        over += f"<br>{line.seeds} seeds, %{{customdata[1]}} to %{{customdata[2]}}{view.unit}"
        limits = zip(
            numbers(view.factor * line.low, 4), numbers(view.factor * line.high, 4), strict=True
        )
        customdata = [[*t, *ends] for t, ends in zip(customdata, limits, strict=True)]
    return {
        "x": numbers(line.x),
        "y": numbers(view.factor * line.mean),
        "customdata": customdata,
        "mode": "lines" if line.level else "lines+markers",
        "name": name,
        "line": style.line | {"width": 2.2},
        "marker": {"symbol": style.symbol, "size": 8, "maxdisplayed": MARKERS_AT_MOST},
        "hovertemplate": f"<b>{name}</b>{f', {model}' if model else ''}<br>{where} "
        f"<b>%{{y:.4~g}}{view.unit}</b><br>{over}<extra></extra>",
    }


def _band(line: Line, view: View, style: Style) -> dict[str, Any]:
    there_and_back = np.concatenate([line.x, line.x[::-1]])
    around = np.concatenate([line.high, line.low[::-1]])
    return {
        "x": numbers(there_and_back),
        "y": numbers(view.factor * around),
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": veil(style.colour),
        "hoverinfo": "skip",
        "name": "from the lowest to the highest seed",
    }


def _columns(groups: Sequence[Group], rows: Sequence[tables.Row]) -> dict[str, dict[int, str]]:
    columns = {}
    for group, row in zip(groups, rows, strict=True):
        for model in MODELS:
            found = seeds.series(group, "top1", model)
            if found is None:
                continue
            mark = row.marked if model == "personal" else str
            means = zip(found.round.tolist(), found.values.mean(0).tolist(), strict=True)
            columns[f"{row.label}, {model}"] = {t: mark(tables.percent(mean)) for t, mean in means}
    return columns
