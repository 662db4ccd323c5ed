"""Gains: what each client gains over training alone."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from isthmus.errors import IsthmusError
from isthmus.report.figures.figure import Axis, Bars, Figure, Lines, Mark, Option
from isthmus.report.figures.theme import MUTED, SHOWN_AT_MOST, Style, list_classes
from isthmus.report.groups import Group
from isthmus.report.section import Drawing, FigureInput, PrintFigure, Report, SectionContent
from isthmus.report.statistics import WinTieLoss, win_tie_loss
from isthmus.report.tables.formats import DAGGER, MISSING, format_points, join_names
from isthmus.run.columns import Floats, Integers
from isthmus.run.record import RecordedRun, find_counterpart

NAMED_AT_MOST = 6000  # bars whose hover text lists the client's classes
LISTED_AT_MOST = 200  # clients in a table of all of them


class Gains(NamedTuple):
    """What each client gains over training alone, in percentage points, lowest first."""

    client: Integers
    points: Floats

    @property
    def median(self) -> float:
        """The median gain."""
        return float(np.median(self.points))

    @property
    def tally(self) -> WinTieLoss:
        """The clients above zero, at zero and below it."""
        return win_tie_loss(self.points)


def compute_gains(run: RecordedRun, alone: RecordedRun) -> Gains:
    """Subtract each client's top-1 when training alone from its top-1 in a run."""
    points = 100 * (run.values("top1") - alone.values("top1"))
    known = np.flatnonzero(~np.isnan(points))
    order = known[np.argsort(points[known], kind="stable")]
    return Gains(run.federation.client[order], points[order].round(9))


def compute_by_seed(group: Group, runs: Sequence[RecordedRun]) -> dict[int, Gains]:
    """Return the gains of a group's runs that have a run of `local` on their federation."""
    return {
        run.seed or 0: compute_gains(run, alone)
        for run in group.runs
        if (alone := find_counterpart(run, runs, "local")) is not None
    }


def build(
    group: Group,
    by_seed: Mapping[int, Gains],
    colour: str,
    limits: tuple[float, float],
    seeds: Sequence[int],
    detailed: bool,
) -> Figure:
    """Return what each client gains over training alone, from the one that loses most upwards.

    The bars of all seeds that can be compared are there; a switch chooses one.
    """
    bars = [
        _draw_bars(run, by_seed[run.seed or 0], colour, detailed)
        for run in group.runs
        if (run.seed or 0) in by_seed
    ]
    crowded = len(group.runs[0].federation.client) > SHOWN_AT_MOST
    return Figure(
        bars,
        x=Axis("clients, ordered by gain", labelled=False, grid=False),
        y=Axis("gain, percentage points", limits, zero_line=True),
        switches={"seeds": [Option(str(seed), f"seed {seed}") for seed in seeds]},
        gap=0 if crowded else 0.2,
    )


def _draw_bars(run: RecordedRun, gains: Gains, colour: str, detailed: bool) -> Bars:
    place = np.searchsorted(run.federation.client, gains.client)
    held = [
        _break_lines(list_classes(run.federation, i)) if detailed else "" for i in place.tolist()
    ]
    mark = DAGGER if run.chosen_on_test else ""
    return Bars(
        x=list(range(1, len(place) + 1)),
        y=gains.points,
        data=[
            [int(client), int(run.federation.train[i]), text]
            for client, i, text in zip(gains.client, place, held, strict=True)
        ],
        colour=colour,
        hatched=(gains.points < 0).tolist(),
        edge=1 if len(place) <= SHOWN_AT_MOST else 0,
        hover=f"<b>client %{{customdata[0]}}</b>: <b>%{{y:+.3~g}}{mark}</b> points"
        "<br>%{customdata[1]} training examples%{customdata[2]}",
        shown={"seed": str(run.seed or 0)},
    )


def _break_lines(listed: str, most: int = 3) -> str:
    # A hover text does not break its lines by itself, and a phone is narrow.
    parts = listed.split(", ")
    lines = [", ".join(parts[i : i + most]) for i in range(0, len(parts), most)]
    return "".join(f"<br>{line}" for line in lines)


