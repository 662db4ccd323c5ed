"""Figures for a paper: at the size they are printed, labelled, known apart in grey.

They draw the same numbers as the page: groups over their seeds, the same colours and markers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from isthmus.errors import IsthmusError, nearest
from isthmus.records.columns import Floats
from isthmus.records.reader import Run
from isthmus.report import seeds
from isthmus.report.figures import curves, maps
from isthmus.report.figures import path as paths
from isthmus.report.figures import theme as figures
from isthmus.report.figures.theme import ACCURACY, CALIBRATION, LOSS, Style, View
from isthmus.report.groups import Group, grouped
from isthmus.report.tables.summary import DAGGER, FOOTNOTE

WIDTHS = {1: 3.3, 2: 6.9}  # inches: one column of a page, and both
ENTRY = 0.15  # inches: the height of a line of the legend
FORMATS = {".svg": "Date", ".pdf": "CreationDate", ".png": "Software"}  # what would make it new
VIEWS = {view.metric: view for view in (ACCURACY, LOSS, CALIBRATION, curves.VARIANCE)}
MARKERS: Mapping[str, Any] = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "x": "X",
    "star": "*",
    "triangle-down": "v",
    "pentagon": "p",
    "cross": "P",
    "triangle-left": "<",
    "triangle-right": ">",
    "hexagram": (6, 1, 0),
    "hexagon": "h",
}
LOOK: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # it comes with matplotlib, and has λ and †
    "font.size": 7,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.4,
    "grid.color": "0.88",
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "text.parse_math": False,  # a name may have a dollar in it
    "pdf.fonttype": 42,  # TrueType, as publishers ask
    "svg.fonttype": "path",  # looks the same where the font is missing
    "svg.hashsalt": "isthmus",  # the same figure is the same file
    "savefig.dpi": 300,
}


class Asked(NamedTuple):
    """What is to be drawn."""

    runs: Sequence[Run]
    groups: Sequence[Group]
    styles: Sequence[Style]
    view: View
    model: str


class Plate(NamedTuple):
    """One kind of figure."""

    said: str
    draw: Callable[[Figure, Asked], str]  # draws it, and returns its caption
    ratio: float  # of height to width
    metrics: Sequence[str] = ("top1",)


class Drawn(NamedTuple):
    """A figure that was saved, and what to write under it."""

    path: Path
    caption: str


def save(
    runs: Sequence[Run],
    name: str,
    out: str | Path,
    *,
    metric: str = "top1",
    model: str = "personal",
    seed: int | None = None,
    width: float = WIDTHS[1],
    height: float | None = None,
) -> Drawn:
    """Draws a figure of runs and saves it as SVG, PDF or PNG; the sizes are in inches."""
    plate, place = _plate(name, metric), Path(out)
    if place.suffix not in FORMATS:
        raise IsthmusError(
            f"{place} is to be a file of kind {place.suffix!r}; expected {', '.join(FORMATS)}; "
            f"for example {place.with_suffix('.svg')}"
        )
    for said, size in (("width", width), ("height", height)):
        if size is not None and not 1 <= size <= 20:
            raise IsthmusError(f"{said} {size:g}; expected 1 to 20 inches; for example 3.3")
    if model not in curves.MODELS:
        raise IsthmusError(f"no model is called {model!r}; {nearest(model, list(curves.MODELS))}")
    asked = _asked(runs, metric, model, seed)
    with mpl.rc_context(LOOK):
        entries = ceil(len(asked.groups) / _columns(asked.groups, width))
        tall = plate.ratio * width + ENTRY * max(entries - 2, 0)
        figure = Figure(figsize=(width, height or tall), layout="constrained")
        caption = plate.draw(figure, asked)
        if any(run.chosen_on_test for run in asked.runs):
            caption = f"{caption} {FOOTNOTE}"
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(place.name + ".part")
        kind, dated = place.suffix[1:], FORMATS[place.suffix]
        figure.savefig(draft, format=kind, metadata={dated: None})
    return Drawn(draft.replace(place), caption)


def against(name: str) -> Callable[[Figure, Asked], str]:
    """Makes the drawing of curves against rounds, seconds or bytes."""

    def draw(figure: Figure, asked: Asked) -> str:
        found = [seeds.series(group, asked.view.metric, asked.model) for group in asked.groups]
        if not any(found):
            raise IsthmusError(
                f"no {asked.view.label.lower()} of {asked.model} models is recorded in these runs; "
                "choose another metric or model"
            )
        offered = {axis.name: axis for axis in seeds.axes(found)}
        if name not in offered:
            raise IsthmusError("these runs sent no bytes; expected some; draw rounds or seconds")
        axes = figure.subplots()
        for line, style in zip(seeds.lines(found, offered[name]), asked.styles, strict=True):
            if line is None:
                continue
            if line.seeds > 1:
                _band(axes, line.x, asked.view.factor * np.stack([line.low, line.high]), style)
            _curve(axes, line.x, asked.view.factor * line.mean, style, marked=not line.level)
        axes.set(xlabel=offered[name].title, ylabel=asked.view.axis, yscale=asked.view.scale)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=name == "rounds"))
        _legend(figure, asked, [each is not None for each in found])
        what = (
            "Total variance of the last layers that came back"
            if asked.view.metric == seeds.VARIANCE
            else f"Mean over clients of the {asked.model} models' {asked.view.axis}, on each "
            "client's own test part,"
        )
        spent = {"rounds": "", "seconds": " of training", "bytes": " down and up, all clients"}
        return f"{what} against {name}{spent[name]}.{_seeded(asked)}"

    return draw


def gain(figure: Figure, asked: Asked) -> str:
    """Draws what each client gains over training alone, all clients of a group in order."""
    axes = figure.subplots()
    axes.axhline(0, color="0.4", linewidth=0.8)
    shown = []
    for group, style in zip(asked.groups, asked.styles, strict=True):
        found = figures.gains_by_seed(group, asked.runs) if group.method != "local" else {}
        shown.append(bool(found))
        if found:
            points = np.sort(np.concatenate([each.points for each in found.values()]))
            share = 100 * (np.arange(len(points)) + 0.5) / len(points)
            _curve(axes, share, points, style)
    if not any(shown):
        raise IsthmusError(
            "no run has a run of local on its federation among these; expected one to hold it "
            "against; add it"
        )
    axes.set(xlabel="clients, ordered by gain, %", ylabel="gain, percentage points", xlim=(0, 100))
    _legend(figure, asked, shown)
    many = " The clients of all seeds are ordered together." if _seeded(asked) else ""
    return (
        "What each client gains over training alone: top-1 accuracy of its personal model less "
        f"that of local, on its own test part, in percentage points.{many}"
    )


def reliability(figure: Figure, asked: Asked) -> str:
    """Draws top-1 against confidence, all clients' test examples together."""
    axes = figure.subplots()
    axes.plot([0, 100], [0, 100], color="0.4", linewidth=0.8, linestyle=(0, (1, 2)))
    found = [seeds.bins(group) for group in asked.groups]
    for bins, style in zip(found, asked.styles, strict=True):
        if bins is not None:
            n, right, sure = bins
            _curve(axes, 100 * sure[n > 0], 100 * right[n > 0], style)
    if not any(bins is not None for bins in found):
        raise IsthmusError("these runs have no reliability.csv; expected one; run them again")
    axes.set(
        xlabel="mean confidence in the bin, %", ylabel="right, %", xlim=(0, 101), ylim=(0, 101)
    )
    axes.set_aspect("equal")
    _legend(figure, asked, [bins is not None for bins in found])
    many = ", of all seeds" if _seeded(asked) else ""
    return (
        "Share of right answers against mean confidence in fifteen bins; personal models, pooled "
        f"over all clients' test examples{many}. Dotted: confidence that is what it claims to be."
    )


