"""One page about a set of runs: a single file that needs no network and no server."""

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from isthmus.errors import IsthmusError
from isthmus.report import figures, tables
from isthmus.report.records import Run, labels, trained_alone
from isthmus.report.tables import MISSING

# No request may leave the page, whatever a record smuggles into it.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)
LOWEST = 5  # clients in the table of the worst
LISTED_AT_MOST = 200  # clients in a table of all of them

PICTURE = """
<svg viewBox="0 0 640 300" role="img" aria-labelledby="picture-title">
<title id="picture-title">Two lands, joined by an isthmus: a path leads from the shared model to a
client's own model, and the personal model is a place on it.</title>
<rect class="sea" width="640" height="300"/>
<path class="wave" d="M250 52q12-10 24 0t24 0t24 0M330
262q12-10 24 0t24 0t24 0M296 30q9-8 18 0t18 0"/>
<path class="land" d="M0 42C52 14 150 20 186 66C214 104 222 122 262 132C306 142 342 140 384 126
C424 112 436 84 474 58C520 26 592 34 640 60V262C590 290 506 284 462 244C430 214 412 190 372 182
C334 175 300 178 262 186C222 196 214 226 176 254C130 288 52 284 0 254Z"/>
<path class="way" d="M112 156C220 152 300 168 350 156S470 146 530 154"/>
<circle class="stop" cx="112" cy="156" r="9"/>
<circle class="stop chosen" cx="350" cy="156" r="10"/>
<circle class="stop" cx="530" cy="154" r="9"/>
<text x="112" y="118">shared model</text><text class="small" x="112" y="198">λ = 0</text>
<text x="530" y="116">own model</text><text class="small" x="530" y="196">λ = 1</text>
<text x="320" y="224">personal model</text>
<text class="small" x="320" y="248">a place between</text>
</svg>
"""


def write(runs: Sequence[Run], out: str | Path, title: str | None = None) -> Path:
    """Writes the page to a file, or as report.html into a directory, and returns where it is."""
    place = Path(out)
    if place.is_dir():
        place = place / "report.html"
    text = render(runs, title)
    place.parent.mkdir(parents=True, exist_ok=True)
    # A reader never finds half a page, and a failed write leaves the old one.
    draft = place.with_name(place.name + ".part")
    draft.write_text(text, encoding="utf-8")
    return draft.replace(place)


def render(runs: Sequence[Run], title: str | None = None) -> str:
    """Returns the page as text."""
    if not runs:
        raise IsthmusError("no runs were given; give at least one run's directory")
    drawn: dict[str, go.Figure] = {}
    rows = tables.summary(runs)
    sections = [
        ("summary", "The result", _summary(runs, rows)),
        ("rounds", "Over the rounds", _rounds(runs, rows, drawn)),
        ("gain", "Each client against training alone", _gain(runs, rows, drawn)),
        ("path", "Along the path from shared to own model", _path(runs, rows, drawn)),
        ("worst", "The clients it serves worst", _worst(runs, rows)),
        ("holdings", "What the clients hold", _holdings(runs, drawn)),
        ("cost", "What it costs", _cost(runs, rows, drawn)),
        ("settings", "Settings", _settings(runs)),
    ]
    sections = [section for section in sections if section[2]]
    heading = title or _title(runs)
    contents = "".join(f'<li><a href="#{name}">{said}</a></li>' for name, said, _ in sections)
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-heading">'
        f'<h2 id="{name}-heading">{said}</h2>{text}</section>'
        for name, said, text in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_escaped(heading)}</title>\n<style>\n{_part('page.css')}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#summary">Skip to the result</a>\n'
        f"<header>{_opening(runs, heading)}<nav aria-label='Contents'><ol>{contents}</ol></nav>"
        "<noscript><p class='note'>The figures need JavaScript; the tables do not.</p></noscript>"
        f"</header>\n<main>{body}</main>\n{_footer(runs)}\n"
        f"<script>{get_plotlyjs()}</script>\n"
        f'<script type="application/json" id="figures">{_data(drawn)}</script>\n'
        f"<script>\n{_part('page.js')}</script>\n</body>\n</html>\n"
    )


def _title(runs: Sequence[Run]) -> str:
    methods = list(dict.fromkeys(run.method for run in runs))
    who = _listed(methods) if len(methods) <= 3 else f"{len(methods)} methods"
    where = list(dict.fromkeys(_text(run, "data.name") for run in runs))
    return f"{who} on {_listed(where)}"


