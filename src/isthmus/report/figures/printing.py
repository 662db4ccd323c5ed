"""Figures for print, drawn with matplotlib: at their size, labelled, told apart in grey."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from isthmus.errors import IsthmusError, nearest
from isthmus.report.contents import PRINT_FIGURES
from isthmus.report.figures import theme
from isthmus.report.figures.curves import MODELS, VARIANCE
from isthmus.report.figures.figure import (
    ACCURACY,
    CALIBRATION,
    LOSS,
    Axis,
    Band,
    Bars,
    Field,
    Figure,
    HeatMap,
    Lines,
    Mark,
    Points,
    Shade,
)
from isthmus.report.figures.theme import SYMBOLS, Style
from isthmus.report.groups import group_by_seed
from isthmus.report.section import Drawing, FigureInput, PrintFigure
from isthmus.report.tables.formats import FOOTNOTE
from isthmus.run.record import RecordedRun
from isthmus.system.files import overwrite

WIDTHS = {1: 3.3, 2: 6.9}  # inches: one column of a page, and both
LEGEND_LINE = 0.15  # inches
FORMATS = {".svg": "Date", ".pdf": "CreationDate", ".png": "Software"}  # what would make it new
VIEWS = {view.metric: view for view in (ACCURACY, LOSS, CALIBRATION, VARIANCE)}
MARKERS_AT_MOST = 15  # on one line
NAMES_AT_MOST = 30  # on one axis
SHADES = "cividis"  # told apart in grey, and by every common kind of colour vision
LOOK = Path(__file__).with_name("print.mplstyle")


class SavedFigure(NamedTuple):
    """A figure that was saved, and what to write under it."""

    path: Path
    caption: str


def save(
    runs: Sequence[RecordedRun],
    name: str,
    out: str | Path,
    *,
    metric: str = "top1",
    model: str = "personal",
    seed: int | None = None,
    width: float = WIDTHS[1],
    height: float | None = None,
) -> SavedFigure:
    """Draw a figure of runs and save it as SVG, PDF or PNG; the sizes are in inches."""
    print_figure, place = _find_figure(name, metric), Path(out)
    if place.suffix not in FORMATS:
        raise IsthmusError(
            f"figures cannot be written to {place}; the name must end in {', '.join(FORMATS)}; "
            f"for example {place.parent / (place.stem or name)}.svg"
        )
    for side, size in (("width", width), ("height", height)):
        if size is not None and not 1 <= size <= 20:
            raise IsthmusError(f"the {side} must be 1 to 20 inches, not {size:g}")
    if model not in MODELS:
        raise IsthmusError(f"no model is called {model!r}; {nearest(model, list(MODELS))}")
    given = choose_input(runs, metric, model, seed)
    drawing = print_figure.build(given)
    with mpl.rc_context(fname=LOOK):
        canvas = draw(drawing, print_figure.ratio, width, height)
        caption = drawing.caption
        if any(run.chosen_on_test for run in given.runs):
            caption = f"{caption} {FOOTNOTE}"
        kind, dated = place.suffix[1:], FORMATS[place.suffix]
        with overwrite(place) as file:
            canvas.savefig(file, format=kind, metadata={dated: None})
    return SavedFigure(place, caption)


def choose_input(
    runs: Sequence[RecordedRun],
    metric: str = "top1",
    model: str = "personal",
    seed: int | None = None,
) -> FigureInput:
    """Return what a figure of these runs, or of those of one seed, is about."""
    of_seed = [run for run in runs if seed is None or run.seed == seed]
    if not of_seed:
        given = ", ".join(str(run.seed) for run in runs)
        raise IsthmusError(f"none of these runs has seed {seed}; their seeds are {given}")
    groups = group_by_seed(of_seed)
    styles = theme.choose_styles([group.runs[0] for group in groups])
    return FigureInput(of_seed, groups, styles, VIEWS[metric], model)


def _find_figure(name: str, metric: str) -> PrintFigure:
    if name not in PRINT_FIGURES:
        raise IsthmusError(f"no figure is called {name!r}; {nearest(name, list(PRINT_FIGURES))}")
    known = PRINT_FIGURES[name].metrics
    if metric not in known:
        raise IsthmusError(
            f"{name} cannot show the metric {metric!r}; {nearest(metric, list(known))}"
        )
    return PRINT_FIGURES[name]


def draw(
    drawing: Drawing, ratio: float = 0.85, width: float = WIDTHS[1], height: float | None = None
) -> Canvas:
    """Draw figures side by side, and one legend below them."""
    first, legend = drawing.figures[0], drawing.figures[0].legend
    longest = max((len(label) for label, _ in legend), default=0)
    columns = max(1, min(len(legend), int(width / (0.5 + 0.065 * longest))))
    tall = ratio * width + LEGEND_LINE * max(ceil(len(legend) / columns) - 2, 0)
    canvas = Canvas(figsize=(width, height or tall), layout="constrained")
    shares = (1,) if first.below is None else (1 - first.share, first.share)
    panels = canvas.subplots(
        len(shares), len(drawing.figures), squeeze=False, sharex="col", height_ratios=shares
    )
    for figure, column in zip(drawing.figures, panels.T, strict=True):
        _draw_figure(canvas, column.tolist(), figure, drawing)
    if legend:
        handles = [Line2D([], [], **_convert_style(style)) for _, style in legend]
        names = [label for label, _ in legend]
        canvas.legend(handles, names, loc="outside lower center", ncols=columns)
    return canvas


def _draw_figure(canvas: Canvas, panels: list[Axes], figure: Figure, drawing: Drawing) -> None:
    marks = []
    for mark in figure.marks:
        if all(drawing.shown.get(key, value) == value for key, value in mark.shown.items()):
            tables = {to: figure.tables[table] for to, table in mark.tables.items()}
            chosen = {to: table[drawing.choice] for to, table in tables.items()}
            marks.append(replace(mark, **chosen))
    for mark in marks:
        _draw_mark(canvas, panels[mark.lower], mark, sum(isinstance(m, Bars) for m in marks))
    view, axis = (
        next((o for o in figure.switches.get(switch, ()) if o.name == drawing.shown[key]), None)
        for switch, key in (("views", "view"), ("axes", "axis"))
    )
    x = figure.x if axis is None else replace(figure.x, title=axis.axis)
    y = figure.y if view is None else replace(figure.y, title=view.axis)
    panels[0].set_title(figure.title)
    if view is not None and view.type:
        panels[0].set_yscale(view.type)
    if figure.equal:
        panels[0].set_aspect("equal")
    for axes, vertical in zip(panels, (y, figure.below or Axis()), strict=False):
        _set_axis(axes, "y", vertical)
        _set_axis(axes, "x", x if axes is panels[-1] else replace(x, title="", labelled=False))


def _set_axis(axes: Axes, which: Literal["x", "y"], axis: Axis) -> None:
    one = axes.xaxis if which == "x" else axes.yaxis
    set_limits = axes.set_xlim if which == "x" else axes.set_ylim
    one.set_label_text(axis.title)
    if axis.range:
        set_limits(*axis.range)
    if axis.from_zero:
        set_limits(0, None)
    if axis.from_zero and which == "x":
        whole = all((np.mod(line.get_xdata(), 1) == 0).all() for line in axes.lines)
        one.set_major_locator(MaxNLocator(6, integer=whole))
    if axis.names:
        few = axis.names if len(axis.names) <= NAMES_AT_MOST else []
        one.set_ticks(range(len(few)), few, fontsize=5, rotation=90 if which == "x" else 0)
    elif axis.ticks:
        one.set_ticks(list(axis.ticks), list(axis.ticks.values()))
    elif not axis.labelled and axis.title:
        one.set_ticks([])
    axes.grid(visible=axis.grid, axis=which)
    if axis.hidden:
        axes.set_axis_off()


def _draw_mark(canvas: Canvas, axes: Axes, mark: Mark, bars: int) -> None:
    match mark:
        case Lines():
            style = _convert_style(mark.style) | {"alpha": mark.opacity}
            if not mark.style.symbol:
                style |= {"linewidth": 0.8}
            lines = axes.plot(np.transpose(mark.x), np.transpose(mark.y), **style)
            lines[0].set_markevery(ceil(np.shape(mark.x)[-1] / MARKERS_AT_MOST))
            if mark.label:
                end = mark.x[-1], mark.y[-1]
                axes.annotate(mark.label, end, ha="right", va="bottom", fontsize=6, color="0.3")
        case Band():
            band: dict[str, Any] = {"color": mark.colour, "alpha": 0.18, "linewidth": 0}
            axes.fill_between(mark.x, mark.low, mark.high, **band)
        case Points() if np.size(mark.x):
            _draw_points(canvas, axes, mark)
        case Bars():
            number = sum(bool(each) for each in axes.containers)
            named = np.asarray(mark.x).dtype.kind not in "iuf"
            middle = np.arange(np.size(mark.x)) if named else np.asarray(mark.x)
            gaps = np.diff(np.unique(middle))
            step = gaps.min() if gaps.size else 1.0
            place = middle + step * (0.8 / bars * (number + 0.5) - 0.4)
            look: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.3}
            look |= {"color": "white", "hatch": "////"} if mark.hatched else {"color": "0.35"}
            axes.bar(place, np.nan_to_num(mark.y), step * 0.8 / bars, **look)
        case HeatMap():
            low, high = mark.shade.low, mark.shade.high
            cells = axes.imshow(mark.z, cmap=SHADES, vmin=low, vmax=high, aspect="auto")
            _draw_bar(canvas, axes, cells, mark.shade)
        case Field():
            ends = float(np.nanmin(mark.z)), float(np.nanmax(mark.z))
            levels = np.linspace(*ends, 15) if ends[0] < ends[1] else 1
            field = axes.contourf(mark.x, mark.y, mark.z, levels, cmap=SHADES)
            axes.contour(mark.x, mark.y, mark.z, levels, colors="0.2", linewidths=0.3)
            _draw_bar(canvas, axes, field, mark.shade)


def _draw_points(canvas: Canvas, axes: Axes, mark: Points) -> None:
    if mark.shade is not None:
        marker: Any = SYMBOLS[str(mark.symbol)].marker
        points = axes.scatter(
            mark.x, mark.y, c=mark.colour, cmap=SHADES, marker=marker, s=60, alpha=0.8
        )
        _draw_bar(canvas, axes, points, mark.shade)
        return
    # White with a black edge, whatever their colour: what they are is written inside or beside.
    symbols = np.broadcast_to(mark.symbol, np.size(mark.x))
    sizes = np.broadcast_to(mark.size, np.size(mark.x))
    for i, (x, y) in enumerate(zip(mark.x, mark.y, strict=True)):
        inside = mark.labels and not mark.sides
        symbol = "o" if inside else SYMBOLS[str(symbols[i])].marker
        look: dict[str, Any] = {
            "color": "white",
            "markeredgecolor": "black",
            "markeredgewidth": 0.6,
        }
        axes.plot(x, y, symbol, markersize=6.8 if inside else sizes[i] / 1.8, **look)
        if inside:
            axes.annotate(mark.labels[i], (x, y), ha="center", va="center", fontsize=5)
        elif mark.labels and mark.labels[i]:
            right = "right" in mark.sides[i]
            axes.annotate(
                mark.labels[i],
                (x, y),
                (4 if right else -4, 4),
                textcoords="offset points",
                ha="left" if right else "right",
                fontsize=6,
                bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6},
            )


def _draw_bar(canvas: Canvas, axes: Axes, drawn: Any, shade: Shade) -> None:
    low, high = drawn.get_clim()
    ticks = {place: text for place, text in shade.ticks.items() if low < place < high}
    bar = canvas.colorbar(
        drawn,
        ax=axes,
        location="bottom" if shade.below else "right",
        ticks=list(ticks) or MaxNLocator(6),
        label=shade.title,
    )
    if ticks:
        bar.set_ticklabels(list(ticks.values()))
    bar.ax.minorticks_off()


def _convert_style(style: Style) -> dict[str, Any]:
    """Return a line's style as matplotlib has it."""
    return {
        "color": style.colour,
        "linewidth": 1.1,
        "linestyle": (0, tuple(length / 2 for length in style.dash)) if style.dash else "-",
        "marker": SYMBOLS[style.symbol].marker if style.symbol else "",
        "markersize": 3.6,
        "markeredgewidth": 0,
    }