def path(figure: Figure, asked: Asked) -> str:
    """Draws a metric from the shared model to the clients' own, and who chose which place."""
    above, below = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    shown = []
    for group, style in zip(asked.groups, asked.styles, strict=True):
        ways = [way for run in group.runs if (way := run.along(asked.view.metric)) is not None]
        ways = [way for way in ways if way.client.size]
        shown.append(bool(ways))
        if not ways:
            continue
        lam = ways[0].lam
        means = asked.view.factor * np.stack([way.values.mean(0) for way in ways])  # [S, L]
        if len(means) > 1:
            _band(above, lam, np.stack([means.min(0), means.max(0)]), style)
        _curve(above, lam, means.mean(0), style)
        chosen = np.concatenate([way.chosen for way in ways])
        places, counts = np.unique(chosen[~np.isnan(chosen)].round(6), return_counts=True)
        _curve(below, places, 100 * counts / max(counts.sum(), 1), style)
    if not any(shown):
        raise IsthmusError(
            "no run here has a path with an own end; expected one of superfed-mm, superfed-lm; "
            "add one, or draw it after a later evaluation"
        )
    said = _references(above, asked)
    above.set(ylabel=asked.view.axis)
    below.set(xlabel="place on the path, λ (0 shared, 1 own)", ylabel="clients, %", ylim=(0, None))
    _legend(figure, asked, shown)
    return (
        "Above: models on the line (1 − λ) · shared + λ · own, mean over the clients that have an "
        f"own end, each on its own test part.{said} Below: share of clients whose personal model "
        f"lies there.{_seeded(asked)}"
    )


