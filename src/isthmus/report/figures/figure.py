"""A figure as one value: its marks, its axes, what a reader can switch and choose.

The page draws it with plotly (`page/figures.js`), `isthmus figure` with matplotlib
(`printing.py`); a new figure needs neither, only values of the classes here.

A figure with several views (accuracy, loss, ...) holds the marks of all of them. `Mark.shown` says
in which of the switches' positions a mark is seen, such as {"view": "loss", "axis": "seconds"}; a
mark is seen in all positions of a switch that it does not name.

Where a reader chooses among what was measured, by a slider or from a list, `Figure.tables` of the
first figure of the control holds what changes: for each table one entry per choice. `Mark.tables`
says which table an attribute of a mark comes from, and the table "words" describes the choice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from isthmus.metrics.metric import METRICS
from isthmus.report.figures.theme import SURFACE, Style
from isthmus.run.columns import Floats, Integers

Values = Floats | Integers | Sequence[Any]


class View(NamedTuple):
    """One metric as a figure shows it."""

    metric: str
    label: str
    axis: str
    factor: float
    unit: str
    scale: str = "linear"


def make_view(metric: str, label: str) -> View:
    """Return the view of a metric: its axis, its factor and its unit are the metric's."""
    it = METRICS[metric]
    percent = it.factor == 100
    axis = f"{it.title}, {'%' if percent else it.range}"
    return View(metric, label, axis, it.factor, " %" if percent else "")


ACCURACY = make_view("top1", "Accuracy")
LOSS = make_view("loss", "Loss")
CALIBRATION = make_view("ece", "Calibration error")


class Option(NamedTuple):
    """One position of a switch; what it changes in the figure is empty where it changes nothing."""

    name: str
    label: str
    axis: str = ""  # the title of the axis
    type: str = ""  # of the vertical axis
    range: Sequence[float] = ()  # of the vertical axis


def offer_views(views: Sequence[View], titled: bool = True) -> list[Option]:
    """Return the positions of a switch between views; `titled` axes are named by the view."""
    return [
        Option(
            view.metric,
            view.label,
            view.axis if titled else "",
            "" if view.scale == "linear" else view.scale,
        )
        for view in views
    ]


@dataclass(frozen=True)
class Axis:
    """An axis of a figure."""

    title: str = ""
    range: Sequence[float] = ()
    ticks: Mapping[float, str] = field(default_factory=dict)
    names: Sequence[str] = ()  # of categories; none: it is an axis of numbers
    labelled: bool = True  # its ticks have labels
    reversed: bool = False
    grid: bool = True
    zero_line: bool = False
    from_zero: bool = False
    hidden: bool = False


