"""What figures look like: colours, styles of lines, markers."""

import html
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from isthmus.report.groups import make_key
from isthmus.run.record import RecordedRun, RecordTable

# Light and dark tones of one hue each, the first six told apart by every common kind of colour
# vision; each has a contrast of at least 3 with its background.
SERIES = (
    ("#2f74e8", "#4a8ad6"),
    ("#c07d12", "#ea9a2a"),
    ("#1f8a4c", "#74dcab"),
    ("#781a68", "#ffb5f2"),
    ("#201fa0", "#9a5cff"),
    ("#3d3822", "#a87c50"),
    ("#c4342d", "#ff7a6b"),
    ("#0f8a94", "#5fd4de"),
    ("#b43ca5", "#e07bd4"),
    ("#7a8500", "#c8d44a"),
    ("#0f003c", "#e8e4ff"),
    ("#9a4f16", "#d98a5f"),
)
ALONE = ("#878f99", "#858d97")  # training alone is grey
INK = ("#1d2733", "#e6edf3")
MUTED = ("#5b6673", "#9aa7b4")
GRID = ("#e6e2d9", "#2a3845")
ZERO = ("#9d978a", "#64748a")
SURFACE = ("#ffffff", "#15202b")
TONES = {  # of all figures of the page
    "ink": INK[0],
    "muted": MUTED[0],
    "grid": GRID[0],
    "zero": ZERO[0],
    "surface": SURFACE[0],
    "deep": SERIES[0][0],
    "alone": ALONE[0],
    "font": "system-ui, -apple-system, 'Segoe UI', sans-serif",
}


class Symbol(NamedTuple):
    """A marker: as matplotlib calls it, and its outline, 10 wide and high around (17, 6)."""

    marker: str | tuple[int, int, int]
    path: str


SYMBOLS = {
    "circle": Symbol("o", "M12.5 6a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z"),
    "square": Symbol("s", "M13 2h8v8h-8z"),
    "diamond": Symbol("D", "M17 .5l5.5 5.5l-5.5 5.5l-5.5-5.5z"),
    "triangle-up": Symbol("^", "M17 1l5 9h-10z"),
    "x": Symbol(
        "X",
        "M13.5 1l3.5 3.5l3.5-3.5l1.5 1.5l-3.5 3.5l3.5 3.5l-1.5 1.5l-3.5-3.5l-3.5 3.5l-1.5-1.5"
        "l3.5-3.5l-3.5-3.5z",
    ),
    "star": Symbol("*", "M17 .5l1.5 3.7l4 .3l-3 2.6l.9 3.9l-3.4-2.1l-3.4 2.1l.9-3.9l-3-2.6l4-.3z"),
    "triangle-down": Symbol("v", "M17 11l5-9h-10z"),
    "pentagon": Symbol("p", "M17 1l5 3.6l-1.9 5.9h-6.2l-1.9-5.9z"),
    "cross": Symbol("P", "M15.5 1h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z"),
    "triangle-left": Symbol("<", "M12 6l9-5v10z"),
    "triangle-right": Symbol(">", "M22 6l-9-5v10z"),
    "hexagram": Symbol(
        (6, 1, 0),
        "M17 .5l1.6 2.8h3.2l-1.6 2.7l1.6 2.7h-3.2l-1.6 2.8l-1.6-2.8h-3.2l1.6-2.7l-1.6-2.7h3.2z",
    ),
    "hexagon": Symbol("h", "M17 1l4.3 2.5v5l-4.3 2.5l-4.3-2.5v-5z"),
}
*MARKS, ALONE_MARK = SYMBOLS  # the last is for training alone
# Lengths of strokes and gaps. Five patterns, twelve colours: pairs come again after sixty groups.
DASHES = ((), (7.0, 3.0), (2.0, 2.0), (7.0, 2.0, 2.0, 2.0), (12.0, 4.0))
ALONE_DASH = (1.0, 3.0)
DASHED, DOTTED = (8.0, 5.0), (2.0, 4.0)  # of lines that are no group's

SHOWN_AT_MOST = 120  # clients in a picture of all of them


def map_to_dark() -> dict[str, str]:
    """Map every colour of the light theme to its tone in the dark one."""
    pairs = (*SERIES, ALONE, INK, MUTED, GRID, ZERO, SURFACE)
    tones = dict(pairs)
    return tones | {make_transparent(light): make_transparent(dark) for light, dark in pairs}


class Style(NamedTuple):
    """How a group of runs is drawn, so that it is known in grey too."""

    colour: str
    dash: tuple[float, ...] = ()  # strokes and gaps; none: solid
    symbol: str = ""  # of markers; none: there are none


def choose_styles(runs: Sequence[RecordedRun]) -> list[Style]:
    """Return the style of each run, the same in all figures; runs that differ in seed share one."""
    given: dict[frozenset[tuple[str, str]], Style] = {}
    alone = Style(ALONE[0], ALONE_DASH, ALONE_MARK)
    for run in runs:
        key = make_key(run.settings)
        if key not in given and run.method == "local" and alone not in given.values():
            given[key] = alone
        elif key not in given:
            used = sum(style != alone for style in given.values())
            given[key] = Style(
                SERIES[used % len(SERIES)][0],
                DASHES[used % len(DASHES)],
                MARKS[used % len(MARKS)],
            )
    return [given[make_key(run.settings)] for run in runs]


def choose_colours(runs: Sequence[RecordedRun]) -> list[str]:
    """Return the colour of each run."""
    return [style.colour for style in choose_styles(runs)]


def list_classes(federation: RecordTable, place: int, most: int = 6) -> str:
    """List the classes of a client with their counts, the most frequent first."""
    counts = federation.labels[place]
    order = [c for c in np.argsort(-counts, kind="stable").tolist() if counts[c] > 0]
    named = ", ".join(f"class {c}: {counts[c]}" for c in order[:most])
    return named + (f", {len(order) - most} more" if len(order) > most else "")


def make_inert(text: str) -> str:
    """Escape text from a file for plotly, whose texts know tags and templates."""
    return html.escape(text, quote=False).replace("%{", "%&#123;")


def make_transparent(colour: str) -> str:
    """Make a colour transparent."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"
