"""Cross: every client's personal model on every client's data."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import plotly.graph_objects as go

from isthmus.errors import IsthmusError
from isthmus.report.figures import paper
from isthmus.report.figures.similarity import order_by_likeness
from isthmus.report.figures.theme import (
    SHARES,
    SHOWN_AT_MOST,
    build_bar,
    build_layout,
    round_numbers,
)
from isthmus.report.section import FigureInput, PrintFigure, Report, SectionContent
from isthmus.report.tables.formats import format_percent
from isthmus.run.columns import Floats, Integers, read_arrays
from isthmus.run.record import RecordedRun
from isthmus.run.schema import CROSS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class CrossRecord(NamedTuple):
    """Models of some clients on the data of each of them, like ones next to each other."""

    client: Integers  # [M]
    top1: Floats  # [M, M]: a row for each model, a column for each client's data
    loss: Floats
    which: str  # last or best
    split: str
    round: tuple[int, int]  # the first and the last after which a model is

    @property
    def when(self) -> str:
        """Says after which round the models are."""
        first, last = self.round
        when = f"round {first}" if first == last else f"rounds {first} to {last}"
        return when if self.which == "last" else f"{when}, best on validation data"


def read_cross(run: RecordedRun) -> CrossRecord | None:
    """Reads what `isthmus cross` measured of a run, if it did."""
    file = run.path / "cross.csv"
    if not file.is_file():
        return None
    table = read_arrays(file, CROSS)
    clients, row = np.unique(table["of"], return_inverse=True)
    known, column = np.unique(table["client"], return_inverse=True)
    values = [np.full((len(clients),) * 2, np.nan) for _ in range(2)]
    if not np.array_equal(clients, known) or len(row) != values[0].size or not len(row):
        raise IsthmusError(
            f"{file} lacks models, or clients that they were measured on; expected each model on "
            "all of their data; measure it again"
        )
    for matrix, name in zip(values, ("top1", "loss"), strict=True):
        matrix[row, column] = table[name]
    order = order_by_likeness(values[0] + values[0].T)
    top1, loss = (matrix[np.ix_(order, order)] for matrix in values)
    rounds = int(table["round"].min()), int(table["round"].max())
    which, split = (str(table[name][0]) for name in ("which", "split"))
    return CrossRecord(clients[order], top1, loss, which, split, rounds)


def show(report: Report) -> SectionContent | None:
    """Shows the runs of which models were measured on everybody's data."""
    cards, figures = [], {}
    for i, run in enumerate(report.runs):
        found = read_cross(run)
        if found is None:
            continue
        name = f"figure-cross-{i}"
        figures[name] = plot(found)
        count, shown = len(found.client), min(len(found.client), SHOWN_AT_MOST)
        others = found.top1[~np.eye(count, dtype=bool)]
        cards.append(
            {
                "name": name,
                "tone": report.tones[i],
                "label": report.rows[i].label,
                "height": int(160 + min(560, 14 * shown + 120)),
                "own": format_percent(float(np.diagonal(found.top1).mean())),
                "others": format_percent(float(others.mean())) if len(others) else "",
                "split": found.split,
                "when": found.when,
                "shown": f"{shown} of {len(run.federation.client)} clients",
            }
        )
    return SectionContent({"cards": cards}, figures) if cards else None


def plot(found: CrossRecord) -> go.Figure:
    """Draws the accuracies as a heat map, dark where a model is right."""
    result = go.Figure(layout=build_layout())
    most = slice(0, SHOWN_AT_MOST)
    names = [str(client) for client in found.client[most].tolist()]
    result.add_heatmap(
        z=[round_numbers(100 * row, digits=3) for row in found.top1[most, most]],
        x=names,
        y=names,
        customdata=[round_numbers(row, digits=4) for row in found.loss[most, most]],
        zmin=0,
        zmax=100,
        colorscale=SHARES,
        xgap=0.5,
        ygap=0.5,
        colorbar=build_bar("top-1, %", len=0.9),
        hovertemplate="<b>model of client %{y}</b> on data of client %{x}: <b>%{z:.3~g} %</b>"
        "<br>loss %{customdata:.3~g} nats<extra></extra>",
    )
    few = len(names) <= 40
    axis = {"type": "category", "showgrid": False, "zeroline": False, "showticklabels": few}
    result.update_xaxes(title_text=f"whose {found.split} part", **axis)
    result.update_yaxes(title_text="whose personal model", autorange="reversed", **axis)
    return result


def draw(figure: "Figure", given: FigureInput) -> str:
    """Draws the first run that was measured so, for print."""
    for group in given.groups:
        found = read_cross(group.runs[0])
        if found is not None:
            break
    else:
        raise IsthmusError(
            "no run here was measured on everybody's data; expected a cross.csv; run isthmus cross"
        )
    axes = figure.subplots()
    shades = axes.imshow(100 * found.top1, cmap=paper.SHADES, vmin=0, vmax=100, aspect="auto")
    figure.colorbar(shades, ax=axes, label="top-1, %")
    names = [str(client) for client in found.client.tolist()]
    places = np.arange(len(names)) if len(names) <= 30 else np.zeros(0)
    axes.set(xlabel=f"whose {found.split} part", ylabel="whose personal model")
    axes.set_xticks(places, names[: len(places)], fontsize=5, rotation=90)
    axes.set_yticks(places, names[: len(places)], fontsize=5)
    axes.grid(visible=False)
    return (
        f"Top-1 accuracy of each client's personal model after {found.when} (rows) on each "
        f"client's {found.split} part (columns); like clients next to each other."
        f"{paper.name_seed(group)}"
    )


PRINT_FIGURE = PrintFigure("cross", "each personal model on everybody's data", draw, 0.9)
