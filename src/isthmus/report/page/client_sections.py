"""The sections of a page that are about single clients."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from isthmus.records.reader import Run, counterpart, labels
from isthmus.report import markup
from isthmus.report.figures import theme as figures
from isthmus.report.groups import Group
from isthmus.report.markup import dagger, escaped, folded, footnote, listed, plot, signed, swatch
from isthmus.report.tables import summary as tables
from isthmus.report.tables.summary import MISSING

LOWEST = 5  # clients in the table of the worst


LISTED_AT_MOST = 200  # clients in a table of all of them


def gain(
    groups: Sequence[Group],
    rows: Sequence[tables.Row],
    runs: Sequence[Run],
    drawn: dict[str, go.Figure],
) -> str:
    """Shows what each client gains over training alone."""
    if not any(run.method == "local" for run in runs):
        return (
            "<p>Would a client do better on its own? There is no run of <code>local</code> among "
            "these, so this page cannot say. Add one on the same federation.</p>"
        )
    others = [i for i, group in enumerate(groups) if group.method != "local"]
    found = {i: gains for i in others if (gains := figures.gains_by_seed(groups[i], runs))}
    left_out = [rows[i].label for i in others if i not in found]
    why = (
        "it was trained on another federation than <code>local</code>, or did not record which, "
        "and clients of different federations are different clients"
    )
    if not found:
        who = f"{escaped(listed(left_out))} cannot be compared: " if left_out else ""
        reason = why if left_out else "There is only <code>local</code> itself."
        return f"<p>Not shown. {who}{reason}</p>" if left_out else f"<p>{reason}</p>"
    every = [gains for by_seed in found.values() for gains in by_seed.values()]
    everything = np.concatenate([gains.points for gains in every])
    low, high = float(min(everything.min(), 0)), float(max(everything.max(), 0))
    margin = 0.06 * (high - low) or 1.0
    detailed = len(everything) <= figures.NAMED_AT_MOST
    joined = all(len(gains.points) <= LISTED_AT_MOST for gains in every)
    choices = sorted({seed for by_seed in found.values() for seed in by_seed})
    tones = figures.colours([group.runs[0] for group in groups])
    panels, names = "", []
    for i, by_seed in found.items():
        name = f"figure-gain-{i}"
        names.append(name)
        figure = drawn[name] = figures.gain(groups[i], runs, detailed)
        figure.update_yaxes(range=[low - margin, high + margin])
        figure.layout.meta = {"seeds": [{"name": str(seed)} for seed in choices]}
        said = "".join(
            markup.of_seed(seed, seed == choices[0], "p", _counted(by_seed.get(seed), rows[i]))
            for seed in choices
        )
        panels += (
            f"<div class='card'><h3>{swatch(tones[i])}{escaped(rows[i].label)}</h3>{said}"
            f"{plot(name, 230, 'Gain of each client, sorted', ' data-joined' * joined)}</div>"
        )
    shown = [rows[i] for i in found]
    caption = (
        "Personal model of the method minus personal model of <code>local</code>: top-1 accuracy "
        "on the client's own test part, each at its last evaluated round, in percentage points. "
        "One bar per client, ordered within each panel; hatched bars lie below zero. Point at a "
        f"bar to see the client{' and what it holds' if detailed else ''}"
        f"{', and to find it in the other panels' if joined else ''}. "
        f"{'Another seed, another division of the data, other clients. ' if choices[1:] else ''}"
        + escaped(tables.selection(shown) or "")
    )
    omitted = (
        f"<p class='note'>Left out: {escaped(listed(left_out))}; {why}.</p>" if left_out else ""
    )
    gained = "".join(
        markup.of_seed(seed, seed == choices[0], "div", _gain_table(groups, rows, found, seed))
        for seed in choices
    )
    return (
        "<p>The rival to beat is not another method but <em>training alone</em>: a client that "
        "would do better without the others has no reason to take part.</p>"
        f"{markup.seeds(choices, names, 'gain-seed')}"
        f"<div class='panels'>{panels}</div><p class='caption'>{caption}</p>"
        f"{footnote(shown, 'p')}{omitted}{gained}"
    )


def _counted(gains: figures.Gains | None, row: tables.Row) -> str:
    if gains is None:
        return "no run with this seed"
    mark = dagger(row)
    return (
        f"<strong>{gains.gain}{mark}</strong> of {len(gains.points)} clients gain, "
        f"<strong>{gains.equal}{mark}</strong> stay equal, "
        f"<strong>{gains.lose}{mark}</strong> lose; median "
        f"<strong>{signed(float(np.median(gains.points)))}{mark}</strong> points"
    )


def _gain_table(
    groups: Sequence[Group],
    rows: Sequence[tables.Row],
    found: Mapping[int, Mapping[int, figures.Gains]],
    seed: int,
) -> str:
    """Lists the gains of one seed, for the groups whose clients are those of the first of them."""
    of_seed = {
        i: next(run for run in groups[i].runs if (run.seed or 0) == seed)
        for i, by_seed in found.items()
        if seed in by_seed
    }
    first = next(iter(of_seed.values()))
    if len(first.federation.client) > LISTED_AT_MOST:
        return ""
    same = [i for i, run in of_seed.items() if run.split_digest == first.split_digest]
    columns = [
        dict(zip(found[i][seed].client.tolist(), found[i][seed].points.tolist(), strict=True))
        for i in same
    ]
    lines = [
        [
            str(client),
            f"{first.federation.train[place]:,}",
            *(
                rows[i].marked(signed(column[client])) if client in column else MISSING
                for i, column in zip(same, columns, strict=True)
            ),
        ]
        for place, client in enumerate(first.federation.client.tolist())
    ]
    table = markup.table(
        ["client", "training examples", *(rows[i].label for i in same)],
        lines,
        "Gain over training alone, percentage points of top-1 accuracy",
    )
    return folded("The gains as a table", table)


def worst(groups: Sequence[Group], rows: Sequence[tables.Row]) -> str:
    """Shows the clients of the lowest accuracy."""
    best = tables.best(rows)
    if best is None:
        return ""
    choices = groups[best].seeds
    text = "".join(
        markup.of_seed(run.seed or 0, not place, "div", _lowest(run, best, groups, rows))
        for place, run in enumerate(groups[best].runs)
    )
    return (
        "<p>A mean hides the clients that were left behind. With a small test part, one example "
        "more or less moves a client by whole points.</p>"
        f"{markup.seeds(choices, (), 'worst-seed')}{text}"
    )


def _lowest(run: Run, best: int, groups: Sequence[Group], rows: Sequence[tables.Row]) -> str:
    """Lists the lowest clients of a run, and how they fare in the other groups."""
    compared = {best: run} | {
        i: other
        for i, group in enumerate(groups)
        if i != best and (other := counterpart(run, group.runs, group.method)) is not None
    }
    values = {i: compared[i].values("top1") for i in sorted(compared)}
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
        ["client", "train", "test", "classes it holds", *(rows[i].label for i in values)],
        lines,
        "The lowest clients",
        words=3,
        said=False,
    )
    shown = [rows[i] for i in values]
    others = [row.label for i, row in enumerate(rows) if i not in values]
    omitted = (
        f" Left out, as their clients are others or unknown: {escaped(listed(others))}."
        if others
        else ""
    )
    seed = f", seed {run.seed}" if len(groups[best].runs) > 1 else ""
    caption = (
        f"The {len(lines)} clients with the lowest personal top-1 accuracy under "
        f"<strong>{escaped(rows[best].label)}{dagger(rows[best])}</strong>{seed}, the method with "
        "the highest mean. Columns on the right: the client's personal model under each method, "
        f"top-1 % on its own test part, at the last evaluated round.{omitted} "
        + escaped(tables.selection(shown) or "")
    )
    return (
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
