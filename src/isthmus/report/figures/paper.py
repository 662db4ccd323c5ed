"""What figures for print have in common: their look, curves, bands, the legend.

They are drawn at the size they are printed, labelled, known apart in grey, from the numbers of the
page. matplotlib is an extra: nothing here imports it before a figure is drawn.
"""

from collections.abc import Iterable, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from isthmus.report.figures.theme import SYMBOLS, Style
from isthmus.report.groups import Group
from isthmus.report.section import FigureInput
from isthmus.report.tables.formats import DAGGER
from isthmus.report.tables.summary import describe_seeds
from isthmus.run.columns import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS_AT_MOST = 15  # on one line
SHADES = "cividis"  # told apart in grey, and by every common kind of colour vision
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


def draw_curve(axes: "Axes", x: Floats, y: Floats, style: Style, marked: bool = True) -> None:
    """Draws a line with markers in a group's style."""
    (line,) = axes.plot(x, y, **convert_style(style))
    line.set_markevery(ceil(len(x) / MARKERS_AT_MOST))
    if not marked:
        line.set_marker("")


def draw_band(axes: "Axes", x: Floats, limits: Floats, style: Style) -> None:
    """Draws a band between two lines, limits [2, X], in a group's colour."""
    axes.fill_between(x, *limits, color=style.colour, alpha=0.18, linewidth=0)


def draw_legend(figure: "Figure", given: FigureInput, shown: Iterable[bool]) -> None:
    """Names the groups that are shown below the figure."""
    from matplotlib.lines import Line2D

    entries = [
        (group, style)
        for group, style, drawn in zip(given.groups, given.styles, shown, strict=True)
        if drawn
    ]
    personal = given.model == "personal"
    names = [
        group.label + (DAGGER if group.runs[0].chosen_on_test and personal else "")
        for group, _ in entries
    ]
    handles = [Line2D([], [], **convert_style(style)) for _, style in entries]
    columns = count_columns([group for group, _ in entries], figure.get_figwidth())
    figure.legend(handles, names, loc="outside lower center", ncols=columns)


def count_columns(groups: Sequence[Group], width: float) -> int:
    """Counts the columns of a legend that fit into a width in inches."""
    longest = max(len(group.label) for group in groups)
    return max(1, min(len(groups), int(width / (0.5 + 0.065 * longest))))


def convert_style(style: Style) -> dict[str, Any]:
    """Converts a group's style to what matplotlib takes."""
    return {
        "color": style.colour,
        "linewidth": 1.1,
        "linestyle": (0, tuple(length / 2 for length in style.dash)) if style.dash else "-",
        "marker": SYMBOLS[style.symbol].marker,
        "markersize": 3.6,
        "markeredgewidth": 0,
    }


def describe_bands(given: FigureInput) -> str:
    """Says what lines and bands are where groups have several seeds."""
    if not given.several_seeds:
        return ""
    return f" {describe_seeds(given.groups)} Bands: from the lowest to the highest seed."


def name_seed(group: Group) -> str:
    """Names the seed of a group's first run, where it has others."""
    return f" Seed {group.runs[0].seed}." if len(group.runs) > 1 else ""
