"""Curves: a metric of personal or shared models over rounds, seconds and bytes."""

from collections.abc import Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from isthmus.errors import IsthmusError
from isthmus.report.figures import paper
from isthmus.report.figures.theme import (
    ACCURACY,
    CALIBRATION,
    LOSS,
    Style,
    View,
    build_layout,
    choose_styles,
    draw_band,
    make_inert,
    round_numbers,
)
from isthmus.report.groups import Group
from isthmus.report.section import FigureInput, PrintFigure, Report, SectionContent
from isthmus.report.tables.formats import DAGGER, MISSING, PER_BATCH, format_percent
from isthmus.run.columns import Floats, Integers
from isthmus.run.record import Curve, RecordedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS_AT_MOST = 200  # of a curve that is known after every round
# Of the most that a line spends: local's clients only say that they are done.
NEXT_TO_NOTHING = 1e-3
# It belongs to the rounds, not to the clients.
VARIANCE = View("head_variance", "Last layers", "variance of the last layers", 1, "", "log")
MODELS = {"personal": "Personal models", "shared": "Shared model"}


class Axis(NamedTuple):
    """What a curve is drawn against."""

    name: str
    label: str
    title: str
    unit: str
    size: float  # of the unit


ROUNDS = Axis("rounds", "Rounds", "communication rounds", "rounds", 1)
SECONDS = Axis("seconds", "Seconds", "training time, seconds", "s", 1)


class Series(NamedTuple):
    """A number of a group at the rounds that all its seeds have, and what was spent until then."""

    round: Integers  # [T]
    seconds: Floats  # [T], of training, mean over seeds
    nbytes: Floats  # [T], down and up, mean over seeds
    values: Floats  # [S, T]


class Line(NamedTuple):
    """A series as a figure shows it."""

    x: Floats
    round: Integers
    mean: Floats
    low: Floats  # the lowest seed
    high: Floats  # the highest seed
    seeds: int
    level: bool  # it spends next to nothing of this kind: its end is a horizontal line


def collect_series(group: Group, metric: str, model: str = "personal") -> Series | None:
    """Returns a number of a group, round by round, as far as all its seeds have come."""
    curves = [
        _read_variance(run) if metric == VARIANCE.metric else run.curve(metric, model)
        for run in group.runs
    ]
    rounds = reduce(np.intersect1d, [curve.round for curve in curves])
    if rounds.size == 0:
        return None
    if len(rounds) > POINTS_AT_MOST:
        rounds = rounds[np.linspace(0, len(rounds) - 1, POINTS_AT_MOST).round().astype(int)]
    values = [curve.mean[np.searchsorted(curve.round, rounds)] for curve in curves]
    seconds = [_sum_until(run, run.rounds.train_seconds, rounds) for run in group.runs]
    sent = [
        _sum_until(run, run.rounds.down_bytes + run.rounds.up_bytes, rounds) for run in group.runs
    ]
    return Series(rounds, np.mean(seconds, axis=0), np.mean(sent, axis=0), np.stack(values))


def choose_axes(series: Sequence[Series | None]) -> list[Axis]:
    """Returns what series can be drawn against: rounds, seconds, and bytes if any were sent."""
    most = max((float(each.nbytes[-1]) for each in series if each is not None), default=0.0)
    unit, size = ("GB", 1e9) if most >= 1e9 else ("MB", 1e6) if most >= 1e6 else ("kB", 1e3)
    traffic = Axis("bytes", "Bytes", f"sent down and up, {unit}", unit, size)
    return [ROUNDS, SECONDS, traffic] if most else [ROUNDS, SECONDS]


def draw_lines(series: Sequence[Series | None], axis: Axis) -> list[Line | None]:
    """Draws series against an axis; one that spends next to nothing of it becomes a level."""
    along = {"rounds": "round", "seconds": "seconds", "bytes": "nbytes"}[axis.name]
    spent = [None if each is None else getattr(each, along) / axis.size for each in series]
    most = max((float(x[-1]) for x in spent if x is not None), default=0.0)
    return [
        None if each is None or x is None else _draw_line(each, x, most)
        for each, x in zip(series, spent, strict=True)
    ]


def _read_variance(run: RecordedRun) -> Curve:
    known = np.isfinite(run.rounds.head_variance)
    return Curve(run.rounds.round[known], run.rounds.head_variance[known])


def _sum_until(run: RecordedRun, column: Floats | Integers, rounds: Integers) -> Floats:
    total = np.concatenate([[0.0], np.cumsum(column, dtype=np.float64)])
    until: Floats = total[np.searchsorted(run.rounds.round, rounds, side="right")]
    return until


def _draw_line(series: Series, x: Floats, most: float) -> Line:
    mean, low, high = series.values.mean(0), series.values.min(0), series.values.max(0)
    seeds = len(series.values)
    if x[-1] >= NEXT_TO_NOTHING * most:
        return Line(x, series.round, mean, low, high, seeds, level=False)
    mean, low, high = (np.repeat(values[-1:], 2) for values in (mean, low, high))
    return Line(np.array([0.0, most]), series.round[[-1, -1]], mean, low, high, seeds, level=True)


def show(report: Report) -> SectionContent:
    """Shows how the models become better as rounds, seconds and bytes are spent."""
    figure = plot(report.groups)
    columns = _list_accuracies(report)
    rounds = sorted({t for column in columns.values() for t in column})
    values = {
        "head": ["round", *columns],
        "lines": [
            [str(t), *(column.get(t, MISSING) for column in columns.values())] for t in rounds
        ],
        "variance": any(view["name"] == VARIANCE.metric for view in figure.layout.meta["views"]),
    }
    return SectionContent(values, {"figure-rounds": figure})


