"""The runs' last evaluated round in one table, for the terminal, for a paper and for the page."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from rich.table import Table
from rich.text import Text

from isthmus.metrics import spread
from isthmus.metrics.metric import METRICS, Metric
from isthmus.report.groups import Group, average_known
from isthmus.report.statistics import LEVEL, Interval, mean_of_sample
from isthmus.report.tables.formats import (
    DAGGER,
    FOOTNOTE,
    MISSING,
    PER_BATCH,
    Column,
    build_terminal_table,
    describe_sample,
    format_bounds,
    format_bytes,
    format_decimal,
    format_metric,
    format_percent,
    format_seconds,
    format_spread,
)
from isthmus.report.templates import render, render_paragraph
from isthmus.run.record import RecordedRun, find_counterpart, labels, mean_or_none
from isthmus.selection import RULES


class SummaryRow(NamedTuple):
    """One run's numbers at its last evaluated round; accuracies and errors are fractions."""

    label: str
    run: RecordedRun  # the first of several seeds
    round: int
    status: str
    clients: int  # with a test part, over whom the means are taken
    selection: str | None  # the rule that chose the personal models, where there was a choice
    chosen_on_test: bool
    kinds: tuple[tuple[str, int, float], ...]  # of clients: name, how many, mean top-1
    means: Mapping[str, float | None]  # of each metric of METRICS that tables have
    # Of these means and of `shared`, over all clients, where only some were evaluated.
    intervals: Mapping[str, Interval]
    deviation: float | None  # these three of top-1
    worst: float | None
    gini: float | None
    shared: float | None
    server: float | None
    harmed: float | None  # clients below their own accuracy in `local`
    down_bytes: float
    up_bytes: float
    seconds: float

    @property
    def top1(self) -> float | None:
        """The mean top-1 of the personal models."""
        return self.means["top1"]

    def mark(self, text: str) -> str:
        """Mark a number of a personal model that was chosen on test data."""
        return text + DAGGER if self.chosen_on_test and text != MISSING else text

    def bound(self, name: str, printed: Callable[[float], str]) -> str:
        """Print the bounds of a mean over all clients, where it is known of a sample only."""
        return format_bounds(self.intervals.get(name), printed)

    def print_metric(self, metric: Metric) -> str:
        """Print a metric of a personal model, marked; a calibration error may be per batch."""
        text = format_metric(metric.name, self.means[metric.name])
        per_batch = self.run.per_batch and metric.is_calibration and text != MISSING
        return self.mark(text + PER_BATCH if per_batch else text)


# Averaged over seeds, beside the means of metrics: every field that is a fraction or an amount.
AVERAGED = [
    name for name, kind in get_type_hints(SummaryRow).items() if kind in (float, float | None)
]


def summarize(runs: Sequence[RecordedRun]) -> list[SummaryRow]:
    """Return one row per run: its last evaluated round, on the clients' own test parts."""
    return [_row(run, label, runs) for run, label in zip(runs, labels(runs), strict=True)]


