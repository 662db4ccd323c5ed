"""The figures of a report: each takes runs, and returns a plotly figure in the light theme.

A figure with several views (accuracy, loss, ...) holds the traces of all of them, the first one
visible: `trace.meta["view"]` names the view of a trace, `layout.meta["views"]` what each changes.
"""

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from isthmus.errors import IsthmusError
from isthmus.records.columns import Floats
from isthmus.records.reader import Federation, Run, trained_alone
from isthmus.report import groups as grouping
from isthmus.report import seeds
from isthmus.report.groups import Group
from isthmus.report.tables.summary import DAGGER, nbytes

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
ALONE = ("#878f99", "#858d97")  # training alone is the grey that the others are held against
INK = ("#1d2733", "#e6edf3")
MUTED = ("#5b6673", "#9aa7b4")
GRID = ("#e6e2d9", "#2a3845")
ZERO = ("#9d978a", "#64748a")
SURFACE = ("#ffffff", "#15202b")
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "x",
    "star",
    "triangle-down",
    "pentagon",
    "cross",
    "triangle-left",
    "triangle-right",
    "hexagram",
)
# Lengths of strokes and gaps. Five patterns, twelve colours: pairs come again after sixty groups.
DASHES = ((), (7.0, 3.0), (2.0, 2.0), (7.0, 2.0, 2.0, 2.0), (12.0, 4.0))
ALONE_DASH = (1.0, 3.0)
ALONE_SYMBOL = "hexagon"

NAMED_AT_MOST = 6000  # bars whose hover text lists the client's classes
SHOWN_AT_MOST = 120  # clients in the picture of who holds what


class View(NamedTuple):
    """One metric as a figure shows it."""

    metric: str
    label: str
    axis: str
    factor: float
    unit: str
    scale: str = "linear"


ACCURACY = View("top1", "Accuracy", "top-1 accuracy, %", 100, " %")
LOSS = View("loss", "Loss", "cross-entropy loss, nats", 1, "")
CALIBRATION = View("ece", "Calibration error", "expected calibration error, %", 100, " %")


def dark_tones() -> dict[str, str]:
    """Maps every colour of the light theme to its tone in the dark one."""
    pairs = (*SERIES, ALONE, INK, MUTED, GRID, ZERO, SURFACE)
    tones = dict(pairs)
    return tones | {veil(light): veil(dark) for light, dark in pairs}


class Style(NamedTuple):
    """How a group of runs is drawn, so that it is known in grey too."""

    colour: str
    dash: tuple[float, ...]  # strokes and gaps; none: solid
    symbol: str

    @property
    def line(self) -> dict[str, Any]:
        """Gives the line as plotly has it."""
        dash = ",".join(f"{length:g}px" for length in self.dash)
        return {"color": self.colour, "dash": dash or "solid"}


def styles(runs: Sequence[Run]) -> list[Style]:
    """Gives each run its style, the same in all figures; runs that differ in seed share one."""
    given: dict[frozenset[tuple[str, str]], Style] = {}
    alone = Style(ALONE[0], ALONE_DASH, ALONE_SYMBOL)
    for run in runs:
        key = grouping.key(run.settings)
        if key not in given and run.method == "local" and alone not in given.values():
            given[key] = alone
        elif key not in given:
            used = sum(style != alone for style in given.values())
            given[key] = Style(
                SERIES[used % len(SERIES)][0],
                DASHES[used % len(DASHES)],
                SYMBOLS[used % len(SYMBOLS)],
            )
    return [given[grouping.key(run.settings)] for run in runs]


def colours(runs: Sequence[Run]) -> list[str]:
    """Gives each run its colour."""
    return [style.colour for style in styles(runs)]


def reliability(groups: Sequence[Group]) -> go.Figure:
    """Draws top-1 against confidence, all clients' and seeds' test examples together."""
    figure = go.Figure(layout=layout())
    figure.add_scatter(
        x=[0, 100],
        y=[0, 100],
        mode="lines",
        line={"color": ZERO[0], "dash": "dot", "width": 1.5},
        hoverinfo="skip",
    )
    drawn = zip(groups, styles([group.runs[0] for group in groups]), strict=True)
    for place, (group, style) in enumerate(drawn):
        bins = seeds.bins(group)
        if bins is None:
            continue
        n, right, sure = (column[bins[0] > 0] for column in bins)
        name = plain(group.label) + (DAGGER if group.runs[0].chosen_on_test else "")
        figure.add_scatter(
            x=numbers(100 * sure),
            y=numbers(100 * right),
            customdata=n.astype(int).tolist(),
            meta={"run": place},
            mode="lines+markers",
            name=name,
            line=style.line | {"width": 2},
            marker={"symbol": style.symbol, "size": 8},
            hovertemplate=f"<b>{name}</b><br>%{{customdata}} examples of mean confidence "
            "%{x:.3~g} %<br>of which right: <b>%{y:.3~g} %</b><extra></extra>",
        )
    figure.update_xaxes(title_text="mean confidence in the bin, %", range=[0, 102])
    figure.update_yaxes(title_text="right, %", range=[0, 102])
    return figure


