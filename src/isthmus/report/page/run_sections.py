"""The sections of a page that are about whole runs."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from isthmus.records.reader import Run, labels
from isthmus.report import markup, seeds
from isthmus.report.figures import theme as figures
from isthmus.report.groups import SEEDED, Group
from isthmus.report.markup import (
    escaped,
    folded,
    footnote,
    plot,
    signed,
    swatch,
)
from isthmus.report.tables import reach
from isthmus.report.tables import summary as tables
from isthmus.report.tables.summary import MISSING


def summary(
    groups: Sequence[Group],
    rows: Sequence[tables.Row],
    runs: Sequence[Run],
    each: Sequence[tables.Row],
) -> str:
    """Shows the summary table, a row per group, and above it the best group's figures."""
    several = len(groups) < len(runs)
    of_run = {run.path: row for run, row in zip(runs, each, strict=True)}
    notes = [_over_seeds([of_run[run.path] for run in group.runs]) for group in groups]
    tones = figures.colours([group.runs[0] for group in groups])
    table = _table(rows, tones, notes if several else [])
    single = _table(each, figures.colours(runs), []) if several else ""
    seeded = f" {seeds.said(groups)} Small: its lowest and highest seed." if several else ""
    return (
        _tiles(groups, rows, runs)
        + f"<figure class='card'>{table}<figcaption id='summary-caption'>"
        + f"<strong>Which number is it?</strong>{seeded} {escaped(tables.caption(rows))}"
        + f"{footnote(rows)}</figcaption></figure>"
        + (folded("Every run in a row of its own", single) if several else "")
    )


def _over_seeds(each: Sequence[tables.Row]) -> tuple[str, str]:
    """Says how many seeds there are, and how far their mean accuracies reach."""
    if len(each) == 1:
        return "1 seed", ""
    top1 = [row.top1 for row in each if row.top1 is not None]
    rounds = sorted({row.round for row in each})
    ended = f", after rounds {rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else ""
    span = f"{tables.percent(min(top1))} to {tables.percent(max(top1))}" if top1 else ""
    return f"{len(each)} seeds{ended}", span


