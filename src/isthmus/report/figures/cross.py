"""Cross: every client's personal model on every client's data."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from isthmus.errors import IsthmusError
from isthmus.report.figures.figure import Axis, Figure, HeatMap, Shade
from isthmus.report.figures.similarity import order_by_similarity
from isthmus.report.figures.theme import SHOWN_AT_MOST
from isthmus.report.section import (
    Drawing,
    FigureInput,
    PrintFigure,
    Report,
    SectionContent,
    name_seed,
)
from isthmus.run.columns import Floats, Integers, read_arrays
from isthmus.run.record import RecordedRun
from isthmus.run.schema import CROSS


class CrossRecord(NamedTuple):
    """Models of some clients on the data of each of them, like ones next to each other."""

    client: Integers  # [M]
    top1: Floats  # [M, M]: a row for each model, a column for each client's data
    loss: Floats
    which: str  # last or best
    split: str
    round: tuple[int, int]  # the first and the last after which a model is

    @property
    def own(self) -> float:
        """The mean top-1 of models on their own clients' data."""
        return float(np.diagonal(self.top1).mean())

    @property
    def others(self) -> float | None:
        """The mean top-1 of models on others' data, if there are others."""
        others = self.top1[~np.eye(len(self.client), dtype=bool)]
        return float(others.mean()) if len(others) else None

    @property
    def when(self) -> str:
        """After which round the models are."""
        first, last = self.round
        when = f"round {first}" if first == last else f"rounds {first} to {last}"
        return when if self.which == "last" else f"{when}, best on validation data"


def read_cross(run: RecordedRun) -> CrossRecord | None:
    """Read what `isthmus cross` measured of a run, if it did."""
    file = run.path / "cross.csv"
    if not file.is_file():
        return None
    table = read_arrays(file, CROSS)
    clients, row = np.unique(table["of"], return_inverse=True)
    known, column = np.unique(table["client"], return_inverse=True)
    values = [np.full((len(clients),) * 2, np.nan) for _ in range(2)]
    if not np.array_equal(clients, known) or len(row) != values[0].size or not len(row):
        raise IsthmusError(
            f"{file} is incomplete: some models were not measured on every client's data; "
            f"run isthmus cross {run.path} again"
        )
    for matrix, name in zip(values, ("top1", "loss"), strict=True):
        matrix[row, column] = table[name]
    order = order_by_similarity(values[0] + values[0].T)
    top1, loss = (matrix[np.ix_(order, order)] for matrix in values)
    rounds = int(table["round"].min()), int(table["round"].max())
    which, split = (str(table[name][0]) for name in ("which", "split"))
    return CrossRecord(clients[order], top1, loss, which, split, rounds)


def show(report: Report) -> SectionContent | None:
    """Show the runs whose models were measured on every client's data."""
    panels = report.read_runs(read_cross)
    figures = {f"figure-cross-{panel.place}": build(panel.found, SHOWN_AT_MOST) for panel in panels}
    values = {"panels": panels, "SHOWN_AT_MOST": SHOWN_AT_MOST}
    return SectionContent(values, figures) if panels else None


def build(found: CrossRecord, most: int | None = None) -> Figure:
    """Return the accuracies as a heat map, of the first clients if there are more than `most`."""
    names = [str(client) for client in found.client[:most].tolist()]
    cells = HeatMap(
        x=names,
        y=names,
        z=100 * found.top1[:most, :most],
        data=found.loss[:most, :most],
        shade=Shade("top-1, %", 0, 100),
        hover="<b>model of client %{y}</b> on data of client %{x}: <b>%{z:.3~g} %</b>"
        "<br>loss %{customdata:.3~g} nats",
    )
    few = len(names) <= 40
    x = Axis(f"{found.split} data of client", names=names, labelled=few, grid=False)
    y = replace(x, title="personal model of client", reversed=True)
    return Figure([cells], x, y)


def draw(given: FigureInput) -> Drawing:
    """Return the first run that was measured so, for print."""
    known = given.read_groups(read_cross)
    if not known:
        raise IsthmusError(
            "none of these runs has a cross.csv; measure one with: isthmus cross RUN"
        )
    group, found = known[0]
    caption = (
        f"Top-1 accuracy of each client's personal model after {found.when} (rows) on each "
        f"client's {found.split} part (columns). Similar clients are adjacent.{name_seed(group)}"
    )
    return Drawing([build(found)], caption)


PRINT_FIGURE = PrintFigure(
    "cross", "accuracy of each personal model on every client's data", draw, 0.9
)
