"""Two networks whose logits are added: each alone, their sum, and clients of similar labels."""

from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from isthmus.errors import IsthmusError
from isthmus.report.figures.figure import (
    ACCURACY,
    LOSS,
    Axis,
    Bars,
    Figure,
    HeatMap,
    Mark,
    Shade,
    align,
    offer_views,
    summarize_lines,
)
from isthmus.report.figures.theme import SERIES, SHOWN_AT_MOST, list_classes
from isthmus.report.section import (
    Drawing,
    FigureInput,
    PrintFigure,
    Report,
    SectionContent,
    name_seed,
)
from isthmus.report.tables.formats import format_percent
from isthmus.run.columns import Floats, Integers
from isthmus.run.record import RecordedRun

BRANCHES = ("1 0", "1 1", "0 1")  # weights of a shared and an own network, whose logits are added
VIEWS = (ACCURACY, LOSS)


class Similarity(NamedTuple):
    """How alike clients' labels are, and what each of their two networks adds to the other.

    Clients come in an order in which those that are alike are near each other.
    """

    client: Integers  # [N]
    matrix: Floats  # [N, N]: cosines of label counts
    own_adds: Floats  # [N]: top-1 of the sum, less that of the shared network alone; nan if unknown
    shared_adds: Floats  # [N]: top-1 of the sum, less that of the own network alone


def compute_similarity(run: RecordedRun, most: int = SHOWN_AT_MOST) -> Similarity:
    """Find how alike the labels of the first clients are, and what their networks add."""
    counts = run.federation.labels[:most].astype(np.float64)
    unit = counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-300)
    matrix = unit @ unit.T
    order = np.array(order_by_similarity(matrix), dtype=np.int64)
    shared, both, own = read_branches(run)[:most][order].T
    return Similarity(
        run.federation.client[:most][order],
        matrix[np.ix_(order, order)],
        both - shared,
        both - own,
    )


def order_by_similarity(matrix: Floats) -> list[int]:
    """Order rows so that similar ones are near each other.

    The two groups of highest mean similarity are joined, again and again, first of single rows;
    each is turned so that the more similar of its ends meet.

    By hand, since scipy's optimal_leaf_ordering is not: of 40 draws of label counts its neighbours
    were less similar in most (scipy/scipy#11227, scipy 1.17).

    >>> order_by_similarity(np.array([[1, 0, 0.9], [0, 1, 0.1], [0.9, 0.1, 1]]))
    [0, 2, 1]
    """
    groups = [[i] for i in range(len(matrix))]
    means = np.array(matrix, dtype=np.float64)
    np.fill_diagonal(means, -np.inf)
    while len(groups) > 1:
        a, b = sorted(divmod(int(means.argmax()), len(groups)))
        turned = product(*((group, group[::-1]) for group in (groups[a], groups[b])))
        first, second = max(turned, key=lambda pair: matrix[pair[0][-1], pair[1][0]])
        sizes = len(first), len(second)
        joined = (sizes[0] * means[a] + sizes[1] * means[b]) / sum(sizes)
        means[a], means[:, a], means[a, a] = joined, joined, -np.inf
        means = np.delete(np.delete(means, b, 0), b, 1)
        groups[a] = first + second
        del groups[b]
    return groups[0] if groups else []


def mixes_by_labels(run: RecordedRun) -> bool:
    """Whether a run's server mixes models by the similarity of labels."""
    return run.settings.get("method.similarity") == "labels"


def read_branches(run: RecordedRun, metric: str = "top1") -> Floats:
    """Return [N, 3]: a metric of the shared network, of its sum with the own one, of the own one.

    Rows of clients whose own network is not trained yet hold a nan.
    """
    return np.stack([run.values(metric, "path", at=at) for at in BRANCHES], axis=1)


def read_trained_branches(run: RecordedRun) -> Floats | None:
    """Return [M, 3]: top-1 of the clients whose own network is trained; None if none is."""
    top1 = read_branches(run)
    trained = ~np.isnan(top1).any(axis=1)
    return top1[trained] if trained.any() else None