def _table(
    rows: Sequence[tables.Row], tones: Sequence[str], notes: Sequence[tuple[str, str]]
) -> str:
    groups = (
        ("Personal model, on clients' own test parts", slice(0, 7)),
        ("Shared model", slice(7, 9)),
        ("Against local", slice(9, 10)),
        ("Cost", slice(10, 13)),
    )
    short = (
        "top-1 accuracy<br>%, mean ± std",
        "worst 5 %<br>top-1 %",
        "Gini<br>of top-1",
        "loss<br>nats",
        "Brier<br>0 to 2",
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
    best = tables.best(rows)
    head = '<th scope="col" rowspan="2">method</th>'
    for title, span in groups:
        width = sum(i in kept for i in range(span.start, span.stop))
        if width:
            head += f'<th scope="colgroup" colspan="{width}"><span>{title}</span></th>'
    columns = "".join(f'<th scope="col">{short[i]}</th>' for i in kept)
    body = ""
    for place, (row, tone) in enumerate(zip(rows, tones, strict=True)):
        many, spanned = (f"<small>{note}</small>" for note in notes[place]) if notes else ("", "")
        cells = "".join(
            f"<td{' class=best' if i == 0 and place == best and len(rows) > 1 else ''}>"
            f"{escaped(tables.FULL[i].cell(row))}{spanned if i == 0 else ''}</td>"
            for i in kept
        )
        name = f"{swatch(tone)}{escaped(row.label)}{many}"
        body += f'<tr><th scope="row">{name}</th>{cells}</tr>'
    return (
        "<div class='scroll' tabindex='0' role='region' aria-label='Summary table'>"
        "<table class='summary' aria-describedby='summary-caption'>"
        "<caption class='unseen'>Scores and costs</caption>"
        f"<thead><tr>{head}</tr><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _tiles(groups: Sequence[Group], rows: Sequence[tables.Row], runs: Sequence[Run]) -> str:
    best = tables.best(rows)
    if best is None:
        return ""
    row, group = rows[best], groups[best]
    name = f"<strong>{escaped(row.label)}</strong>"
    many = f"; mean of {len(group.runs)} seeds" if len(group.runs) > 1 else ""
    over = f"on clients' own test parts, after round {row.round}{many}"
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
    found = figures.gains_by_seed(group, runs)
    if found and row.harmed is not None:
        change = float(np.mean([np.mean(gains.points) for gains in found.values()]))
        counted = float(np.mean([len(gains.points) for gains in found.values()]))
        tiles += [
            (
                row.marked(f"{signed(change)} points"),
                f"mean change in accuracy over training alone (local): {name}{many}",
            ),
            (
                row.marked(f"{round(row.harmed, 1):g} of {round(counted, 1):g}"),
                f"clients harmed: less accurate than training alone, under {name}{many}",
            ),
        ]
    elif row.shared is not None and row.top1 is not None:
        tiles.append(
            (
                row.marked(f"{signed(100 * (row.top1 - row.shared))} points"),
                f"mean personal accuracy against its shared model: {name}, {over}",
            )
        )
    listed = "".join(f"<div class='tile'><dt>{said}</dt><dd>{n}</dd></div>" for n, said in tiles)
    return f"<dl class='tiles'>{listed}</dl>"


def reliability(
    groups: Sequence[Group], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]
) -> str:
    """Shows how sure the personal models are and how often they are right, all clients together."""
    shown = [row for group, row in zip(groups, rows, strict=True) if seeds.bins(group) is not None]
    if not shown:
        return ""
    drawn["figure-reliability"] = figures.reliability(groups)
    lines = []
    for group, row in zip(groups, rows, strict=True):
        shares = [tables.percent(seeds.pooled(group, metric)) for metric in ("top1", "ece", "mce")]
        numbers = [tables.decimal(seeds.pooled(group, metric)) for metric in ("loss", "brier")]
        lines.append([row.label, *(row.marked(cell) for cell in (*shares, *numbers))])
    table = markup.table(
        ["method", "top-1 %", "ECE %", "MCE %", "loss", "Brier"],
        lines,
        "Personal models, pooled over all clients' test examples",
        said=False,
    )
    seeded = (
        " The examples of a method's seeds are drawn together; the table below has the mean of "
        "what each seed has by itself."
        if any(len(group.runs) > 1 for group in groups)
        else ""
    )
    what = "Top-1 accuracy against confidence, one line per method"
    return (
        "<p>A model that says 80 % should be right four times in five. One client's few examples "
        "cannot tell; those of all clients together can.</p>"
        f"<figure class='card'>{markup.legend(['figure-reliability'], groups, rows)}"
        f"{plot('figure-reliability', 400, what)}"
        "<figcaption><strong>Pooled over all clients' test examples</strong>, each counted once: "
        "large clients weigh more than in the means above. Personal models, at the last evaluated "
        "round. Fifteen bins of confidence; on the diagonal, confidence is what it claims to be; "
        f"below it, too high.{seeded}{footnote(shown)}</figcaption></figure>"
        f"<div class='card'>{table}</div>"
    )


def cost(
    groups: Sequence[Group],
    rows: Sequence[tables.Row],
    runs: Sequence[Run],
    drawn: dict[str, go.Figure],
    baseline: str | None,
) -> str:
    """Shows bytes and seconds, and what it took to become as good as the baseline."""
    drawn["figure-traffic"] = figures.traffic(groups)
    drawn["figure-time"] = figures.time(groups)
    height = 90 + 34 * len(groups)
    table = markup.table(
        ["method", "rounds", "down", "up", "per round", "training s", "evaluation s"],
        [
            [
                row.label,
                str(row.round),
                tables.nbytes(row.down_bytes),
                tables.nbytes(row.up_bytes),
                tables.nbytes((row.down_bytes + row.up_bytes) / max(row.round, 1)),
                f"{seeds.spent(group, 'train_seconds'):,.1f}",
                f"{seeds.spent(group, 'evaluate_seconds'):,.1f}",
            ]
            for group, row in zip(groups, rows, strict=True)
        ],
        f"Cost up to the last evaluated round. {seeds.said(groups)}".strip(),
    )
    return (
        f"<p>What clients and server send each other, and the time it all takes. "
        f"{seeds.said(groups)}</p><div class='panels'>"
        f"<figure class='card'><h3>Traffic</h3>{plot('figure-traffic', height, 'Bytes')}"
        "<figcaption>Parameters sent, all clients and rounds up to the last evaluated one. Full: "
        "down to clients; hatched: up to the server.</figcaption></figure>"
        f"<figure class='card'><h3>Time</h3>{plot('figure-time', height, 'Seconds')}"
        "<figcaption>Seconds on the machine that ran it, up to the same round. Full: training; "
        "hatched: evaluation. Compare only runs made on one machine.</figcaption></figure></div>"
        + folded("The costs as a table", table)
        + _to_target(groups, rows, runs, baseline)
    )


def _to_target(
    groups: Sequence[Group],
    rows: Sequence[tables.Row],
    runs: Sequence[Run],
    baseline: str | None,
) -> str:
    if baseline is None or len(groups) < 2:
        return ""
    parts = ""
    for model in ("personal", "shared"):
        found = reach.rows(runs, baseline, model)
        if found:
            said = f"Cost to reach where {baseline} ended, {model} models"
            table = markup.table(reach.HEAD, [row.cells() for row in found], said)
            mark = footnote(rows) if any(row.chosen_on_test for row in found) else ""
            parts += (
                f"<figure class='card'>{table}<figcaption>"
                f"{escaped(reach.caption(baseline, model))}{mark}</figcaption></figure>"
            )
    return f"<h3>Cost to reach the target</h3>{parts}" if parts else ""


def settings(groups: Sequence[Group], runs: Sequence[Run]) -> str:
    """Shows what the runs share and where they differ."""
    firsts = [group.runs[0] for group in groups]
    every = {key for run in runs for key in run.settings}
    keys = sorted(every - SEEDED, key=lambda key: ("." in key, key))
    values = {key: [markup.text(run, key) for run in firsts] for key in keys}
    differing = [key for key in keys if len(set(values[key])) > 1]
    common = [key for key in keys if key not in differing]
    lines = [["seed", *(", ".join(map(str, group.seeds)) for group in groups)]]
    lines += [[key, *values[key]] for key in differing]
    facts = {
        "status": "status",
        "rounds": "rounds done",
        "reason": "ended early",
        "digest": "digest of the result",
        "federation": "digest of the federation",
        "isthmus": "isthmus",
        "torch": "torch",
    }
    records = [
        [name, *(str({"status": run.status, **run.summary}.get(key, MISSING)) for key in facts)]
        for name, run in zip(labels(runs), runs, strict=True)
    ]
    names = [group.label for group in groups]
    parts = [
        ("What differs between the runs", ["setting", *names], lines, True),
        ("What the runs share", ["setting", "value"], [[k, values[k][0]] for k in common], False),
        ("How they ended, and digests to compare", ["run", *facts.values()], records, False),
    ]
    text = "".join(
        f"<details{' open' if unfolded else ''}><summary>{said}</summary>"
        f"{markup.table(head, body, said, kind='settings', said=False)}</details>"
        for said, head, body, unfolded in parts
        if body
    )
    return (
        "<p>Everything that can move a number. Runs with the same settings and versions "
        f"should have the same digest.</p><div class='card'>{text}</div>"
    )
