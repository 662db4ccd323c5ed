"""The section about two networks whose logits are added: who is like whom, and what each adds."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from isthmus.records.reader import Run
from isthmus.report import markup
from isthmus.report.figures import path as paths
from isthmus.report.figures.geometry import Similarity, side_by_side, similarity
from isthmus.report.figures.theme import (
    ACCURACY,
    GRID,
    LOSS,
    SERIES,
    SHOWN_AT_MOST,
    ZERO,
    classes,
    colours,
    layout,
    numbers,
    veil,
)
from isthmus.report.markup import escaped, folded, plot, swatch, views
from isthmus.report.tables import summary as tables


def section(runs: Sequence[Run], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]) -> str:
    """Shows what two networks contribute to their sum, and by which similarity one is shared."""
    tones = colours(runs)
    panels, names, lines = "", [], []
    for i, run in enumerate(runs):
        along = side_by_side(run, "top1")
        if along is None:
            continue
        name = f"figure-branches-{i}"
        drawn[name] = branches(run, runs)
        names.append(name)
        shared, both, own = (f"{mean:.2f}" for mean in 100 * np.mean(along.values, axis=0))
        count = len(along.client)
        lines.append([rows[i].label, str(count), shared, both, own])
        panels += (
            f"<div class='card'><h3>{swatch(tones[i])}{escaped(rows[i].label)}</h3>"
            f"<p>shared alone <strong>{shared} %</strong>, sum <strong>{both} %</strong>, own "
            f"alone <strong>{own} %</strong>; {count} of {len(run.federation.client)} clients have "
            f"trained an own one</p>{plot(name, 320, 'Accuracy or loss of each, and of the sum')}"
            "</div>"
        )
    if not names:
        return ""
    paths.align([drawn[name] for name in names])
    table = markup.table(
        ["run", "clients", "shared alone", "sum", "own alone"],
        lines,
        "Mean top-1 accuracy, %, over the clients with a trained own network, on their test parts",
    )
    return (
        "<p>These methods add the logits of a network that is shared with others and of a small "
        "one that never leaves the client. Here each is measured alone too. They were trained to "
        "be added: one that fails alone may still do its part.</p>"
        f"<div class='controls'>{views(drawn[names[0]], names, 'branch-metric')}</div>"
        f"<div class='panels'>{panels}</div><p class='caption'>On the clients' own test parts, at "
        "the last evaluated round. Bold: mean over clients; a thin line per client, or a band from "
        "the 10th to the 90th hundredth of many.</p>"
        + folded("The means as a table", table)
        + _alike(runs, rows, drawn)
    )


def _alike(runs: Sequence[Run], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]) -> str:
    """Shows the similarities, once for all runs on one federation with one pair of networks."""
    parts = ""
    for i, run in enumerate(runs):
        if run.settings.get("method.similarity") != "labels" or side_by_side(run, "top1") is None:
            continue
        name = f"figure-similarity-{i}"
        found = similarity(run, SHOWN_AT_MOST)
        drawn[name] = figure(run, found)
        total, height = len(run.federation.client), 190 + min(560, 14 * len(found.client) + 160)
        first = (
            f"The first {SHOWN_AT_MOST} of {total} clients"
            if total > SHOWN_AT_MOST
            else (f"All {total} clients")
        )
        parts += (
            f"<figure class='card'><h3>{swatch(colours(runs)[i])}{escaped(rows[i].label)}</h3>"
            f"{plot(name, height, 'Similarity of clients, and what their networks add')}"
            f"<figcaption>{first}. Above: the cosine of their label counts, over all of "
            "their examples; the server saw those of the training parts. Clients are in the order "
            "in which the most similar ones, and then groups of highest mean similarity, are "
            "joined. Below, in the same order: how many points of top-1 accuracy the sum has more "
            "than the shared network alone (full: what the own one adds), and more than the own "
            "one alone (hatched: what the shared one adds), on the client's own test part at the "
            "last evaluated round; none for a client whose own network is untrained.</figcaption>"
            "</figure>"
        )
    if not parts:
        return ""
    return (
        "<h3>Who learns from whom</h3><p>While a client is away, the server moves its shared "
        "network towards those of the clients that are there, by how alike their labels are.</p>"
        + parts
    )


def figure(run: Run, found: Similarity) -> go.Figure:
    """Draws the similarities as a heat map and, below, what each network adds to the other."""
    result = go.Figure(layout=layout())
    names = [str(client) for client in found.client.tolist()]
    places = np.searchsorted(run.federation.client, found.client)
    result.add_heatmap(
        z=[numbers(row, digits=3) for row in found.matrix],
        x=names,
        y=names,
        zmin=0,
        zmax=1,
        colorscale=[[0, GRID[0]], [0.001, veil(SERIES[0][0])], [1, SERIES[0][0]]],
        xgap=0.5,
        ygap=0.5,
        yaxis="y2",
        colorbar={
            "title": {"text": "similarity", "font": {"size": 12}},
            "thickness": 10,
            "outlinewidth": 0,
            "len": 0.6,
            "y": 0.68,
        },
        hovertemplate="<b>clients %{y} and %{x}</b>: <b>%{z:.3f}</b><extra></extra>",
    )
    added = (
        (found.own_adds, "its own network adds", SERIES[0][0], ""),
        (found.shared_adds, "the shared network adds", SERIES[1][0], "/"),
    )
    for values, said, colour, pattern in added:
        result.add_bar(
            x=names,
            y=numbers(100 * values),
            customdata=[classes(run.federation, int(place), 3) for place in places],
            name=said,
            marker={
                "color": colour,
                "pattern": {"shape": pattern, "size": 4, "solidity": 0.4, "fillmode": "replace"},
                "line": {"width": 1, "color": colour},
            },
            hovertemplate=f"<b>client %{{x}}</b>: {said} <b>%{{y:+.3~g}}</b> points"
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


def branches(run: Run, runs: Sequence[Run]) -> go.Figure:
    """Draws the accuracy and loss of two networks whose logits are added, and of their sum."""
    shown_views = (ACCURACY, LOSS)
    result = go.Figure(layout=layout(shown_views))
    colour = dict(zip((r.path for r in runs), colours(runs), strict=True))[run.path]
    for view in shown_views:
        along = side_by_side(run, view.metric)
        assert along is not None  # there is something to draw
        shown = {"meta": {"view": view.metric}, "visible": view is shown_views[0]}
        if len(along.client) <= paths.LINES_AT_MOST:
            lines = paths.lines(along, view, colour)
            lines["hovertemplate"] = (
                "client %{customdata}: %{y:.4~g}" + view.unit + "<extra></extra>"
            )
            result.add_scatter(**lines, **shown)
        else:
            result.add_scatter(**paths.band(along, view, colour), **shown)
        result.add_scatter(**paths.mean_line(along, view, colour), **shown)
    result.update_xaxes(
        tickvals=[0, 0.5, 1],
        ticktext=["shared<br>alone", "sum", "own<br>alone"],
        range=[-0.06, 1.06],
    )
    return result