def show(report: Report) -> SectionContent | None:
    """Show what two networks contribute to their sum, and by which similarity one is shared."""
    panels = report.read_runs(read_trained_branches)
    if not panels:
        return None
    names = [f"figure-branches-{panel.place}" for panel in panels]
    branches = [build_branches(panel.run, panel.tone) for panel in panels]
    alike = [
        (panel, compute_similarity(panel.run)) for panel in panels if mixes_by_labels(panel.run)
    ]
    figures = {
        f"figure-similarity-{panel.place}": build(panel.run, found) for panel, found in alike
    }
    lines = [
        [panel.row.label, str(len(panel.found)), *map(format_percent, panel.found.mean(axis=0))]
        for panel in panels
    ]
    values = {
        "panels": panels,
        "names": names,
        "lines": lines,
        "alike": alike,
        "SHOWN_AT_MOST": SHOWN_AT_MOST,
    }
    return SectionContent(values, {**align(dict(zip(names, branches, strict=True))), **figures})


def build_branches(run: RecordedRun, colour: str) -> Figure:
    """Return the accuracy and loss of two networks whose logits are added, and of their sum."""
    marks: list[Mark] = []
    for view in VIEWS:
        values = read_branches(run, view.metric)
        trained = ~np.isnan(values).any(axis=1)
        client = run.federation.client[trained]
        marks += summarize_lines(client, np.array([0, 0.5, 1]), values[trained], view, colour)
    ticks = {0: "shared<br>alone", 0.5: "sum", 1: "own<br>alone"}
    return Figure(marks, x=Axis("", (-0.06, 1.06), ticks), switches={"views": offer_views(VIEWS)})


def build(run: RecordedRun, alike: Similarity) -> Figure:
    """Return the similarities as a heat map and, below, what each network adds to the other."""
    names = [str(client) for client in alike.client.tolist()]
    places = np.searchsorted(run.federation.client, alike.client)
    cells = HeatMap(
        x=names,
        y=names,
        z=alike.matrix,
        shade=Shade("similarity", 0, 1),
        hover="<b>clients %{y} and %{x}</b>: <b>%{z:.3f}</b>",
    )
    bars = [
        Bars(
            x=names,
            y=100 * values,
            data=[list_classes(run.federation, int(place), 3) for place in places],
            name=name,
            colour=colour,
            hatched=hatched,
            lower=True,
            hover=f"<b>client %{{x}}</b>: {name} <b>%{{y:+.3~g}}</b> points<br>%{{customdata}}",
        )
        for values, name, colour, hatched in (
            (alike.own_adds, "its own network adds", SERIES[0][0], False),
            (alike.shared_adds, "the shared network adds", SERIES[1][0], True),
        )
    ]
    x = Axis("client", names=names, labelled=len(names) <= 40, grid=False)
    return Figure(
        [cells, *bars],
        x,
        y=replace(x, reversed=True),
        below=Axis("points added", zero_line=True),
        share=0.28,
        gap=0.25,
    )


def draw(given: FigureInput) -> Drawing:
    """Return the similarities of the first run that mixes by them, for print."""
    group = next((group for group in given.groups if mixes_by_labels(group.runs[0])), None)
    if group is None:
        raise IsthmusError(
            "none of these runs mixes models by label similarity; add a run of fedsimsup"
        )
    run = group.runs[0]
    caption = (
        "Above: cosine of clients' label counts, similar clients next to each other. Below: points "
        "of top-1 accuracy that the own network adds to the shared one (full), and the shared one "
        f"to the own (hatched), on clients' own test parts.{name_seed(group)}"
    )
    return Drawing([build(run, compute_similarity(run))], caption)


PRINT_FIGURE = PrintFigure("similarity", "similarity of FedSimSup's clients", draw, 1.2)
