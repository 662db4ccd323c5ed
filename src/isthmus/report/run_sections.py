"""The sections of a page that are about whole runs."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from isthmus.report import figures, markup, paths, reach, tables
from isthmus.report.markup import (
    dagger,
    escaped,
    folded,
    footnote,
    listed,
    plot,
    signed,
    swatch,
    views,
)
from isthmus.report.records import Run, labels, trained_alone
from isthmus.report.tables import MISSING


def summary(runs: Sequence[Run], rows: Sequence[tables.Row]) -> str:
    """Shows the summary table and, above it, the best run's figures."""
    tones = figures.colours(runs)
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
        cells = "".join(
            f"<td{' class=best' if i == 0 and place == best and len(rows) > 1 else ''}>"
            f"{escaped(tables.FULL[i].cell(row))}</td>"
            for i in kept
        )
        body += f'<tr><th scope="row">{swatch(tone)}{escaped(row.label)}</th>{cells}</tr>'
    table = (
        "<div class='scroll' tabindex='0' role='region' aria-label='Summary table'>"
        "<table class='summary' aria-describedby='summary-caption'>"
        "<caption class='unseen'>One row per run</caption>"
        f"<thead><tr>{head}</tr><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    return (
        _tiles(runs, rows)
        + f"<figure class='card'>{table}<figcaption id='summary-caption'>"
        + f"<strong>Which number is it?</strong> {escaped(tables.caption(rows))}"
        + f"{footnote(rows)}</figcaption></figure>"
    )


def _tiles(runs: Sequence[Run], rows: Sequence[tables.Row]) -> str:
    best = tables.best(rows)
    if best is None:
        return ""
    row, run = rows[best], runs[best]
    name = f"<strong>{escaped(row.label)}</strong>"
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
                row.marked(f"{signed(float(np.mean(found.points)))} points"),
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
                row.marked(f"{signed(100 * (row.top1 - row.shared))} points"),
                f"mean personal accuracy against its shared model: {name}, {over}",
            )
        )
    listed = "".join(f"<div class='tile'><dt>{said}</dt><dd>{n}</dd></div>" for n, said in tiles)
    return f"<dl class='tiles'>{listed}</dl>"


def rounds(runs: Sequence[Run], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]) -> str:
    """Shows how the models become better round by round."""
    figure = drawn["figure-rounds"] = figures.rounds(runs)
    numbers = markup.table(
        ["round", *(f"{row.label}, {m}" for row in rows for m in ("personal", "shared"))],
        _by_round(runs, rows),
        "Mean top-1 accuracy, %, over clients on their own test parts",
    )
    caption = (
        "<strong>Solid: personal models</strong>, what each client deploys. <strong>Dashed: the "
        "shared model</strong>, the same for everybody (absent where a method has none; where "
        "both are one model the lines coincide). Mean over all clients of a run, each on its own "
        f"test part, at every evaluated round. {escaped(tables.selection(rows) or '')}"
        + (f" {tables.BATCHED}" if any(row.per_batch for row in rows) else "")
    )
    return (
        "<p>How good the models become as clients and server exchange more rounds. Higher is "
        "better for accuracy, lower for loss and calibration error.</p>"
        f"<figure class='card'><div class='controls'>{views(figure, ['figure-rounds'], 'metric')}"
        f"{_legend('figure-rounds', runs, rows)}</div>"
        f"{plot('figure-rounds', 400, 'Mean over clients against rounds, one line per run')}"
        f"<figcaption>{caption}{footnote(rows)}</figcaption>"
        f"<details><summary>The accuracies as a table</summary>{numbers}</details></figure>"
    )


def _legend(name: str, runs: Sequence[Run], rows: Sequence[tables.Row]) -> str:
    """Makes the buttons that leave runs out of a figure."""
    buttons = "".join(
        f"<button type='button' aria-pressed='true' data-figures='{name}' data-run='{i}'>"
        f"{swatch(tone)}{escaped(row.label)}{dagger(row)}</button>"
        for i, (row, tone) in enumerate(zip(rows, figures.colours(runs), strict=True))
    )
    return f"<div class='legend' role='group' aria-label='Runs shown'>{buttons}</div>"


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


def path(runs: Sequence[Run], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]) -> str:
    """Shows accuracy and loss along the path, and the places that clients chose."""
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
        drawn[name] = paths.path(run, runs)
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
            f"<strong>{escaped(rows[i].marked(f'{100 * np.nanmean(personal):.2f} %'))}</strong>; "
            f"{owners} of {total} clients have an own end"
        )
        keys = "".join(
            f"<br>{swatch(reference.colour, f'key {reference.dash}')}{escaped(reference.name)}: "
            f"{100 * reference.mean('top1'):.2f} %"
            for reference in paths.references(run, runs)
        )
        panels += (
            f"<div class='card'><h3>{swatch(tones[i])}{escaped(rows[i].label)}</h3>"
            f"<p>{said}{keys}</p>"
            f"{plot(name, 430, 'Accuracy or loss from the shared to the own model')}</div>"
        )
    if names:
        paths.align([drawn[name] for name in names])
    late = (
        f"<p class='note'>Not drawn: in {escaped(listed(waiting))} no client has trained an own "
        "end yet.</p>"
        if waiting
        else ""
    )
    if not names:
        return late
    counts = {len(runs[i].federation.client) for i, row in enumerate(rows) if row in shown}
    each = (
        "each thin line one client"
        if max(counts) <= paths.LINES_AT_MOST
        else "a thin line per client, or a band from the 10th to the 90th hundredth of many"
    )
    caption = (
        "Models on the straight line (1 − λ) · shared + λ · own, each on the client's own test "
        f"part, at the last evaluated round; bold: mean over the clients that have an own end, "
        f"{each}. Horizontal lines: means over the same clients. Bars below: how many "
        f"of these clients chose each place. {escaped(tables.selection(shown) or '')} "
        "The curves are measured on the test parts whatever the rule."
    )
    table = markup.table(
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
        f"<div class='controls'>{views(drawn[names[0]], names, 'path-metric')}</div>"
        f"<div class='panels'>{panels}</div><p class='caption'>{caption}</p>"
        f"{footnote(shown, 'p')}{late}" + folded("The curves as a table", table)
    )


