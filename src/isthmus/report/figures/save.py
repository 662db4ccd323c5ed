"""Saves one figure for a paper; needs matplotlib."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from isthmus.errors import IsthmusError, nearest
from isthmus.report.contents import PRINT_FIGURES
from isthmus.report.figures import paper, theme
from isthmus.report.figures.curves import MODELS, VARIANCE
from isthmus.report.figures.theme import ACCURACY, CALIBRATION, LOSS
from isthmus.report.groups import group_by_seed
from isthmus.report.section import FigureInput, PrintFigure
from isthmus.report.tables.formats import FOOTNOTE
from isthmus.run.record import RecordedRun
from isthmus.system.files import overwrite

WIDTHS = {1: 3.3, 2: 6.9}  # inches: one column of a page, and both
LEGEND_LINE = 0.15  # inches
FORMATS = {".svg": "Date", ".pdf": "CreationDate", ".png": "Software"}  # what would make it new
VIEWS = {view.metric: view for view in (ACCURACY, LOSS, CALIBRATION, VARIANCE)}


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
    """Draws a figure of runs and saves it as SVG, PDF or PNG; the sizes are in inches."""
    print_figure, place = _find_plate(name, metric), Path(out)
    if place.suffix not in FORMATS:
        raise IsthmusError(
            f"{place} is to be a file of kind {place.suffix!r}; expected {', '.join(FORMATS)}; "
            f"for example {place.parent / (place.stem or name)}.svg"
        )
    for side, size in (("width", width), ("height", height)):
        if size is not None and not 1 <= size <= 20:
            raise IsthmusError(f"{side} {size:g}; expected 1 to 20 inches; for example 3.3")
    if model not in MODELS:
        raise IsthmusError(f"no model is called {model!r}; {nearest(model, list(MODELS))}")
    given = choose_input(runs, metric, model, seed)
    with mpl.rc_context(paper.LOOK):
        entries = ceil(len(given.groups) / paper.count_columns(given.groups, width))
        tall = print_figure.ratio * width + LEGEND_LINE * max(entries - 2, 0)
        figure = Figure(figsize=(width, height or tall), layout="constrained")
        caption = print_figure.draw(figure, given)
        if any(run.chosen_on_test for run in given.runs):
            caption = f"{caption} {FOOTNOTE}"
        kind, dated = place.suffix[1:], FORMATS[place.suffix]
        with overwrite(place) as file:
            figure.savefig(file, format=kind, metadata={dated: None})
    return SavedFigure(place, caption)


def choose_input(
    runs: Sequence[RecordedRun],
    metric: str = "top1",
    model: str = "personal",
    seed: int | None = None,
) -> FigureInput:
    """Collects what a figure of these runs, or of those of one seed, is about."""
    of_seed = [run for run in runs if seed is None or run.seed == seed]
    if not of_seed:
        given = ", ".join(str(run.seed) for run in runs)
        raise IsthmusError(f"no run has the seed {seed}; expected one of {given}; name one of them")
    groups = group_by_seed(of_seed)
    styles = theme.choose_styles([group.runs[0] for group in groups])
    return FigureInput(of_seed, groups, styles, VIEWS[metric], model)


def _find_plate(name: str, metric: str) -> PrintFigure:
    if name not in PRINT_FIGURES:
        raise IsthmusError(f"no figure is called {name!r}; {nearest(name, list(PRINT_FIGURES))}")
    known = PRINT_FIGURES[name].metrics
    if metric not in known:
        raise IsthmusError(f"{name} shows no metric {metric!r}; {nearest(metric, list(known))}")
    return PRINT_FIGURES[name]