def show(report: Report) -> SectionContent:
    """Show what each client gains over training alone."""
    runs, groups, rows = report.runs, report.groups, report.averages
    others = [i for i, group in enumerate(groups) if group.method != "local"]
    gains = {i: by_seed for i in others if (by_seed := compute_by_seed(groups[i], runs))}
    values = {
        "alone": any(run.method == "local" for run in runs),
        "left_out": join_names([rows[i].label for i in others if i not in gains]),
        "panels": [],
    }
    if not gains:
        return SectionContent(values)
    every = [each for by_seed in gains.values() for each in by_seed.values()]
    points = np.concatenate([each.points for each in every])
    low, high = float(min(points.min(), 0)), float(max(points.max(), 0))
    margin = 0.06 * (high - low) or 1.0
    detailed = len(points) <= NAMED_AT_MOST
    seeds = sorted({seed for by_seed in gains.values() for seed in by_seed})
    shared = ((low - margin, high + margin), seeds, detailed)
    figures = {
        f"figure-gain-{i}": build(groups[i], by_seed, report.styles[i].colour, *shared)
        for i, by_seed in gains.items()
    }
    values |= {
        "seeds": seeds,
        "detailed": detailed,
        "joined": all(len(each.points) <= LISTED_AT_MOST for each in every),
        "panels": [
            (name, report.styles[i].colour, rows[i], [by_seed.get(seed) for seed in seeds])
            for (i, by_seed), name in zip(gains.items(), figures, strict=True)
        ],
        "tables": [_list_gains(report, gains, seed) for seed in seeds],
    }
    return SectionContent(values, figures)


def _list_gains(
    report: Report, gains: Mapping[int, Mapping[int, Gains]], seed: int
) -> tuple[list[str], list[list[str]]] | None:
    """List the gains of one seed, for the groups whose clients are those of the first of them."""
    groups, rows = report.groups, report.averages
    of_seed = {
        i: next(run for run in groups[i].runs if (run.seed or 0) == seed)
        for i, by_seed in gains.items()
        if seed in by_seed
    }
    first = next(iter(of_seed.values()))
    if len(first.federation.client) > LISTED_AT_MOST:
        return None
    same = [i for i, run in of_seed.items() if run.split_digest == first.split_digest]
    columns = [
        dict(zip(gains[i][seed].client.tolist(), gains[i][seed].points.tolist(), strict=True))
        for i in same
    ]
    head = ["client", "training examples", *(rows[i].label for i in same)]
    return head, [
        [
            str(client),
            f"{first.federation.train[place]:,}",
            *(
                rows[i].mark(format_points(column[client] / 100)) if client in column else MISSING
                for i, column in zip(same, columns, strict=True)
            ),
        ]
        for place, client in enumerate(first.federation.client.tolist())
    ]


def draw(given: FigureInput) -> Drawing:
    """Return the gains of each group's clients in order, for print."""
    marks: list[Mark] = [Lines(x=np.array([0, 100]), y=np.zeros(2), style=Style(MUTED[0]))]
    shown = []
    for group, style in zip(given.groups, given.styles, strict=True):
        by_seed = compute_by_seed(group, given.runs) if group.method != "local" else {}
        shown.append(bool(by_seed))
        if by_seed:
            points = np.sort(np.concatenate([gains.points for gains in by_seed.values()]))
            share = 100 * (np.arange(len(points)) + 0.5) / len(points)
            marks.append(Lines(x=share, y=points, style=style))
    if not any(shown):
        raise IsthmusError(
            "none of these runs can be compared with training alone; add a run of local on the "
            "same federation"
        )
    x, y = Axis("clients, ordered by gain, %", (0, 100)), Axis("gain, percentage points")
    figure = Figure(marks, x, y, legend=given.list_legend(shown))
    many = (
        " The clients of all seeds are ordered together."
        if len(given.groups) < len(given.runs)
        else ""
    )
    caption = (
        "What each client gains over training alone: top-1 accuracy of its personal model less "
        f"that of local, on its own test part, in percentage points.{many}"
    )
    return Drawing([figure], caption)


PRINT_FIGURE = PrintFigure("gain", "gain of each client over training alone, sorted", draw)