def _map(draw: Callable[[Figure, Sequence[Group], View], str]) -> Callable[[Figure, Asked], str]:
    return lambda figure, asked: draw(figure, asked.groups, asked.view)


MAPPED = ("top1", "loss")
CURVES = ("top1", "loss", "ece", seeds.VARIANCE)
PLATES: Mapping[str, Plate] = {
    "rounds": Plate("a metric against communication rounds", against("rounds"), 0.85, CURVES),
    "seconds": Plate("the same against seconds of training", against("seconds"), 0.85, CURVES),
    "bytes": Plate("the same against bytes sent", against("bytes"), 0.85, CURVES),
    "gain": Plate("what each client gains over training alone, sorted", gain, 0.85),
    "reliability": Plate("how sure and how right", reliability, 1.1),
    "path": Plate("from the shared to the own model", path, 1.0, ("top1", "loss", "ece")),
    "simplex": Plate("where clients are in a simplex", _map(maps.simplices), 0.85, MAPPED),
    "landscape": Plate("models around the shared one", _map(maps.planes), 1.05, MAPPED),
    "similarity": Plate("who is like whom, and what it adds", _map(maps.similarities), 1.2),
}


def _plate(name: str, metric: str) -> Plate:
    if name not in PLATES:
        raise IsthmusError(f"no figure is called {name!r}; {nearest(name, list(PLATES))}")
    known = PLATES[name].metrics
    if metric not in known:
        raise IsthmusError(f"{name} shows no metric {metric!r}; {nearest(metric, list(known))}")
    return PLATES[name]


def _asked(runs: Sequence[Run], metric: str, model: str, seed: int | None) -> Asked:
    kept = [run for run in runs if seed is None or run.seed == seed]
    if not kept:
        given = ", ".join(str(run.seed) for run in runs)
        raise IsthmusError(f"no run has the seed {seed}; expected one of {given}; name one of them")
    groups = grouped(kept)
    styles = figures.styles([group.runs[0] for group in groups])
    return Asked(kept, groups, styles, VIEWS[metric], model)


def _seeded(asked: Asked) -> str:
    if all(len(group.runs) == 1 for group in asked.groups):
        return ""
    return f" {seeds.said(asked.groups)} Bands: from the lowest to the highest seed."


def _curve(axes: Axes, x: Floats, y: Floats, style: Style, marked: bool = True) -> Line2D:
    (line,) = axes.plot(x, y, **_drawn(style))
    line.set_markevery(ceil(len(x) / curves.MARKERS_AT_MOST))
    if not marked:
        line.set_marker("")
    return line


def _drawn(style: Style) -> dict[str, Any]:
    return {
        "color": style.colour,
        "linewidth": 1.1,
        "linestyle": (0, tuple(length / 2 for length in style.dash)) if style.dash else "-",
        "marker": MARKERS[style.symbol],
        "markersize": 3.6,
        "markeredgewidth": 0,
    }


def _band(axes: Axes, x: Floats, limits: Floats, style: Style) -> None:
    axes.fill_between(x, *limits, color=style.colour, alpha=0.18, linewidth=0)


def _legend(figure: Figure, asked: Asked, shown: Iterable[bool]) -> None:
    kept = [
        (group, style)
        for group, style, drawn in zip(asked.groups, asked.styles, shown, strict=True)
        if drawn
    ]
    handles = [Line2D([], [], **_drawn(style)) for _, style in kept]
    names = [
        group.label + (DAGGER if group.runs[0].chosen_on_test and asked.model == "personal" else "")
        for group, _ in kept
    ]
    columns = _columns([group for group, _ in kept], figure.get_figwidth())
    figure.legend(handles, names, loc="outside lower center", ncols=columns)


def _columns(groups: Sequence[Group], width: float) -> int:
    longest = max(len(group.label) for group in groups)
    return max(1, min(len(groups), int(width / (0.5 + 0.065 * longest))))


def _references(axes: Axes, asked: Asked) -> str:
    means: dict[str, list[float]] = {}
    for run in asked.runs:
        for found in paths.references(run, asked.runs):
            means.setdefault(found.name, []).append(found.mean(asked.view.metric))
    patterns = ((1.0, 1.5), (4.0, 2.0))
    for (name, values), dash in zip(means.items(), patterns, strict=False):
        level = asked.view.factor * float(np.mean(values))
        axes.axhline(level, color="0.45", linewidth=0.9, linestyle=(0, dash))
        axes.annotate(name, (1, level), ha="right", va="bottom", fontsize=6, color="0.3")
    return " Horizontal: means over the same clients." if means else ""