def average_over_seeds(groups: Sequence[Group], rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Return one row per group from the rows of its runs: means over seeds."""
    of_run = {row.run.path: row for row in rows}
    return [_average(group, [of_run[run.path] for run in group.runs]) for group in groups]


def find_best(rows: Sequence[SummaryRow]) -> int | None:
    """Find the run of the highest mean personal accuracy, of those that are federated."""
    known = [i for i, row in enumerate(rows) if row.top1 is not None and not np.isnan(row.top1)]
    known = [i for i in known if rows[i].run.federated] or known
    return max(known, key=lambda i: rows[i].top1 or 0.0) if known else None


def describe(rows: Sequence[SummaryRow]) -> str:
    """Describe which model, which clients, which split, which round and which rule of choice."""
    rules = [RULES[row.selection] for row in rows if row.run.sample and row.selection]
    return render_paragraph(
        "summary.txt",
        rows=rows,
        level=f"{100 * LEVEL:g}",
        one_point_of_sample=any(rule.for_all for rule in rules),
        describe_scope=describe_scope,
        list_exceptions=list_exceptions,
    )


def describe_scope(rows: Sequence[SummaryRow]) -> str:
    """Describe over which clients the means are taken, and after which round."""
    totals = [len(row.run.federation.client) for row in rows]
    counts = [f"{row.clients} of {total}" for row, total in zip(rows, totals, strict=True)]
    drawn = dict.fromkeys(row.run.sample for row in rows if row.run.sample is not None)
    if drawn:
        clients = ", or ".join(map(describe_sample, drawn))
        clients += " (for some runs)" if any(row.run.sample is None for row in rows) else ""
    elif {*totals, *(row.clients for row in rows)} == {totals[0]}:
        clients = f"all {totals[0]} clients"
    else:
        clients = f"the clients that have a test part ({', '.join(dict.fromkeys(counts))})"
    rounds = sorted({row.round for row in rows})
    when = (
        f"after round {rounds[0]}"
        if len(rounds) == 1
        else "at each run's last evaluated round ("
        + ", ".join(f"{row.label}: {row.round}" for row in rows)
        + ")"
    )
    return f"over {clients}, {when}"


def list_exceptions(averages: Sequence[SummaryRow], runs: Sequence[SummaryRow]) -> list[str]:
    """Describe which are no competitors, how models were chosen, which runs did not finish."""
    pooled = ", ".join(row.label for row in averages if not row.run.federated)
    late = ", ".join(f"{row.label} ({row.status})" for row in runs if row.status != "finished")
    sentences = (
        f"{pooled}: trained on all data in one place, an upper bound." if pooled else None,
        describe_selection(averages),
        f"Not run to the end: {late}." if late else None,
    )
    return [sentence for sentence in sentences if sentence]


def describe_selection(rows: Sequence[SummaryRow]) -> str | None:
    """Describe how the personal models were chosen along their paths, where there was a choice."""
    chosen: dict[str, list[str]] = {}
    for row in rows:
        if row.selection is not None:
            chosen.setdefault(row.selection, []).append(row.label)
    if not chosen:
        return None
    rules = [f"{', '.join(who)}: {_describe_rule(rule)}" for rule, who in chosen.items()]
    return f"Place on the path from shared to own model – {'; '.join(rules)}."


def _describe_rule(rule: str) -> str:
    known = RULES.get(rule)
    return rule if known is None else known.sentence + DAGGER * known.on_test


def describe_seeds(groups: Sequence[Group]) -> str:
    """Describe how seeds are shown together, where there are several."""
    counts = sorted({len(group.runs) for group in groups})
    if counts[-1] == 1:
        return ""
    many = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    return f"Mean over {many} seeds per method."


def describe_bands(groups: Sequence[Group]) -> str:
    """Describe what lines and bands are where groups have several seeds."""
    if all(len(group.runs) == 1 for group in groups):
        return ""
    return f" {describe_seeds(groups)} Bands: from the lowest to the highest seed."


def terminal(rows: Sequence[SummaryRow]) -> Table:
    """Return the table for a terminal of 80 columns; the page and Markdown have the rest."""
    narrow = [column for column in COLUMNS if column.narrow]
    heads = ["\n".join(column.narrow) for column in narrow]
    on_test = any(row.chosen_on_test for row in rows)
    table = build_terminal_table(heads, describe(rows), chosen_on_test=on_test, vertical="bottom")
    for row in rows:
        parts = [(column.narrow_bounds, *column.cell(row).partition(" [")) for column in narrow]
        cells = [
            f"{mean}\n[{bounds}" if cut and room else mean for room, mean, cut, bounds in parts
        ]
        table.add_row(Text(row.label), *map(Text, cells))
    return table


def markdown(rows: Sequence[SummaryRow]) -> str:
    """Return the full table in Markdown, with its caption under it."""
    return render(
        "summary.md",
        columns=COLUMNS,
        rows=rows,
        notes=[describe(rows), *([FOOTNOTE] if any(row.chosen_on_test for row in rows) else [])],
    )


def _metric_column(metric: Metric) -> Column:
    return Column(
        f"personal {metric.heading}",
        (metric.label, "%" if metric.factor == 100 else metric.range),
        lambda row: row.print_metric(metric) + row.bound(metric.name, metric.text),
        PERSONAL,
        narrow=("ECE", "%") if metric.name == "ece" else (),
        narrow_bounds=False,
    )


def _format_harmed(row: SummaryRow) -> str:
    if row.harmed is None:
        return MISSING
    return f"{row.harmed:.1f}".removesuffix(".0") + f" / {row.clients}"


IN_TABLES = tuple(metric for metric in METRICS.values() if metric.in_tables)
PERSONAL = "Personal model, on clients' own test parts"
COLUMNS = (
    Column(
        "personal top-1 %, mean ± std",
        ("top-1 accuracy", "%, mean ± std"),
        lambda row: (
            row.mark(format_spread(row.top1, row.deviation)) + row.bound("top1", format_percent)
        ),
        PERSONAL,
        ("personal", "top-1 %"),
    ),
    Column(
        "personal top-1 %, worst 5 %",
        ("worst 5 %", "top-1 %"),
        lambda row: row.mark(format_percent(row.worst)),
        PERSONAL,
        ("worst", "5 %"),
    ),
    Column(
        "personal top-1, Gini",
        ("Gini", "of top-1"),
        lambda row: row.mark(format_decimal(row.gini)),
        PERSONAL,
    ),
    *(_metric_column(metric) for metric in IN_TABLES if metric.name != "top1"),
    Column(
        "shared top-1 %, clients",
        ("on clients", "top-1 %"),
        lambda row: format_percent(row.shared) + row.bound("shared", format_percent),
        "Shared model",
        ("shared %", "clients"),
    ),
    Column(
        "shared top-1 %, server",
        ("on server", "top-1 %"),
        lambda row: format_percent(row.server),
        "Shared model",
        ("shared %", "server"),
    ),
    Column(
        "clients harmed",
        ("clients", "harmed"),
        lambda row: row.mark(_format_harmed(row)),
        "Against local",
        ("harmed",),
    ),
    Column("down", ("bytes", "down"), lambda row: format_bytes(row.down_bytes), "Cost"),
    Column("up", ("bytes", "up"), lambda row: format_bytes(row.up_bytes), "Cost"),
    Column(
        "seconds",
        ("time", "seconds"),
        lambda row: format_seconds(row.seconds),
        "Cost",
        ("time", "s"),
    ),
)


def _row(run: RecordedRun, label: str, runs: Sequence[RecordedRun]) -> SummaryRow:
    top1 = run.over_clients("top1")
    return SummaryRow(
        label=label,
        run=run,
        round=run.last,
        status=run.status,
        clients=len(top1),
        selection=run.selection,
        chosen_on_test=run.chosen_on_test,
        kinds=tuple(_by_kind(run)),
        means={metric.name: mean_or_none(run.over_clients(metric.name)) for metric in IN_TABLES},
        intervals=find_intervals(run),
        deviation=spread.deviation(top1) if top1.size else None,
        worst=spread.worst(top1) if top1.size else None,
        gini=spread.gini(top1) if top1.size else None,
        shared=mean_or_none(run.over_clients("top1", "shared")),
        server=run.on_server("top1"),
        harmed=_count_harmed(run, runs),
        down_bytes=run.total("down_bytes"),
        up_bytes=run.total("up_bytes"),
        seconds=run.total("train_seconds") + run.total("evaluate_seconds"),
    )


def find_intervals(run: RecordedRun) -> dict[str, Interval]:
    """Return the intervals of the means over all clients; none where all are evaluated."""
    if run.sample is None:
        return {}
    total = int(np.sum(run.federation.test > 0))
    values = {metric.name: run.over_clients(metric.name) for metric in IN_TABLES}
    values["shared"] = run.over_clients("top1", "shared")
    return {
        name: mean_of_sample(each, total).clip(METRICS["top1" if name == "shared" else name].bounds)
        for name, each in values.items()
        if each.size
    }


def _by_kind(run: RecordedRun) -> Iterator[tuple[str, int, float]]:
    values, kinds = run.values("top1"), run.federation.kind
    for kind in np.unique(kinds):
        own = values[(kinds == kind) & ~np.isnan(values)]
        if own.size:
            yield str(kind), own.size, float(own.mean())


def _count_harmed(run: RecordedRun, runs: Sequence[RecordedRun]) -> int | None:
    alone = find_counterpart(run, runs, "local")
    if alone is None or run.method == "local":
        return None
    values, reference = run.values("top1"), alone.values("top1")
    known = ~np.isnan(values) & ~np.isnan(reference)
    return spread.count_harmed(values[known], reference[known])


def _average(group: Group, rows: Sequence[SummaryRow]) -> SummaryRow:
    if len(rows) == 1:
        return rows[0]._replace(label=group.label)
    numbers: dict[str, Any] = {
        name: average_known([getattr(row, name) for row in rows]) for name in AVERAGED
    }
    kinds = tuple(
        (
            kind,
            count,
            float(np.mean([top1 for row in rows for k, _, top1 in row.kinds if k == kind])),
        )
        for kind, count, _ in rows[0].kinds
    )
    return rows[0]._replace(
        label=group.label,
        kinds=kinds,
        status=next((row.status for row in rows if row.status != "finished"), "finished"),
        round=min(row.round for row in rows),
        means={name: average_known([row.means[name] for row in rows]) for name in rows[0].means},
        intervals=_average_intervals(rows),
        **numbers,
    )


def _average_intervals(rows: Sequence[SummaryRow]) -> dict[str, Interval]:
    """Average the bounds of seeds: wide enough also where all of them look at the same clients."""
    return {
        name: Interval(*map(float, np.mean([row.intervals[name] for row in rows], axis=0)))
        for name in rows[0].intervals
        if all(name in row.intervals for row in rows)
    }