class Gains(NamedTuple):
    """What each client gains over training alone, in percentage points, lowest first."""

    client: np.ndarray[Any, np.dtype[np.int64]]
    points: Floats

    @property
    def gain(self) -> int:
        """Counts the clients above zero."""
        return int(np.sum(self.points > 0))

    @property
    def equal(self) -> int:
        """Counts the clients at zero."""
        return int(np.sum(self.points == 0))

    @property
    def lose(self) -> int:
        """Counts the clients below zero."""
        return int(np.sum(self.points < 0))


def gains(run: Run, alone: Run) -> Gains:
    """Subtracts each client's top-1 when training alone from its top-1 in a run."""
    points = 100 * (run.values("top1") - alone.values("top1"))
    known = np.flatnonzero(~np.isnan(points))
    order = known[np.argsort(points[known], kind="stable")]
    return Gains(run.federation.client[order], points[order].round(9))


def gains_by_seed(group: Group, runs: Sequence[Run]) -> dict[int, Gains]:
    """Returns the gains of a group's runs that have a run of `local` on their federation."""
    return {
        run.seed or 0: gains(run, alone)
        for run in group.runs
        if (alone := trained_alone(run, runs)) is not None
    }


def gain(group: Group, runs: Sequence[Run], detailed: bool = True) -> go.Figure:
    """Draws what each client gains over training alone, from the one that loses most upwards.

    The bars of all seeds that can be compared are there, those of the first visible.
    """
    figure = go.Figure(layout=layout())
    colour = styles(runs)[[run.path for run in runs].index(group.runs[0].path)].colour
    found = gains_by_seed(group, runs)
    for run in group.runs:
        if (run.seed or 0) in found:
            figure.add_bar(
                **_bars(run, found[run.seed or 0], colour, detailed), visible=not figure.data
            )
    if not figure.data:
        raise IsthmusError(
            f"{group.runs[0].path} has no run of local on its federation among the runs; add one"
        )
    crowded = len(group.runs[0].federation.client) > SHOWN_AT_MOST
    figure.update_layout(bargap=0 if crowded else 0.2)
    figure.update_xaxes(
        title_text="clients, ordered by gain", showticklabels=False, showgrid=False, zeroline=False
    )
    figure.update_yaxes(title_text="gain, percentage points", zeroline=True)
    return figure


def _bars(run: Run, found: Gains, colour: str, detailed: bool) -> dict[str, Any]:
    place = np.searchsorted(run.federation.client, found.client)
    held = [_in_lines(classes(run.federation, i)) if detailed else "" for i in place.tolist()]
    mark = DAGGER if run.chosen_on_test else ""
    return {
        "x": list(range(1, len(place) + 1)),
        "y": numbers(found.points),
        "customdata": [
            [int(client), int(run.federation.train[i]), text]
            for client, i, text in zip(found.client, place, held, strict=True)
        ],
        "marker": {
            "color": colour,
            # Hatched where the client loses: told apart without colour too.
            "pattern": {
                "shape": ["/" if points < 0 else "" for points in found.points.tolist()],
                "size": 5,
                "solidity": 0.35,
                "fillmode": "replace",
            },
            "line": {"width": 1 if len(place) <= SHOWN_AT_MOST else 0, "color": colour},
        },
        "unselected": {"marker": {"opacity": 0.3}},
        "meta": {"seed": str(run.seed or 0)},
        "hovertemplate": f"<b>client %{{customdata[0]}}</b>: <b>%{{y:+.3~g}}{mark}</b> points"
        "<br>%{customdata[1]} training examples%{customdata[2]}<extra></extra>",
    }


def traffic(groups: Sequence[Group]) -> go.Figure:
    """Draws the bytes that went down to clients and up to the server, means over seeds."""
    parts = (("down_bytes", "down to clients", ""), ("up_bytes", "up to the server", "/"))
    most = max(
        seeds.spent(group, "down_bytes") + seeds.spent(group, "up_bytes") for group in groups
    )
    unit, size = ("GB", 1e9) if most >= 1e9 else ("MB", 1e6)
    figure = _costs(groups, parts, size, nbytes)
    figure.update_xaxes(title_text=f"traffic, {unit}")
    return figure


def time(groups: Sequence[Group]) -> go.Figure:
    """Draws the seconds spent on training and on evaluation, means over seeds."""
    parts = (("train_seconds", "training", ""), ("evaluate_seconds", "evaluation", "/"))
    figure = _costs(groups, parts, 1, lambda spent: f"{spent:,.1f} s")
    figure.update_xaxes(title_text="time, seconds")
    return figure


