"""The runs' last evaluated round in one table, for the terminal and for a paper."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from isthmus.metrics import spread
from isthmus.records.columns import Floats
from isthmus.records.reader import Run, labels, mean_or_none, trained_alone
from isthmus.selection import RULES

MISSING = "–"
DAGGER = "†"
FOOTNOTE = (
    f"{DAGGER} The point on the path was chosen with the very test data it is measured on; "
    "the number is optimistic, and methods without a path get no such choice."
)
PER_BATCH = "‡"
BATCHED = (
    f"{PER_BATCH} A mean over mini-batches, as the SuPerFed code computes it; larger than the same "
    "figure of a whole test part, and not to be compared with it."
)


class Row(NamedTuple):
    """One run's numbers at its last evaluated round; accuracies and errors are fractions."""

    label: str
    round: int
    status: str
    clients: int  # with a test part, over whom the means are taken
    total: int  # clients of the federation
    selection: str | None  # the rule that chose the personal models, where there was a choice
    chosen_on_test: bool
    per_batch: bool  # ECE and MCE are means over mini-batches
    kinds: tuple[tuple[str, int, float], ...]  # of clients: name, how many, mean top-1
    top1: float | None
    deviation: float | None
    worst: float | None
    gini: float | None
    loss: float | None
    brier: float | None
    ece: float | None
    mce: float | None
    shared: float | None
    server: float | None
    harmed: float | None  # clients below their own accuracy in `local`
    down_bytes: float
    up_bytes: float
    seconds: float

    def marked(self, text: str) -> str:
        """Marks a number of a personal model that was chosen on test data."""
        return text + DAGGER if self.chosen_on_test and text != MISSING else text

    def calibrated(self, text: str) -> str:
        """Marks a calibration error of a personal model."""
        return self.marked(text + PER_BATCH if self.per_batch and text != MISSING else text)


def summary(runs: Sequence[Run]) -> list[Row]:
    """Returns one row per run: its last evaluated round, on the clients' own test parts."""
    return [_row(run, label, runs) for run, label in zip(runs, labels(runs), strict=True)]


def best(rows: Sequence[Row]) -> int | None:
    """Finds the run of the highest mean personal accuracy."""
    known = [i for i, row in enumerate(rows) if row.top1 is not None and not np.isnan(row.top1)]
    return max(known, key=lambda i: rows[i].top1 or 0.0) if known else None


def caption(rows: Sequence[Row]) -> str:
    """Says which model, which clients, which split, which round and which rule of choice."""
    sentences = [
        "Personal: the model each client deploys, on its own test part; "
        f"mean ± population standard deviation {scope(rows)}.",
        "Worst 5 %: mean over the lowest twentieth of them.",
    ]
    if any(row.per_batch for row in rows):
        sentences.append(BATCHED)
    if any(row.shared is not None for row in rows):
        sentences.append(
            "Shared: the one model everybody has, on the same test parts (clients) "
            "and on the server's own test set (server)."
        )
    if any(row.harmed is not None for row in rows):
        sentences.append(
            "Harmed: clients strictly below the accuracy they reach training alone "
            "(local, same federation)."
        )
    for row in rows:
        if row.kinds:
            split = ", ".join(f"{k} {percent(mean)} ({n} clients)" for k, n, mean in row.kinds)
            sentences.append(f"Personal top-1 % of {row.label} by kind of client: {split}.")
    sentences.append(f"Cost: of all rounds up to that one. {MISSING}: not recorded.")
    rule = selection(rows)
    if rule:
        sentences.append(rule)
    late = unfinished(rows)
    if late:
        sentences.append(late)
    return " ".join(sentences)


def scope(rows: Sequence[Row]) -> str:
    """Says over which clients the means are taken, and after which round."""
    counts = [f"{row.clients} of {row.total}" for row in rows]
    clients = (
        f"all {rows[0].total} clients"
        if all((row.clients, row.total) == (rows[0].total, rows[0].total) for row in rows)
        else f"the clients that have a test part ({', '.join(dict.fromkeys(counts))})"
    )
    rounds = sorted({row.round for row in rows})
    when = (
        f"after round {rounds[0]}"
        if len(rounds) == 1
        else "at each run's last evaluated round ("
        + ", ".join(f"{row.label}: {row.round}" for row in rows)
        + ")"
    )
    return f"over {clients}, {when}"


def unfinished(rows: Sequence[Row]) -> str | None:
    """Names the runs that did not run to the end, if there are any."""
    late = [f"{row.label} ({row.status})" for row in rows if row.status != "finished"]
    return f"Not run to the end: {', '.join(late)}." if late else None


def selection(rows: Sequence[Row]) -> str | None:
    """Says how the personal models were chosen along their paths, where there was a choice."""
    chosen: dict[str, list[str]] = {}
    for row in rows:
        if row.selection is not None:
            chosen.setdefault(row.selection, []).append(row.label)
    if not chosen:
        return None
    rules = [f"{', '.join(who)}: {_sentence(rule)}" for rule, who in chosen.items()]
    return f"Place on the path from shared to own model – {'; '.join(rules)}."


def _sentence(rule: str) -> str:
    known = RULES.get(rule)
    return rule if known is None else known.sentence + DAGGER * known.on_test