def _opening(runs: Sequence[Run], heading: str) -> str:
    run = runs[0]
    clients, classes = run.federation.labels.shape
    facts = [
        f"<strong>{_escaped(_text(run, 'data.name'))}</strong> data",
        f"<strong>{clients}</strong> clients",
        f"<strong>{int(np.sum(run.federation.labels)):,}</strong> examples",
        f"<strong>{classes}</strong> classes",
        f"split by <strong>{_escaped(_text(run, 'partition.name'))}</strong>",
        f"<strong>{len(runs)}</strong> {'run' if len(runs) == 1 else 'runs'}",
    ]
    if len({(r.split_digest, *r.federation.labels.shape) for r in runs}) > 1:
        facts.append("more than one federation; the first is described here")
    listed = "".join(f"<li>{fact}</li>" for fact in facts)
    text = (
        "<p><strong>Federated learning</strong> trains a model over many clients, say hospitals "
        "or phones, while their data stay where they are. But clients differ: one model shared "
        "by all suits none of them perfectly, and a model that a client trains alone has seen "
        "only its few examples.</p>"
        "<p><strong>Personalised</strong> federated learning looks for the best of both: each "
        "client ends with a model of its own that has learned from everybody.</p>"
    )
    picture = ""
    if any(r.selection is not None for r in runs):
        text += (
            "<p>Some methods here train two models so that the whole straight line between them "
            "is good. A client may then walk from the <strong>shared</strong> model (λ = 0) "
            "towards its <strong>own</strong> (λ = 1) and settle where it does best: that is "
            "its <strong>personal</strong> model.</p>"
        )
        picture = (
            f"<figure>{PICTURE}<figcaption>The strip of land between two larger ones: "
            "every place on it is a model that works.</figcaption></figure>"
        )
    return (
        f"<p class='eyebrow'>isthmus report</p><h1>{_escaped(heading)}</h1>"
        f"<ul class='facts'>{listed}</ul>"
        f"<div class='opening'><div>{text}</div>{picture}</div>"
    )


def _summary(runs: Sequence[Run], rows: Sequence[tables.Row]) -> str:
    tones = figures.colours(runs)
    groups = (
        ("Personal model, on clients' own test parts", slice(0, 5)),
        ("Shared model", slice(5, 7)),
        ("Against local", slice(7, 8)),
        ("Cost", slice(8, 11)),
    )
    short = (
        "top-1 accuracy<br>%, mean ± std",
        "worst 5 %<br>top-1 %",
        "loss<br>nats",
        "ECE<br>%",
        "MCE<br>%",
        "on clients<br>top-1 %",
        "on server<br>top-1 %",
        "clients<br>harmed",
        "bytes<br>down",
        "bytes<br>up",
        "time<br>seconds",
    )
    # A column without a single number says nothing; it is left out.
    kept = [
        i
        for i, heading in enumerate(tables.FULL)
        if any(heading.cell(row) != MISSING for row in rows)
    ]
    best = _best(rows)
    head = '<th scope="col" rowspan="2">method</th>'
    for title, span in groups:
        width = sum(i in kept for i in range(span.start, span.stop))
        if width:
            head += f'<th scope="colgroup" colspan="{width}"><span>{title}</span></th>'
    columns = "".join(f'<th scope="col">{short[i]}</th>' for i in kept)
    body = ""
    for place, (row, tone) in enumerate(zip(rows, tones, strict=True)):
        cells = "".join(
            f"<td{' class=best' if i == 0 and place == best and len(rows) > 1 else ''}>"
            f"{_escaped(tables.FULL[i].cell(row))}</td>"
            for i in kept
        )
        body += f'<tr><th scope="row">{_swatch(tone)}{_escaped(row.label)}</th>{cells}</tr>'
    table = (
        "<div class='scroll' tabindex='0' role='region' aria-label='Summary table'>"
        "<table class='summary' aria-describedby='summary-caption'>"
        "<caption class='unseen'>One row per run</caption>"
        f"<thead><tr>{head}</tr><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    return (
        _tiles(runs, rows)
        + f"<figure class='card'>{table}<figcaption id='summary-caption'>"
        + f"<strong>Which number is it?</strong> {_escaped(tables.caption(rows))}"
        + f"{_footnote(rows)}</figcaption></figure>"
    )