def holdings(federation: Federation) -> go.Figure:
    """Draws which share of each client's examples belongs to which class."""
    counts = federation.labels[:SHOWN_AT_MOST]  # [N, C]
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    figure = go.Figure(layout=layout())
    figure.add_heatmap(
        z=[numbers(100 * row, digits=3) for row in shares.T],
        x=federation.client[:SHOWN_AT_MOST].tolist(),
        y=list(range(counts.shape[1])),
        customdata=counts.T.tolist(),
        colorscale=[[0, GRID[0]], [0.001, veil(SERIES[0][0])], [1, SERIES[0][0]]],
        zmin=0,
        zmax=100,
        xgap=1,
        ygap=1,
        colorbar={
            "title": {"text": "share, %", "font": {"size": 12}},
            "thickness": 10,
            "outlinewidth": 0,
            "len": 0.9,
        },
        hovertemplate="<b>client %{x}</b>: %{customdata} examples of class %{y}<br>"
        "%{z:.3~g} % of what it holds<extra></extra>",
    )
    figure.update_xaxes(title_text="client", showgrid=False, zeroline=False)
    figure.update_yaxes(title_text="class", showgrid=False, zeroline=False, autorange="reversed")
    if counts.shape[1] <= 20:
        figure.update_yaxes(dtick=1)
    return figure


def classes(federation: Federation, place: int, most: int = 6) -> str:
    """Lists the classes of a client with their counts, the most frequent first."""
    counts = federation.labels[place]
    order = [c for c in np.argsort(-counts, kind="stable").tolist() if counts[c] > 0]
    named = ", ".join(f"class {c}: {counts[c]}" for c in order[:most])
    return named + (f", {len(order) - most} more" if len(order) > most else "")


def plain(text: str) -> str:
    """Makes text from a file inert in plotly, whose texts know tags and templates."""
    return html.escape(text, quote=False).replace("%{", "%&#123;")


def numbers(values: Iterable[float] | Floats, digits: int = 5) -> list[float | None]:
    """Rounds to significant digits, so that a page stays small; what is not finite becomes None."""
    return [
        float(f"{value:.{digits}g}") if np.isfinite(value) else None
        for value in np.asarray(values, dtype=np.float64).tolist()
    ]


def layout(views: Sequence[View] = ()) -> go.Layout:
    """Gives what all figures have in common."""
    axis = {
        "gridcolor": GRID[0],
        "zerolinecolor": ZERO[0],
        "zeroline": False,
        "linecolor": GRID[0],
        "automargin": True,
        "fixedrange": True,
        "title": {"standoff": 10},
    }
    layout = go.Layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "size": 13},
        margin={"l": 8, "r": 12, "t": 12, "b": 8},
        hovermode="closest",
        hoverlabel={
            "bgcolor": SURFACE[0],
            "bordercolor": ZERO[0],
            "align": "left",
            "font": {"color": INK[0], "family": FONT, "size": 13},
        },
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": MUTED[0], "activecolor": INK[0]},
        dragmode=False,
        showlegend=False,
        xaxis=axis,
        yaxis=axis,
    )
    layout.font.color = MUTED[0]
    if views:
        layout.yaxis.title.text = views[0].axis
        layout.meta = {
            "views": [
                {"name": view.metric, "label": view.label, "axis": view.axis}
                | ({} if view.scale == "linear" else {"type": view.scale})
                for view in views
            ]
        }
    return layout


def _costs(
    groups: Sequence[Group],
    parts: Sequence[tuple[str, str, str]],
    size: float,
    printed: Callable[[float], str],
) -> go.Figure:
    figure = go.Figure(layout=layout())
    names = [plain(group.label) for group in groups]
    tones = colours([group.runs[0] for group in groups])
    for column, name, pattern in parts:
        spent = [seeds.spent(group, column) for group in groups]
        figure.add_bar(
            y=names,
            x=numbers([amount / size for amount in spent]),
            orientation="h",
            name=name,
            customdata=[printed(amount) for amount in spent],
            marker={
                "color": tones,
                "pattern": {"shape": pattern, "size": 5, "solidity": 0.35, "fillmode": "replace"},
                "line": {"width": 1, "color": tones},
            },
            hovertemplate=f"<b>%{{y}}</b>: <b>%{{customdata}}</b> {name}<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.35)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(rangemode="tozero")
    return figure


def _in_lines(listed: str, most: int = 3) -> str:
    # A hover text does not break its lines by itself, and a phone is narrow.
    parts = listed.split(", ")
    lines = [", ".join(parts[i : i + most]) for i in range(0, len(parts), most)]
    return "".join(f"<br>{line}" for line in lines)


def veil(colour: str) -> str:
    """Makes a colour transparent."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"