def terminal(rows: Sequence[Row]) -> Table:
    """Returns the table for a terminal of 80 columns; the page and Markdown have the rest."""
    note = f"\n{FOOTNOTE}" if any(row.chosen_on_test for row in rows) else ""
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        caption=Text(caption(rows) + note, style="dim"),
        caption_justify="left",
    )
    table.add_column("method", overflow="fold", min_width=11, max_width=22, vertical="bottom")
    headers = (
        "personal\ntop-1 %",
        "worst\n5 %",
        "ECE\n%",
        "shared %\nclients",
        "shared %\nserver",
        "harmed",
        "time\ns",
    )
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            Text(row.label),
            row.marked(spread_percent(row.top1, row.deviation)),
            row.marked(percent(row.worst)),
            row.calibrated(percent(row.ece)),
            percent(row.shared),
            percent(row.server),
            row.marked(_harmed(row)),
            seconds(row.seconds),
        )
    return table


class Heading(NamedTuple):
    """One column of the full table: its title, and how a row's number prints."""

    title: str
    cell: Callable[[Row], str]


FULL = (
    Heading(
        "personal top-1 %, mean ± std",
        lambda row: row.marked(spread_percent(row.top1, row.deviation)),
    ),
    Heading("personal top-1 %, worst 5 %", lambda row: row.marked(percent(row.worst))),
    Heading("personal top-1, Gini", lambda row: row.marked(decimal(row.gini))),
    Heading("personal loss", lambda row: row.marked(decimal(row.loss))),
    Heading("personal Brier", lambda row: row.marked(decimal(row.brier))),
    Heading("personal ECE %", lambda row: row.calibrated(percent(row.ece))),
    Heading("personal MCE %", lambda row: row.calibrated(percent(row.mce))),
    Heading("shared top-1 %, clients", lambda row: percent(row.shared)),
    Heading("shared top-1 %, server", lambda row: percent(row.server)),
    Heading("clients harmed", lambda row: row.marked(_harmed(row))),
    Heading("down", lambda row: nbytes(row.down_bytes)),
    Heading("up", lambda row: nbytes(row.up_bytes)),
    Heading("seconds", lambda row: seconds(row.seconds)),
)


def markdown(rows: Sequence[Row]) -> str:
    """Returns the full table in Markdown, with its caption under it."""
    lines = [
        "| method | " + " | ".join(heading.title for heading in FULL) + " |",
        "|:---|" + "---:|" * len(FULL),
    ]
    for row in rows:
        cells = [inert(row.label), *(heading.cell(row) for heading in FULL)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", inert(caption(rows))]
    if any(row.chosen_on_test for row in rows):
        lines += ["", FOOTNOTE]
    return "\n".join(lines) + "\n"


def percent(value: float | None) -> str:
    """Prints a fraction as a percentage, without its sign.

    >>> percent(0.98765)
    '98.77'
    """
    return MISSING if value is None else f"{100 * value:.2f}"


def spread_percent(value: float | None, deviation: float | None) -> str:
    """Prints a mean and a deviation, both fractions, as percentages."""
    if value is None or deviation is None:
        return MISSING
    return f"{percent(value)} ± {percent(deviation)}"


def decimal(value: float | None) -> str:
    """Prints a loss, a Brier score or a Gini coefficient."""
    return MISSING if value is None else f"{value:.3f}"


def nbytes(value: float) -> str:
    """Prints a number of bytes in powers of a thousand.

    >>> nbytes(3_180_000)
    '3.18 MB'
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    return f"{value:.3g} {unit}"


def seconds(value: float) -> str:
    """Prints a duration in seconds."""
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _row(run: Run, label: str, runs: Sequence[Run]) -> Row:
    top1 = run.over_clients("top1")
    return Row(
        label=label,
        round=run.last,
        status=run.status,
        clients=len(top1),
        total=len(run.federation.client),
        selection=run.selection,
        chosen_on_test=run.chosen_on_test,
        per_batch=run.per_batch,
        kinds=tuple(_by_kind(run)),
        top1=mean_or_none(top1),
        deviation=spread.deviation(top1) if top1.size else None,
        worst=spread.worst(top1) if top1.size else None,
        gini=spread.gini(top1) if top1.size else None,
        loss=mean_or_none(run.over_clients("loss")),
        brier=mean_or_none(run.over_clients("brier")),
        ece=mean_or_none(run.over_clients("ece")),
        mce=mean_or_none(run.over_clients("mce")),
        shared=mean_or_none(run.over_clients("top1", "shared")),
        server=run.on_server("top1"),
        harmed=_count_harmed(run, runs),
        down_bytes=run.spent("down_bytes"),
        up_bytes=run.spent("up_bytes"),
        seconds=run.spent("train_seconds") + run.spent("evaluate_seconds"),
    )


def _by_kind(run: Run) -> Iterator[tuple[str, int, float]]:
    values, kinds = run.values("top1"), run.federation.kind
    for kind in np.unique(kinds):
        own = values[(kinds == kind) & ~np.isnan(values)]
        if own.size:
            yield str(kind), own.size, float(own.mean())


def _count_harmed(run: Run, runs: Sequence[Run]) -> int | None:
    alone = trained_alone(run, runs)
    if alone is None or run.method == "local":
        return None
    values, reference = both(run, alone)
    return spread.harmed(values, reference)


def both(run: Run, alone: Run) -> tuple[Floats, Floats]:
    """Returns the top-1 of a run and of `local`, for the clients that have both."""
    values, reference = run.values("top1"), alone.values("top1")
    known = ~np.isnan(values) & ~np.isnan(reference)
    return values[known], reference[known]


def _harmed(row: Row) -> str:
    if row.harmed is None:
        return MISSING
    return f"{row.harmed:.1f}".removesuffix(".0") + f" / {row.clients}"


def inert(text: str) -> str:
    """Spells text so that Markdown shows it as it is."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