def _tiles(runs: Sequence[Run], rows: Sequence[tables.Row]) -> str:
    best = _best(rows)
    if best is None:
        return ""
    row, run = rows[best], runs[best]
    name = f"<strong>{_escaped(row.label)}</strong>"
    over = f"on clients' own test parts, after round {row.round}"
    tiles = [
        (
            row.marked(f"{tables.percent(row.top1)} %"),
            f"highest mean personal accuracy: {name}, {over}",
        ),
        (
            row.marked(f"{tables.percent(row.worst)} %"),
            f"mean of its worst twentieth of the clients: {name}, {over}",
        ),
    ]
    alone = trained_alone(run, runs)
    if alone is not None and row.harmed is not None:
        found = figures.gains(run, alone)
        tiles += [
            (
                row.marked(f"{_signed(float(np.mean(found.points)))} points"),
                f"mean change in accuracy over training alone (local): {name}",
            ),
            (
                row.marked(f"{found.lose} of {len(found.points)}"),
                f"clients harmed: less accurate than training alone, under {name}",
            ),
        ]
    elif row.shared is not None and row.top1 is not None:
        tiles.append(
            (
                row.marked(f"{_signed(100 * (row.top1 - row.shared))} points"),
                f"mean personal accuracy against its shared model: {name}, {over}",
            )
        )
    listed = "".join(f"<div class='tile'><dt>{said}</dt><dd>{n}</dd></div>" for n, said in tiles)
    return f"<dl class='tiles'>{listed}</dl>"


def _rounds(runs: Sequence[Run], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]) -> str:
    figure = drawn["figure-rounds"] = figures.rounds(runs)
    tones = figures.colours(runs)
    buttons = "".join(
        f"<button type='button' aria-pressed='true' data-figures='figure-rounds' data-run='{i}'>"
        f"{_swatch(tone)}{_escaped(row.label)}{_dagger(row)}</button>"
        for i, (row, tone) in enumerate(zip(rows, tones, strict=True))
    )
    numbers = _table(
        ["round", *(f"{row.label}, {m}" for row in rows for m in ("personal", "shared"))],
        _by_round(runs, rows),
        "Mean top-1 accuracy, %, over clients on their own test parts",
    )
    caption = (
        "<strong>Solid: personal models</strong>, what each client deploys. <strong>Dashed: the "
        "shared model</strong>, the same for everybody (absent where a method has none; where "
        "both are one model the lines coincide). Mean over all clients of a run, each on its own "
        f"test part, at every evaluated round. {_escaped(tables.selection(rows) or '')}"
    )
    return (
        "<p>How good the models become as clients and server exchange more rounds. Higher is "
        "better for accuracy, lower for loss and calibration error.</p>"
        f"<figure class='card'><div class='controls'>{_views(figure, ['figure-rounds'], 'metric')}"
        f"<div class='legend' role='group' aria-label='Runs shown'>{buttons}</div></div>"
        f"{_plot('figure-rounds', 400, 'Mean over clients against rounds, one line per run')}"
        f"<figcaption>{caption}{_footnote(rows)}</figcaption>"
        f"<details><summary>The accuracies as a table</summary>{numbers}</details></figure>"
    )


def _by_round(runs: Sequence[Run], rows: Sequence[tables.Row]) -> list[list[str]]:
    curves = []
    for run, row in zip(runs, rows, strict=True):
        for model in ("personal", "shared"):
            curve = run.curve("top1", model)
            mark = row.marked if model == "personal" else str
            curves.append(
                {
                    int(t): mark(tables.percent(float(mean)))
                    for t, mean in zip(curve.round, curve.mean, strict=True)
                }
            )
    evaluated = sorted({t for curve in curves for t in curve})
    return [[str(t), *(curve.get(t, MISSING) for curve in curves)] for t in evaluated]