def branches(runs: Sequence[Run], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]) -> str:
    """Shows what two networks whose logits are added contribute to their sum."""
    tones = figures.colours(runs)
    panels, names, lines = "", [], []
    for i, run in enumerate(runs):
        along = paths.side_by_side(run, "top1")
        if along is None:
            continue
        name = f"figure-branches-{i}"
        drawn[name] = paths.branches(run, runs)
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
        "the 10th to the 90th hundredth of many.</p>" + folded("The means as a table", table)
    )


def reliability(
    runs: Sequence[Run], rows: Sequence[tables.Row], drawn: dict[str, go.Figure]
) -> str:
    """Shows how sure the personal models are and how often they are right, all clients together."""
    shown = [row for run, row in zip(runs, rows, strict=True) if run.bins() is not None]
    if not shown:
        return ""
    drawn["figure-reliability"] = figures.reliability(runs)
    lines = []
    for run, row in zip(runs, rows, strict=True):
        shares = [tables.percent(run.pooled(metric)) for metric in ("top1", "ece", "mce")]
        numbers = [tables.decimal(run.pooled(metric)) for metric in ("loss", "brier")]
        lines.append([row.label, *(row.marked(cell) for cell in (*shares, *numbers))])
    table = markup.table(
        ["run", "top-1 %", "ECE %", "MCE %", "loss", "Brier"],
        lines,
        "Personal models, pooled over all clients' test examples",
        said=False,
    )
    what = "Top-1 accuracy against confidence, one line per run"
    return (
        "<p>A model that says 80 % should be right four times in five. One client's few examples "
        "cannot tell; those of all clients together can.</p>"
        f"<figure class='card'><div class='controls'>{_legend('figure-reliability', runs, rows)}"
        f"</div>{plot('figure-reliability', 400, what)}"
        "<figcaption><strong>Pooled over all clients' test examples</strong>, each counted once: "
        "large clients weigh more than in the means above. Personal models, at the last evaluated "
        "round. Fifteen bins of confidence; on the diagonal, confidence is what it claims to be; "
        f"below it, too high.{footnote(shown)}</figcaption></figure>"
        f"<div class='card'>{table}</div>"
    )


def cost(
    runs: Sequence[Run],
    rows: Sequence[tables.Row],
    drawn: dict[str, go.Figure],
    baseline: str | None,
) -> str:
    """Shows bytes and seconds, and what it took to become as good as the baseline."""
    drawn["figure-traffic"] = figures.traffic(runs)
    drawn["figure-time"] = figures.time(runs)
    height = 90 + 34 * len(runs)
    table = markup.table(
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
        f"<figure class='card'><h3>Traffic</h3>{plot('figure-traffic', height, 'Bytes per run')}"
        "<figcaption>Parameters sent, all clients and rounds up to the last evaluated one. Full: "
        "down to clients; hatched: up to the server.</figcaption></figure>"
        f"<figure class='card'><h3>Time</h3>{plot('figure-time', height, 'Seconds per run')}"
        "<figcaption>Seconds on the machine that ran it, up to the same round. Full: training; "
        "hatched: evaluation. Compare only runs made on one machine.</figcaption></figure></div>"
        + folded("The costs as a table", table)
        + _to_target(runs, rows, baseline)
    )


def _to_target(runs: Sequence[Run], rows: Sequence[tables.Row], baseline: str | None) -> str:
    if baseline is None or len(runs) < 2:
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


def settings(runs: Sequence[Run]) -> str:
    """Shows what the runs share and where they differ."""
    keys = sorted({key for run in runs for key in run.settings}, key=lambda key: ("." in key, key))
    values = {key: [markup.text(run, key) for run in runs] for key in keys}
    differing = [key for key in keys if len(set(values[key])) > 1]
    common = [key for key in keys if key not in differing]
    names = labels(runs)
    lines = [[key, *values[key]] for key in differing]
    facts = (
        ("status", "status"),
        ("rounds done", "rounds"),
        ("ended early", "reason"),
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
        f"{markup.table(head, body, said, kind='settings', said=False)}</details>"
        for said, head, body, unfolded in parts
        if body
    )
    return (
        "<p>Everything that can move a number. Runs with the same settings and versions "
        f"should have the same digest.</p><div class='card'>{text}</div>"
    )
