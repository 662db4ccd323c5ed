"""Curves: a metric of personal or shared models over rounds, seconds and bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from isthmus.errors import IsthmusError
from isthmus.report.figures.figure import (
    ACCURACY,
    CALIBRATION,
    LOSS,
    Axis,
    Band,
    Figure,
    Lines,
    Mark,
    Option,
    Points,
    View,
    offer_views,
)
from isthmus.report.figures.theme import SERIES, Style, choose_styles, make_inert
from isthmus.report.groups import Group
from isthmus.report.section import Drawing, FigureInput, PrintFigure, Report, SectionContent
from isthmus.report.tables.formats import DAGGER, MISSING, PER_BATCH, format_percent
from isthmus.report.tables.summary import describe_bands
from isthmus.run.columns import Floats, Integers
from isthmus.run.record import Curve, RecordedRun

POINTS_AT_MOST = 200  # of a curve that is known after every round
# Of the most that a line spends: local's clients only say that they are done.
NEXT_TO_NOTHING = 1e-3
# It belongs to the rounds, not to the clients.
VARIANCE = View("head_variance", "Last layers", "variance of the last layers", 1, "", "log")
MODELS = {"personal": "Personal models", "shared": "Shared model"}


class Against(NamedTuple):
    """What a curve is drawn against."""

    name: str
    label: str
    title: str
    unit: str
    size: float  # of the unit


ROUNDS = Against("rounds", "Rounds", "communication rounds", "rounds", 1)
SECONDS = Against("seconds", "Seconds", "training time, seconds", "s", 1)


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
    """Return a number of a group, round by round, as far as all its seeds have come."""
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


def choose_axes(series: Sequence[Series | None]) -> list[Against]:
    """Return what series can be drawn against: rounds, seconds, and bytes if any were sent."""
    most = max((float(each.nbytes[-1]) for each in series if each is not None), default=0.0)
    unit, size = ("GB", 1e9) if most >= 1e9 else ("MB", 1e6) if most >= 1e6 else ("kB", 1e3)
    traffic = Against("bytes", "Bytes", f"sent down and up, {unit}", unit, size)
    return [ROUNDS, SECONDS, traffic] if most else [ROUNDS, SECONDS]


def draw_lines(series: Sequence[Series | None], axis: Against) -> list[Line | None]:
    """Draw series against an axis; one that spends next to nothing of it becomes a level."""
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
    """Show how the models become better as rounds, seconds and bytes are spent."""
    figure = build(report.groups)
    columns = _list_accuracies(report)
    rounds = sorted({t for column in columns.values() for t in column})
    values = {
        "head": ["round", *columns],
        "lines": [
            [str(t), *(column.get(t, MISSING) for column in columns.values())] for t in rounds
        ],
        "variance": any(view.name == VARIANCE.metric for view in figure.switches["views"]),
    }
    return SectionContent(values, {"figure-rounds": figure})


def build(groups: Sequence[Group], model: str = "personal") -> Figure:
    """Return every number against everything it can be drawn against, one line per group.

    Bytes are drawn if models of the kind `model` sent any.
    """
    series = {
        (view, kind): [collect_series(group, view.metric, kind) for group in groups]
        for view in (ACCURACY, LOSS, CALIBRATION)
        for kind in MODELS
    }
    styles = choose_styles([group.runs[0] for group in groups])
    series[VARIANCE, ""] = [collect_series(group, VARIANCE.metric) for group in groups]
    recorded = {key: each for key, each in series.items() if any(each)}
    views = offer_views(list(dict.fromkeys(view for view, _ in recorded)))
    axes = choose_axes(series[ACCURACY, model])
    models = [kind for kind in MODELS if (ACCURACY, kind) in recorded]
    marks: list[Mark] = []
    for (view, kind), each in recorded.items():
        for axis in axes:
            shown = {"view": view.metric, "axis": axis.name} | ({"model": kind} if kind else {})
            lines = zip(groups, styles, draw_lines(each, axis), strict=True)
            for place, (group, style, line) in enumerate(lines):
                if line is not None:
                    seen = shown | {"run": place}
                    marks += _draw_group(group, style, line, view, axis, seen)
    marks.sort(key=lambda mark: isinstance(mark, Lines))  # bands lie behind all lines
    return Figure(
        marks,
        x=Axis(axes[0].title, from_zero=True),
        switches={
            "views": views,
            "axes": [Option(axis.name, axis.label, axis.title) for axis in axes],
            "models": [Option(kind, MODELS[kind]) for kind in models],
        },
    )


def _draw_group(
    group: Group, style: Style, line: Line, view: View, axis: Against, shown: Mapping[str, object]
) -> list[Mark]:
    """Return the line of a group, after the band over its seeds if it has several."""
    model = shown.get("model")
    mark = DAGGER if model == "personal" and group.runs[0].chosen_on_test else ""
    mark += PER_BATCH if view is CALIBRATION and group.runs[0].per_batch else ""
    where = f"%{{x:.4~g}} {axis.unit}, after round %{{customdata[0]}}: "
    if line.level:
        where = "sends next to nothing; it ended with"
    over = "mean over clients, own test parts" if model else "of the ones returned by clients"
    data: Floats | Integers = line.round[:, None]
    marks: list[Mark] = []
    if line.seeds > 1:
        low, high = view.factor * line.low, view.factor * line.high
        name, data = "from the lowest to the highest seed", np.column_stack([line.round, low, high])
        marks = [Band(x=line.x, low=low, high=high, colour=style.colour, name=name, shown=shown)]
        limits = f"%{{customdata[1]:.4~g}} to %{{customdata[2]:.4~g}}{view.unit}"
        over += f"<br>{line.seeds} seeds, {limits}"
    name = f"<b>{make_inert(group.label)}{mark}</b>{f', {model}' if model else ''}"
    curve = Lines(
        x=line.x,
        y=view.factor * line.mean,
        data=data,
        name=group.label + mark,
        style=style._replace(symbol="") if line.level else style,
        width=2.2,
        hover=f"{name}<br>{where} <b>%{{y:.4~g}}{view.unit}</b><br>{over}",
        shown=shown,
    )
    return [*marks, curve]


def build_ranks(ranks: Sequence[tuple[str, float]], critical: float) -> Figure:
    """Return average ranks, best first, each with a bar as wide as the critical difference."""
    points = Points(
        x=np.array([rank for _, rank in ranks]),
        y=[name for name, _ in ranks],
        colour=SERIES[0][0],
        size=10,
        bars=np.full(len(ranks), critical / 2),
        hover="<b>%{y}</b>: average rank <b>%{x:.3~g}</b>",
    )
    y = Axis(names=[name for name, _ in ranks], reversed=True, grid=False)
    return Figure([points], x=Axis("average rank, 1 is best"), y=y)


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


def draw(name: str, given: FigureInput) -> Drawing:
    """Return curves against the axis of a name, for print."""
    view = given.view
    series = [collect_series(group, view.metric, given.model) for group in given.groups]
    if not any(series):
        raise IsthmusError(
            f"no {view.label.lower()} of {given.model} models is recorded in these runs; "
            "choose another metric or model"
        )
    figure = build(given.groups, given.model)
    if name not in {option.name for option in figure.switches["axes"]}:
        raise IsthmusError("these runs sent no bytes; draw rounds or seconds instead")
    what = (
        "Total variance of the last layers returned by clients"
        if view is VARIANCE
        else f"Mean over clients of the {given.model} models' {view.axis}, on each "
        "client's own test part,"
    )
    spent = {"rounds": "", "seconds": " of training", "bytes": " down and up, all clients"}
    caption = f"{what} against {name}{spent[name]}.{describe_bands(given.groups)}"
    figure = replace(figure, legend=given.list_legend([each is not None for each in series]))
    return Drawing([figure], caption, {"view": view.metric, "axis": name, "model": given.model})


PRINT_FIGURES = tuple(
    PrintFigure(name, about, partial(draw, name), 0.85, ("top1", "loss", "ece", VARIANCE.metric))
    for name, about in (
        ("rounds", "a metric against communication rounds"),
        ("seconds", "the same against seconds of training"),
        ("bytes", "the same against bytes sent"),
    )
)