def _gain(runs: Sequence[Run], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]) -> str:
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
        who = f"{_escaped(_listed(left_out))} cannot be compared: " if left_out else ""
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
        gains, mark = found[i], _dagger(rows[i])
        said = (
            f"<strong>{gains.gain}{mark}</strong> of {len(gains.points)} clients gain, "
            f"<strong>{gains.equal}{mark}</strong> stay equal, "
            f"<strong>{gains.lose}{mark}</strong> lose; median "
            f"<strong>{_signed(float(np.median(gains.points)))}{mark}</strong> points"
        )
        joined = " data-joined" if len(gains.points) <= LISTED_AT_MOST else ""
        panels += (
            f"<div class='card'><h3>{_swatch(tones[i])}{_escaped(rows[i].label)}</h3>"
            f"<p>{said}</p>{_plot(name, 230, 'Gain of each client, sorted', joined)}</div>"
        )
    caption = (
        "Personal model of the method minus personal model of <code>local</code>: top-1 accuracy "
        "on the client's own test part, each at its last evaluated round, in percentage points. "
        "One bar per client, ordered within each panel; hatched bars lie below zero. Point at a "
        f"bar to see the client{' and what it holds' if detailed else ''}"
        f"{', and to find it in the other panels' if ' data-joined' in panels else ''}. "
        + _escaped(tables.selection([rows[i] for i, _ in pairs]) or "")
    )
    omitted = (
        f"<p class='note'>Left out: {_escaped(_listed(left_out))}; {why}.</p>" if left_out else ""
    )
    shown = [rows[i] for i, _ in pairs]
    return (
        "<p>The rival to beat is not another method but <em>training alone</em>: a client that "
        "would do better without the others has no reason to take part.</p>"
        f"<div class='panels'>{panels}</div><p class='caption'>{caption}</p>"
        f"{_footnote(shown, 'p')}{omitted}{_gain_table(runs, rows, pairs)}"
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
                rows[i].marked(_signed(column[client])) if client in column else MISSING
                for i, column in zip(same, columns, strict=True)
            ),
        ]
        for place, client in enumerate(federation.client.tolist())
    ]
    table = _table(
        ["client", "training examples", *(rows[i].label for i in same)],
        lines,
        "Gain over training alone, percentage points of top-1 accuracy",
    )
    return _folded("The gains as a table", table)


def _path(runs: Sequence[Run], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]) -> str:
    panels, names, shown, lines = "", [], [], []
    grid: list[float] = []
    tones = figures.colours(runs)
    waiting = []
    for i, run in enumerate(runs):
        along = run.along("top1")
        if along is None:
            continue
        if along.client.size == 0:
            waiting.append(rows[i].label)
            continue
        name = f"figure-path-{i}"
        drawn[name] = figures.path(run, runs)
        names.append(name)
        shown.append(rows[i])
        means = 100 * np.mean(along.values, axis=0)
        total, owners = len(run.federation.client), len(along.client)
        lines.append((rows[i].label, dict(zip(along.lam.tolist(), means.tolist(), strict=True))))
        grid = sorted({*grid, *along.lam.tolist()})
        personal = run.values("top1")[np.isin(run.federation.client, along.client)]
        said = (
            f"shared end <strong>{means[0]:.2f} %</strong>, own end "
            f"<strong>{means[-1]:.2f} %</strong>, personal models as chosen "
            f"<strong>{_escaped(rows[i].marked(f'{100 * np.nanmean(personal):.2f} %'))}</strong>; "
            f"{owners} of {total} clients have an own end"
        )
        keys = "".join(
            f"<br>{_swatch(reference.colour, f'key {reference.dash}')}{_escaped(reference.name)}: "
            f"{100 * reference.mean('top1'):.2f} %"
            for reference in figures.references(run, runs)
        )
        panels += (
            f"<div class='card'><h3>{_swatch(tones[i])}{_escaped(rows[i].label)}</h3>"
            f"<p>{said}{keys}</p>"
            f"{_plot(name, 430, 'Accuracy or loss from the shared to the own model')}</div>"
        )
    if names:
        figures.align([drawn[name] for name in names])
    late = (
        f"<p class='note'>Not drawn: in {_escaped(_listed(waiting))} no client has trained an own "
        "end yet.</p>"
        if waiting
        else ""
    )
    if not names:
        return late
    counts = {len(runs[i].federation.client) for i, row in enumerate(rows) if row in shown}
    each = (
        "each thin line one client"
        if max(counts) <= figures.LINES_AT_MOST
        else "a thin line per client, or a band from the 10th to the 90th hundredth of many"
    )
    caption = (
        "Models on the straight line (1 − λ) · shared + λ · own, each on the client's own test "
        f"part, at the last evaluated round; bold: mean over the clients that have an own end, "
        f"{each}. Horizontal lines: means over the same clients. Bars below: how many "
        f"of these clients chose each place. {_escaped(tables.selection(shown) or '')} "
        "The curves are measured on the test parts whatever the rule."
    )
    table = _table(
        ["λ", *(label for label, _ in lines)],
        [
            [
                f"{lam:g}",
                *(f"{means[lam]:.2f}" if lam in means else MISSING for _, means in lines),
            ]
            for lam in grid
        ],
        "Mean top-1 accuracy, %, over the clients that have an own end, on their test parts",
    )
    return (
        "<p>Walk from the shared model to the client's own. If the two were strangers, the models "
        "between them would be useless: accuracy would sag in the middle. A path that stays high, "
        "or rises above both ends, is the isthmus these methods build.</p>"
        f"<div class='controls'>{_views(drawn[names[0]], names, 'path-metric')}</div>"
        f"<div class='panels'>{panels}</div><p class='caption'>{caption}</p>"
        f"{_footnote(shown, 'p')}{late}" + _folded("The curves as a table", table)
    )


