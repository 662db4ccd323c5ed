"""The sections of a page that are about single clients."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from isthmus.report import figures, markup, tables
from isthmus.report.markup import dagger, escaped, folded, footnote, listed, plot, signed, swatch
from isthmus.report.records import Run, labels, trained_alone
from isthmus.report.tables import MISSING

LOWEST = 5  # clients in the table of the worst


LISTED_AT_MOST = 200  # clients in a table of all of them


def gain(runs: Sequence[Run], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]) -> str:
    """Shows what each client gains over training alone."""
    others = [i for i, run in enumerate(runs) if run.method != "local"]
    pairs = [(i, alone) for i in others if (alone := trained_alone(runs[i], runs)) is not None]
    left_out = [rows[i].label for i in others if i not in dict(pairs)]
    if not any(run.method == "local" for run in runs):
        return (
            "<p>Would a client do better on its own? There is no run of <code>local</code> among "
            "these, so this page cannot say. Add one on the same federation.</p>"
        )
    why = (
        "it was trained on another federation than <code>local</code>, or did not record which, "
        "and clients of different federations are different clients"
    )
    if not pairs:
        who = f"{escaped(listed(left_out))} cannot be compared: " if left_out else ""
        reason = why if left_out else "There is only <code>local</code> itself."
        return f"<p>Not shown. {who}{reason}</p>" if left_out else f"<p>{reason}</p>"
    found = {i: figures.gains(runs[i], alone) for i, alone in pairs}
    everything = np.concatenate([gains.points for gains in found.values()])
    low, high = float(min(everything.min(), 0)), float(max(everything.max(), 0))
    margin = 0.06 * (high - low) or 1.0
    detailed = len(everything) <= figures.NAMED_AT_MOST
    tones = figures.colours(runs)
    panels = ""
    for i, _ in pairs:
        name = f"figure-gain-{i}"
        figure = drawn[name] = figures.gain(runs[i], runs, detailed)
        figure.update_yaxes(range=[low - margin, high + margin])
        gains, mark = found[i], dagger(rows[i])
        said = (
            f"<strong>{gains.gain}{mark}</strong> of {len(gains.points)} clients gain, "
            f"<strong>{gains.equal}{mark}</strong> stay equal, "
            f"<strong>{gains.lose}{mark}</strong> lose; median "
            f"<strong>{signed(float(np.median(gains.points)))}{mark}</strong> points"
        )
        joined = " data-joined" if len(gains.points) <= LISTED_AT_MOST else ""
        panels += (
            f"<div class='card'><h3>{swatch(tones[i])}{escaped(rows[i].label)}</h3>"
            f"<p>{said}</p>{plot(name, 230, 'Gain of each client, sorted', joined)}</div>"
        )
    caption = (
        "Personal model of the method minus personal model of <code>local</code>: top-1 accuracy "
        "on the client's own test part, each at its last evaluated round, in percentage points. "
        "One bar per client, ordered within each panel; hatched bars lie below zero. Point at a "
        f"bar to see the client{' and what it holds' if detailed else ''}"
        f"{', and to find it in the other panels' if ' data-joined' in panels else ''}. "
        + escaped(tables.selection([rows[i] for i, _ in pairs]) or "")
    )
    omitted = (
        f"<p class='note'>Left out: {escaped(listed(left_out))}; {why}.</p>" if left_out else ""
    )
    shown = [rows[i] for i, _ in pairs]
    return (
        "<p>The rival to beat is not another method but <em>training alone</em>: a client that "
        "would do better without the others has no reason to take part.</p>"
        f"<div class='panels'>{panels}</div><p class='caption'>{caption}</p>"
        f"{footnote(shown, 'p')}{omitted}{_gain_table(runs, rows, pairs)}"
    )


def _gain_table(
    runs: Sequence[Run], rows: Sequence[tables.Row], pairs: Sequence[tuple[int, Run]]
) -> str:
    same = [i for i, _ in pairs if runs[i].split_digest == runs[pairs[0][0]].split_digest]
    federation = runs[same[0]].federation
    if len(federation.client) > LISTED_AT_MOST:
        return ""
    columns = [
        dict(zip(found.client.tolist(), found.points.tolist(), strict=True))
        for i, alone in pairs
        if i in same
        for found in [figures.gains(runs[i], alone)]
    ]
    lines = [
        [
            str(client),
            f"{federation.train[place]:,}",
            *(
                rows[i].marked(signed(column[client])) if client in column else MISSING
                for i, column in zip(same, columns, strict=True)
            ),
        ]
        for place, client in enumerate(federation.client.tolist())
    ]
    table = markup.table(
        ["client", "training examples", *(rows[i].label for i in same)],
        lines,
        "Gain over training alone, percentage points of top-1 accuracy",
    )
    return folded("The gains as a table", table)


def worst(runs: Sequence[Run], rows: Sequence[tables.Row]) -> str:
    """Shows the clients of the lowest accuracy."""
    best = tables.best(rows)
    if best is None:
        return ""
    run = runs[best]
    compared = [
        i
        for i, other in enumerate(runs)
        if i == best or (run.split_digest and other.split_digest == run.split_digest)
    ]
    values = {i: runs[i].values("top1") for i in compared}
    order = [k for k in np.argsort(values[best], kind="stable") if not np.isnan(values[best][k])]
    lines = [
        [
            str(run.federation.client[k]),
            f"{run.federation.train[k]:,}",
            f"{run.federation.test[k]:,}",
            figures.classes(run.federation, int(k)),
            *(
                rows[i].marked(tables.percent(None if np.isnan(v[k]) else float(v[k])))
                for i, v in values.items()
            ),
        ]
        for k in order[:LOWEST]
    ]
    table = markup.table(
        ["client", "train", "test", "classes it holds", *(rows[i].label for i in compared)],
        lines,
        "The lowest clients",
        words=3,
        said=False,
    )
    shown = [rows[i] for i in compared]
    others = [row.label for i, row in enumerate(rows) if i not in compared]
    omitted = (
        f" Left out, as their clients are others or unknown: {escaped(listed(others))}."
        if others
        else ""
    )
    caption = (
        f"The {len(lines)} clients with the lowest personal top-1 accuracy under "
        f"<strong>{escaped(rows[best].label)}{dagger(rows[best])}</strong>, the run with the "
        "highest mean. Columns on the right: the client's personal model under each run, top-1 % "
        f"on its own test part, at the last evaluated round.{omitted} "
        + escaped(tables.selection(shown) or "")
    )
    return (
        "<p>A mean hides the clients that were left behind. With a small test part, one example "
        "more or less moves a client by whole points.</p>"
        f"<figure class='card'>{table}<figcaption>{caption}{footnote(shown)}</figcaption></figure>"
    )


def holdings(runs: Sequence[Run], drawn: dict[str, go.Figure]) -> str:
    """Shows which classes the clients hold."""
    federation = runs[0].federation
    clients, classes = federation.labels.shape
    if classes == 0:
        return ""
    drawn["figure-holdings"] = figures.holdings(federation)
    height = int(min(120 + 22 * classes, 460))
    few = int(np.median(np.sum(federation.labels > 0, axis=1)))
    shown = (
        f"The first {figures.SHOWN_AT_MOST} of {clients} clients"
        if clients > figures.SHOWN_AT_MOST
        else f"All {clients} clients"
    )
    return (
        f"<p>Why one model does not fit all: half of the clients hold at most {few} of the "
        f"{classes} classes, and between {federation.train.min():,} and "
        f"{federation.train.max():,} examples to train on.</p>"
        f"<figure class='card'>{plot('figure-holdings', height, 'Share of each class by client')}"
        f"<figcaption>{shown} of {escaped(labels(runs)[0])}; all of a client's examples (train, "
        "validation and test parts). The stronger the colour, the larger the class's share of what "
        "the client holds.</figcaption></figure>"
    )
