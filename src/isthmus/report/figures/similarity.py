"""Similarity: how alike clients' labels are, and what each of their two networks adds."""

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from isthmus.errors import IsthmusError
from isthmus.report.figures import paper
from isthmus.report.figures.theme import (
    SERIES,
    SHARES,
    SHOWN_AT_MOST,
    ZERO,
    build_bar,
    build_layout,
    list_classes,
    round_numbers,
)
from isthmus.report.section import FigureInput, PrintFigure, Report, SectionContent
from isthmus.run.columns import Floats, Integers
from isthmus.run.record import RecordedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BRANCHES = ("1 0", "1 1", "0 1")  # weights of a shared and an own network, whose logits are added


class Similarity(NamedTuple):
    """How alike clients' labels are, and what each of their two networks adds to the other.

    Clients come in an order in which those that are alike are near each other.
    """

    client: Integers  # [N]
    matrix: Floats  # [N, N]: cosines of label counts
    own_adds: Floats  # [N]: top-1 of the sum, less that of the shared network alone; nan if unknown
    shared_adds: Floats  # [N]: top-1 of the sum, less that of the own network alone


def compute_similarity(run: RecordedRun, most: int = SHOWN_AT_MOST) -> Similarity:
    """Finds how alike the labels of the first clients are, and what their networks add."""
    counts = run.federation.labels[:most].astype(np.float64)
    unit = counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-300)
    matrix = unit @ unit.T
    order = np.array(order_by_likeness(matrix), dtype=np.int64)
    shared, both, own = (run.values("top1", "path", at=at)[:most][order] for at in BRANCHES)
    return Similarity(
        run.federation.client[:most][order],
        matrix[np.ix_(order, order)],
        both - shared,
        both - own,
    )


def order_by_likeness(matrix: Floats) -> list[int]:
    """Orders rows so that similar ones are near each other.

    The two groups of highest mean similarity are joined, again and again, first of single rows;
    each is turned so that the more similar of its ends meet.

    By hand, since scipy's optimal_leaf_ordering is not: of 40 draws of label counts its neighbours
    were less similar in most (scipy/scipy#11227, scipy 1.17).

    >>> order_by_likeness(np.array([[1, 0, 0.9], [0, 1, 0.1], [0.9, 0.1, 1]]))
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
    """Tells whether a run's server mixes models by the similarity of labels."""
    return run.settings.get("method.similarity") == "labels"


def show(report: Report) -> SectionContent:
    """Shows the similarities of the clients of the runs that mix by them."""
    cards, figures = [], {}
    for i, run in enumerate(report.runs):
        trained = ~np.isnan([run.values("top1", "path", at=at) for at in BRANCHES]).any(axis=0)
        if not mixes_by_labels(run) or not trained.any():
            continue
        name = f"figure-similarity-{i}"
        alike = compute_similarity(run)
        figures[name] = plot(run, alike)
        total = len(run.federation.client)
        first = f"The first {SHOWN_AT_MOST} of" if total > SHOWN_AT_MOST else "All"
        cards.append(
            {
                "name": name,
                "tone": report.tones[i],
                "label": report.rows[i].label,
                "height": 190 + min(560, 14 * len(alike.client) + 160),
                "shown": f"{first} {total} clients",
            }
        )
    return SectionContent({"cards": cards}, figures)


def plot(run: RecordedRun, alike: Similarity) -> go.Figure:
    """Draws the similarities as a heat map and, below, what each network adds to the other."""
    result = go.Figure(layout=build_layout())
    names = [str(client) for client in alike.client.tolist()]
    places = np.searchsorted(run.federation.client, alike.client)
    result.add_heatmap(
        z=[round_numbers(row, digits=3) for row in alike.matrix],
        x=names,
        y=names,
        zmin=0,
        zmax=1,
        colorscale=SHARES,
        xgap=0.5,
        ygap=0.5,
        yaxis="y2",
        colorbar=build_bar("similarity", len=0.6, y=0.68),
        hovertemplate="<b>clients %{y} and %{x}</b>: <b>%{z:.3f}</b><extra></extra>",
    )
    added = (
        (alike.own_adds, "its own network adds", SERIES[0][0], ""),
        (alike.shared_adds, "the shared network adds", SERIES[1][0], "/"),
    )
    for values, name, colour, pattern in added:
        result.add_bar(
            x=names,
            y=round_numbers(100 * values),
            customdata=[list_classes(run.federation, int(place), 3) for place in places],
            name=name,
            marker={
                "color": colour,
                "pattern": {"shape": pattern, "size": 4, "solidity": 0.4, "fillmode": "replace"},
                "line": {"width": 1, "color": colour},
            },
            hovertemplate=f"<b>client %{{x}}</b>: {name} <b>%{{y:+.3~g}}</b> points"
            "<br>%{customdata}<extra></extra>",
        )
    few = len(names) <= 40
    result.update_xaxes(
        title_text="client", type="category", showgrid=False, showticklabels=few, anchor="y"
    )
    result.update_layout(
        barmode="group",
        bargap=0.25,
        yaxis={
            "domain": [0, 0.28],
            "title": {"text": "points added"},
            "zeroline": True,
            "zerolinecolor": ZERO[0],
        },
        yaxis2={
            "domain": [0.34, 1],
            "type": "category",
            "autorange": "reversed",
            "showgrid": False,
            "zeroline": False,
            "automargin": True,
            "showticklabels": few,
            "fixedrange": True,
            "title": {"text": "client", "standoff": 10},
        },
    )
    return result


def draw(figure: "Figure", given: FigureInput) -> str:
    """Draws the similarities and, below, what each network adds, for print."""
    group = next((group for group in given.groups if mixes_by_labels(group.runs[0])), None)
    if group is None:
        raise IsthmusError(
            "no run here mixes by the similarity of labels; expected fedsimsup; add a run of it"
        )
    alike = compute_similarity(group.runs[0])
    above, below = figure.subplots(2, height_ratios=(3, 1))
    shades = above.imshow(alike.matrix, cmap=paper.SHADES, vmin=0, vmax=1, aspect="auto")
    figure.colorbar(shades, ax=above, label="cosine of label counts")
    places = np.arange(len(alike.client))
    names = [str(client) for client in alike.client.tolist()]
    many = len(names) > 30
    above.set(ylabel="client", xticks=[])
    above.set_yticks([] if many else places, [] if many else names, fontsize=5)
    above.grid(visible=False)
    bars: dict[str, Any] = {"width": 0.4, "edgecolor": "black", "linewidth": 0.3}
    below.bar(places - 0.2, np.nan_to_num(100 * alike.own_adds), color="0.35", **bars)
    below.bar(
        places + 0.2, np.nan_to_num(100 * alike.shared_adds), color="white", hatch="////", **bars
    )
    below.set(xlabel="client", ylabel="points added", xlim=(-0.5, len(names) - 0.5))
    below.set_xticks([] if many else places, [] if many else names, fontsize=5, rotation=90)
    return (
        "Above: cosine of clients' label counts, similar clients next to each other. Below: points "
        "of top-1 accuracy that the own network adds to the shared one (full), and the shared one "
        f"to the own (hatched), on clients' own test parts.{paper.name_seed(group)}"
    )


PRINT_FIGURE = PrintFigure("similarity", "FedSimSup's clients", draw, 1.2)