def _worst(runs: Sequence[Run], rows: Sequence[tables.Row]) -> str:
    best = _best(rows)
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
    table = _table(
        ["client", "train", "test", "classes it holds", *(rows[i].label for i in compared)],
        lines,
        "The lowest clients",
        words=3,
        said=False,
    )
    shown = [rows[i] for i in compared]
    others = [row.label for i, row in enumerate(rows) if i not in compared]
    omitted = (
        f" Left out, as their clients are others or unknown: {_escaped(_listed(others))}."
        if others
        else ""
    )
    caption = (
        f"The {len(lines)} clients with the lowest personal top-1 accuracy under "
        f"<strong>{_escaped(rows[best].label)}{_dagger(rows[best])}</strong>, the run with the "
        "highest mean. Columns on the right: the client's personal model under each run, top-1 % "
        f"on its own test part, at the last evaluated round.{omitted} "
        + _escaped(tables.selection(shown) or "")
    )
    return (
        "<p>A mean hides the clients that were left behind. With a small test part, one example "
        "more or less moves a client by whole points.</p>"
        f"<figure class='card'>{table}<figcaption>{caption}{_footnote(shown)}</figcaption></figure>"
    )


def _holdings(runs: Sequence[Run], drawn: dict[str, go.Figure]) -> str:
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
        f"<figure class='card'>{_plot('figure-holdings', height, 'Share of each class by client')}"
        f"<figcaption>{shown} of {_escaped(labels(runs)[0])}; all of a client's examples (train, "
        "validation and test parts). The stronger the colour, the larger the class's share of what "
        "the client holds.</figcaption></figure>"
    )


def _cost(runs: Sequence[Run], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]) -> str:
    drawn["figure-traffic"] = figures.traffic(runs)
    drawn["figure-time"] = figures.time(runs)
    height = 90 + 34 * len(runs)
    table = _table(
        ["run", "rounds", "down", "up", "per round", "training s", "evaluation s"],
        [
            [
                row.label,
                str(row.round),
                tables.nbytes(row.down_bytes),
                tables.nbytes(row.up_bytes),
                tables.nbytes((row.down_bytes + row.up_bytes) / max(row.round, 1)),
                f"{run.spent('train_seconds'):,.1f}",
                f"{run.spent('evaluate_seconds'):,.1f}",
            ]
            for run, row in zip(runs, rows, strict=True)
        ],
        "Cost up to the last evaluated round",
    )
    return (
        "<p>What clients and server send each other, and the time it all takes.</p>"
        "<div class='panels'>"
        f"<figure class='card'><h3>Traffic</h3>{_plot('figure-traffic', height, 'Bytes per run')}"
        "<figcaption>Parameters sent, all clients and rounds up to the last evaluated one. Full: "
        "down to clients; hatched: up to the server.</figcaption></figure>"
        f"<figure class='card'><h3>Time</h3>{_plot('figure-time', height, 'Seconds per run')}"
        "<figcaption>Seconds on the machine that ran it, up to the same round. Full: training; "
        "hatched: evaluation. Compare only runs made on one machine.</figcaption></figure></div>"
        + _folded("The costs as a table", table)
    )


def _settings(runs: Sequence[Run]) -> str:
    keys = sorted({key for run in runs for key in run.settings}, key=lambda key: ("." in key, key))
    values = {key: [_text(run, key) for run in runs] for key in keys}
    differing = [key for key in keys if len(set(values[key])) > 1]
    common = [key for key in keys if key not in differing]
    names = labels(runs)
    lines = [[key, *values[key]] for key in differing]
    facts = (
        ("status", "status"),
        ("rounds done", "rounds"),
        ("digest of the result", "digest"),
        ("digest of the federation", "federation"),
        ("isthmus", "isthmus"),
        ("torch", "torch"),
    )
    records = [
        [said, *(str({"status": run.status, **run.summary}.get(key, MISSING)) for run in runs)]
        for said, key in facts
    ]
    parts = [
        ("What differs between the runs", ["setting", *names], lines, True),
        ("What the runs share", ["setting", "value"], [[k, values[k][0]] for k in common], False),
        ("How they ended, and digests to compare", ["", *names], records, False),
    ]
    text = "".join(
        f"<details{' open' if unfolded else ''}><summary>{said}</summary>"
        f"{_table(head, body, said, kind='settings', said=False)}</details>"
        for said, head, body, unfolded in parts
        if body
    )
    return (
        "<p>Everything that can move a number. Runs with the same settings and versions "
        f"should have the same digest.</p><div class='card'>{text}</div>"
    )