class Shade(NamedTuple):
    """How values become tones, and the bar beside the figure that explains them."""

    title: str
    low: float | None = None
    high: float | None = None
    deep_is_low: bool = False
    ticks: Mapping[float, str] = {}
    below: float = 0  # how far under the figure the bar lies, where a phone has room; 0: beside it


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What all marks have. Arrays are drawn with five significant digits, nan as a gap."""

    x: Values = ()
    y: Values = ()
    name: str = ""
    hover: str = ""  # the template of the text at a point; none: pointing at it shows nothing
    data: Values = ()  # what the template can show of each point
    shown: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    lower: bool = False  # it lies in the second panel


@dataclass(frozen=True, kw_only=True)
class Lines(Mark):
    """A line, or one for each row of x and y; with markers where the style has a symbol."""

    style: Style
    width: float = 2.0
    size: float = 8  # of markers
    opacity: float = 1
    label: str = ""  # at its right end, in print


@dataclass(frozen=True, kw_only=True)
class Band(Mark):
    """What lies between two lines."""

    low: Floats
    high: Floats
    colour: str


@dataclass(frozen=True, kw_only=True)
class Points(Mark):
    """Markers; where `colour` is numbers, `shade` turns them into tones."""

    colour: str | Sequence[str] | Floats
    symbol: str | Sequence[str] = "circle"
    size: float | Sequence[float] = 7
    edge: tuple[float, str] = (0, SURFACE[0])
    labels: Sequence[str] = ()
    sides: Sequence[str] = ()  # of the labels; none: they are inside the markers
    bars: Floats | None = None  # half the width of a horizontal bar at each
    shade: Shade | None = None


@dataclass(frozen=True, kw_only=True)
class Bars(Mark):
    """Bars, full of a colour or hatched in it: told apart without colour too."""

    colour: str | Sequence[str]
    hatched: bool | Sequence[bool] = False
    edge: float = 1
    width: float | None = None
    across: bool = False  # they are horizontal


@dataclass(frozen=True, kw_only=True)
class HeatMap(Mark):
    """A tone for each cell of a table."""

    z: Floats
    shade: Shade


@dataclass(frozen=True, kw_only=True)
class Field(Mark):
    """Values on a regular grid, as contours or as a surface in space."""

    z: Sequence[Sequence[float]] | Floats
    shade: Shade
    surface: bool = False


@dataclass(frozen=True, kw_only=True)
class Stems(Mark):
    """Lines in space with a label at their ends; the page has them only."""

    z: Values
    labels: Sequence[str]


@dataclass(frozen=True)
class Figure:
    """A figure of one panel, or of two with the same horizontal axis."""

    marks: Sequence[Mark]
    x: Axis = Axis()
    y: Axis = Axis()
    below: Axis | None = None  # the vertical axis of the second panel
    share: float = 0.2  # of the height, for the second panel
    switches: Mapping[str, Sequence[Option]] = field(default_factory=dict)
    tables: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    equal: bool = False  # a unit is as long upwards as across
    stacked: bool = False  # bars of one place stand on each other
    gap: float = 0.2  # between bars
    depth: float = 0  # of figures in space: depth over width
    legend: Sequence[tuple[str, Style]] = ()  # in print; the page has buttons
    title: str = ""  # in print, where several stand side by side


def summarize_lines(
    client: Integers, x: Floats, values: Floats, view: View, colour: str, where: str = ""
) -> list[Mark]:
    """Return a thin line for each client, or a band of many, and the bold mean over them.

    `values` are [clients, places]; `where` begins what is shown at a point.
    """
    shown = {"view": view.metric}
    y = view.factor * values
    mark: Mark
    if len(client) <= LINES_AT_MOST:
        mark = Lines(
            x=np.tile(x, (len(client), 1)),
            y=y,
            data=client,
            style=Style(colour),
            width=1,
            opacity=0.28,
            name="each client",
            hover=f"client %{{customdata}}{where and ', '}{where}: %{{y:.4~g}}{view.unit}<br>"
            "its own test part",
            shown=shown,
        )
    else:
        known = y[~np.isnan(y).any(axis=1)]
        empty = np.full((2, len(x)), np.nan)
        low, high = np.quantile(known, [0.1, 0.9], axis=0) if len(known) else empty
        name = "from the 10th to the 90th percentile of the clients"
        mark = Band(x=x, low=low, high=high, colour=colour, name=name, shown=shown)
    mean = Lines(
        x=x,
        y=y.mean(axis=0),
        style=Style(colour, symbol="circle"),
        width=3.5,
        size=7,
        name="mean over clients",
        hover=f"{where}{where and ': '}<b>%{{y:.4~g}}{view.unit}</b><br>mean over {len(client)} "
        "clients, own test parts",
        shown=shown,
    )
    return [mark, mean]


LINES_AT_MOST = 60  # clients drawn one by one; more become a band


def align(figures: Mapping[str, Figure]) -> dict[str, Figure]:
    """Return the figures with the same vertical range in each view, so that they compare."""
    views = next(iter(figures.values())).switches["views"]
    options = []
    for view in views:
        values = [
            np.ravel(column)
            for figure in figures.values()
            for column in _list_heights(figure, view.name)
        ]
        heights = np.concatenate(values)
        low, high = np.nanmin(heights), np.nanmax(heights)
        margin = 0.05 * (high - low) or 1.0
        options.append(view._replace(range=[float(low - margin), float(high + margin)]))
    return {
        name: replace(figure, switches={**figure.switches, "views": options})
        for name, figure in figures.items()
    }


def _list_heights(figure: Figure, view: str) -> list[Any]:
    marks = [mark for mark in figure.marks if mark.shown.get("view") == view]
    bands = [each for mark in marks if isinstance(mark, Band) for each in (mark.low, mark.high)]
    lines = [mark.y for mark in marks if not isinstance(mark, Band)]
    return [*bands, *lines, *figure.tables.get(view, ())]


def encode(value: Any) -> Any:
    """Return a figure, or a part of it, as JSON has it; what is empty is left out.

    Numbers of arrays have five significant digits, so that a page stays small; nan becomes None.
    """
    if isinstance(value, Figure | Mark | Axis):
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
        return encode(parts) | ({"kind": type(value).__name__} if isinstance(value, Mark) else {})
    if isinstance(value, Style | Shade | Option):
        return encode(value._asdict())
    if isinstance(value, Mapping):
        known = {str(name): part for name, part in value.items() if part is not None}
        return {
            name: encode(part)
            for name, part in known.items()
            if isinstance(part, Figure | Mark | Axis | float | int) or len(part)
        }
    if isinstance(value, np.ndarray) and value.ndim == 1:
        numbers = value.tolist()
        if value.dtype.kind != "f":
            return numbers
        return [float(f"{number:.5g}") if isfinite(number) else None for number in numbers]
    if isinstance(value, str | int | float):
        return value
    return [encode(part) for part in value]