def plot(groups: Sequence[Group]) -> go.Figure:
    """Draws every number against everything it can be drawn against, one line per group."""
    series = {
        (view, model): [collect_series(group, view.metric, model) for group in groups]
        for view in (ACCURACY, LOSS, CALIBRATION)
        for model in MODELS
    }
    series[VARIANCE, ""] = [collect_series(group, VARIANCE.metric) for group in groups]
    recorded = {key: each for key, each in series.items() if any(each)}
    figure = go.Figure(layout=build_layout(list(dict.fromkeys(view for view, _ in recorded))))
    axes = choose_axes(series[ACCURACY, "personal"])
    models = [model for model in MODELS if (ACCURACY, model) in recorded]
    for (view, model), each in recorded.items():
        for axis in axes:
            visible = (view, model or models[0], axis) == (ACCURACY, models[0], axes[0])
            meta = {"view": view.metric, "axis": axis.name} | ({"model": model} if model else {})
            _add(figure, groups, draw_lines(each, axis), view, axis, meta, visible)
    figure.layout.meta |= {
        "axes": [{"name": axis.name, "label": axis.label, "axis": axis.title} for axis in axes],
        "models": [{"name": model, "label": MODELS[model]} for model in models],
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
    styles = choose_styles([group.runs[0] for group in groups])
    drawn = list(enumerate(zip(groups, lines, styles, strict=True)))
    for place, (_, line, style) in drawn:
        if line is not None and line.seeds > 1:
            low, high = view.factor * line.low, view.factor * line.high
            figure.add_scatter(
                **draw_band(line.x, low, high, style.colour),
                name="from the lowest to the highest seed",
                meta=meta | {"run": place},
                visible=visible,
            )
    for place, (group, line, style) in drawn:
        if line is not None:
            name = make_inert(group.label)
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
    where = f"%{{x:.4~g}} {axis.unit}, after round %{{customdata[0]}}: "
    if line.level:
        where = "sends next to nothing; it ended with"
    over = "mean over clients, own test parts" if model else "of those that came back"
    customdata: list[list[float | None]] = [[int(t)] for t in line.round]
    if line.seeds > 1:
        over += f"<br>{line.seeds} seeds, %{{customdata[1]}} to %{{customdata[2]}}{view.unit}"
        limits = zip(
            round_numbers(view.factor * line.low, 4),
            round_numbers(view.factor * line.high, 4),
            strict=True,
        )
        customdata = [[*t, *ends] for t, ends in zip(customdata, limits, strict=True)]
    return {
        "x": round_numbers(line.x),
        "y": round_numbers(view.factor * line.mean),
        "customdata": customdata,
        "mode": "lines" if line.level else "lines+markers",
        "name": name,
        "line": style.line | {"width": 2.2},
        "marker": {"symbol": style.symbol, "size": 8, "maxdisplayed": paper.MARKERS_AT_MOST},
        "hovertemplate": f"<b>{name}</b>{f', {model}' if model else ''}<br>{where} "
        f"<b>%{{y:.4~g}}{view.unit}</b><br>{over}<extra></extra>",
    }


def _list_accuracies(report: Report) -> dict[str, dict[int, str]]:
    columns = {}
    for group, row in zip(report.groups, report.averages, strict=True):
        for model in MODELS:
            series = collect_series(group, "top1", model)
            if series is None:
                continue
            mark = row.mark if model == "personal" else str
            means = zip(series.round.tolist(), series.values.mean(0).tolist(), strict=True)
            columns[f"{row.label}, {model}"] = {t: mark(format_percent(mean)) for t, mean in means}
    return columns


def draw(name: str, figure: "Figure", given: FigureInput) -> str:
    """Draws curves against the axis of a name for print; returns the caption."""
    from matplotlib.ticker import MaxNLocator

    view = given.view
    series = [collect_series(group, view.metric, given.model) for group in given.groups]
    if not any(series):
        raise IsthmusError(
            f"no {view.label.lower()} of {given.model} models is recorded in these runs; "
            "choose another metric or model"
        )
    offered = {axis.name: axis for axis in choose_axes(series)}
    if name not in offered:
        raise IsthmusError("these runs sent no bytes; expected some; draw rounds or seconds")
    axes = figure.subplots()
    for line, style in zip(draw_lines(series, offered[name]), given.styles, strict=True):
        if line is None:
            continue
        if line.seeds > 1:
            limits = view.factor * np.stack([line.low, line.high])
            paper.draw_band(axes, line.x, limits, style)
        paper.draw_curve(axes, line.x, view.factor * line.mean, style, marked=not line.level)
    axes.set(xlabel=offered[name].title, ylabel=view.axis, yscale=view.scale)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=name == "rounds"))
    paper.draw_legend(figure, given, [each is not None for each in series])
    what = (
        "Total variance of the last layers that came back"
        if view is VARIANCE
        else f"Mean over clients of the {given.model} models' {view.axis}, on each "
        "client's own test part,"
    )
    spent = {"rounds": "", "seconds": " of training", "bytes": " down and up, all clients"}
    return f"{what} against {name}{spent[name]}.{paper.describe_bands(given)}"


PRINT_FIGURES = tuple(
    PrintFigure(name, about, partial(draw, name), 0.85, ("top1", "loss", "ece", VARIANCE.metric))
    for name, about in (
        ("rounds", "a metric against communication rounds"),
        ("seconds", "the same against seconds of training"),
        ("bytes", "the same against bytes sent"),
    )
)