def _footer(runs: Sequence[Run]) -> str:
    versions = sorted({str(run.summary["isthmus"]) for run in runs if "isthmus" in run.summary})
    made = f" (isthmus {_escaped(_listed(versions))})" if versions else ""
    return (
        f"<footer>Written by isthmus from the records of the runs{made}. One file; it asks the "
        "network for nothing. Every number here comes from "
        "<code>clients.csv</code>, <code>rounds.csv</code> and <code>federation.csv</code> "
        "in the runs' directories.</footer>"
    )


def _best(rows: Sequence[tables.Row]) -> int | None:
    known = [i for i, row in enumerate(rows) if row.top1 is not None and not np.isnan(row.top1)]
    return max(known, key=lambda i: rows[i].top1 or 0.0) if known else None


def _table(
    head: Sequence[str],
    lines: Sequence[Sequence[str]],
    caption: str,
    words: int | None = None,
    kind: str = "",
    said: bool = True,
) -> str:
    def titled(i: int) -> str:
        return " class='words'" if i == words else ""

    columns = "".join(
        f'<th scope="col"{titled(i)}>{_escaped(name)}</th>' for i, name in enumerate(head)
    )
    body = "".join(
        f'<tr><th scope="row">{_escaped(line[0])}</th>'
        + "".join(
            f"<td{titled(i)}>{_escaped(cell)}</td>" for i, cell in enumerate(line[1:], start=1)
        )
        + "</tr>"
        for line in lines
    )
    return (
        f"<div class='scroll' tabindex='0' role='region' aria-label='{_escaped(caption)}'>"
        f"<table class='{kind}'>"
        f"<caption class='{'caption' if said else 'unseen'}'>{_escaped(caption)}</caption>"
        f"<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _folded(said: str, table: str) -> str:
    return f"<details><summary>{said}</summary><div class='card'>{table}</div></details>"


def _views(figure: go.Figure, names: Sequence[str], group: str) -> str:
    choices = "".join(
        f"<label><input type='radio' name='{group}' value='{view['name']}' "
        f"data-figures='{' '.join(names)}'{' checked' if i == 0 else ''}>"
        f"<span>{view['label']}</span></label>"
        for i, view in enumerate(figure.layout.meta["views"])
    )
    return f"<fieldset class='views'><legend class='unseen'>Show</legend>{choices}</fieldset>"


def _plot(name: str, height: int, said: str, attributes: str = "") -> str:
    return (
        f"<div class='plot' id='{name}' role='img' aria-label='{said}' "
        f"style='height:{height}px'{attributes}></div>"
    )


def _footnote(rows: Sequence[tables.Row], tag: str = "span") -> str:
    if not any(row.chosen_on_test for row in rows):
        return ""
    opening = "<br>" if tag == "span" else ""
    return f"{opening}<{tag} class='caption'>{tables.FOOTNOTE}</{tag}>"


def _dagger(row: tables.Row) -> str:
    return tables.DAGGER if row.chosen_on_test else ""


def _swatch(tone: str, kind: str = "swatch") -> str:
    tones = f"--light:{tone};--dark:{figures.dark_tones()[tone]}"
    return f"<span class='{kind}' style='{tones}' aria-hidden='true'></span>"


def _data(drawn: dict[str, go.Figure]) -> str:
    data: dict[str, Any] = {
        "figures": {name: figure.to_plotly_json() for name, figure in drawn.items()},
        "darkTones": figures.dark_tones(),
    }
    for figure in data["figures"].values():
        figure["layout"].pop("template", None)
    # Inside a script only "<" could end it early; JSON may spell it as a number.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c")


def _signed(points: float) -> str:
    text = f"{points:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text.replace("-", "−")


def _text(run: Run, key: str) -> str:
    value = run.settings.get(key, MISSING)
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


def _escaped(text: str) -> str:
    return html.escape(text)


def _part(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
