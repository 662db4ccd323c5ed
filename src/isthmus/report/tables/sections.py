"""The sections of the page that are tables: result, differences, newcomers, settings."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isthmus.metrics import spread
from isthmus.report.contrasts import compare
from isthmus.report.figures import gain
from isthmus.report.figures.curves import build_ranks
from isthmus.report.figures.theme import list_classes
from isthmus.report.groups import SEEDED
from isthmus.report.section import Report, SectionContent
from isthmus.report.tables import comparison as tables
from isthmus.report.tables.comparison import list_notes, list_ranks
from isthmus.report.tables.formats import (
    MISSING,
    fill_columns,
    format_percent,
    format_setting,
    join_names,
)
from isthmus.report.tables.summary import (
    COLUMNS,
    SummaryRow,
    describe,
    describe_seeds,
    find_best,
)
from isthmus.run.columns import columns
from isthmus.run.record import RecordedRun, find_counterpart, labels, mean_or_none


def show_summary(report: Report) -> SectionContent:
    """Show the summary table, a row per group, and above it the best group's figures."""
    of_run = {row.run.path: row for row in report.rows}
    several = report.several_seeds
    notes = [
        _describe_range([of_run[run.path] for run in group.runs]) if several else None
        for group in report.groups
    ]
    tones = [style.colour for style in report.styles]
    values = {
        "best": _measure_best(report),
        "table": _fill(report.averages, tones, notes),
        "every_run": _fill(report.rows, report.tones, [None] * len(report.runs))
        if several
        else None,
        "seeds": f" {describe_seeds(report.groups)} Small: its lowest and highest seed.",
        "caption": describe(report.averages),
    }
    return SectionContent(values)


def _describe_range(rows: Sequence[SummaryRow]) -> tuple[str, str]:
    """Describe how many seeds there are, and how far their mean accuracies reach."""
    if len(rows) == 1:
        return "1 seed", ""
    top1 = [row.top1 for row in rows if row.top1 is not None]
    rounds = sorted({row.round for row in rows})
    ended = f", after rounds {rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else ""
    span = f"{format_percent(min(top1))} to {format_percent(max(top1))}" if top1 else ""
    return f"{len(rows)} seeds{ended}", span


def _fill(
    rows: Sequence[SummaryRow], tones: Sequence[str], notes: Sequence[tuple[str, str] | None]
) -> dict[str, Any]:
    columns, lines = fill_columns(COLUMNS, rows)
    return {
        "groups": Counter(column.group for column in columns),
        "columns": columns,
        "rows": list(zip(rows, tones, lines, notes, strict=True)),
        "best": find_best(rows) if len(rows) > 1 else None,
    }


def _measure_best(report: Report) -> dict[str, Any] | None:
    """Return the best group's row, and how it does against training alone, if that is known."""
    best = find_best(report.averages)
    if best is None:
        return None
    gains = list(gain.compute_by_seed(report.groups[best], report.runs).values())
    return {
        "row": report.averages[best],
        "seeds": len(report.groups[best].runs),
        "change": float(np.mean([np.mean(each.points) for each in gains])) if gains else None,
        "counted": float(np.mean([len(each.points) for each in gains])) if gains else None,
    }


def show_differences(report: Report) -> SectionContent | None:
    """Show every method over its seeds, compared with a reference."""
    comparison = compare(report.runs, report.reference)
    if all(len(block.rows) < 2 for block in comparison.blocks):
        return None
    tones = {id(run): tone for run, tone in zip(report.runs, report.tones, strict=True)}
    blocks = []
    for block in comparison.blocks:
        columns, lines = fill_columns(tables.COLUMNS, block.rows)
        rows = [
            (tones[id(row.group.runs[0])], row, [cell.split(" [") for cell in line])
            for row, line in zip(block.rows, lines, strict=True)
        ]
        blocks.append((block.name, [column.short for column in columns], rows))
    values = {
        "reference": comparison.reference,
        "blocks": blocks,
        "ranks": list_ranks(comparison),
        "notes": list_notes(comparison),
    }
    if comparison.ranks is None:
        return SectionContent(values)
    drawn = build_ranks(list_ranks(comparison), comparison.ranks.critical)
    return SectionContent(values, {"figure-ranks": drawn})


LOWEST = 5  # clients in the table


def show_worst(report: Report) -> SectionContent | None:
    """Show the lowest clients of the best group, seed by seed."""
    best = find_best(report.averages)
    if best is None:
        return None
    group = report.groups[best]
    tables = [_list_lowest(report, run, best) for run in group.runs]
    return SectionContent({"seeds": group.seeds, "best": report.averages[best], "tables": tables})


def _list_lowest(report: Report, run: RecordedRun, best: int) -> dict[str, Any]:
    """List the lowest clients of a run, and their accuracy in the other groups."""
    rows = report.averages
    compared = {best: run} | {
        i: other
        for i, group in enumerate(report.groups)
        if i != best and (other := find_counterpart(run, group.runs, group.method)) is not None
    }
    values = {i: compared[i].values("top1") for i in sorted(compared)}
    order = [k for k in np.argsort(values[best], kind="stable") if not np.isnan(values[best][k])]
    lines = [
        [
            str(run.federation.client[k]),
            f"{run.federation.train[k]:,}",
            f"{run.federation.test[k]:,}",
            list_classes(run.federation, int(k)),
            *(
                rows[i].mark(format_percent(None if np.isnan(v[k]) else float(v[k])))
                for i, v in values.items()
            ),
        ]
        for k in order[:LOWEST]
    ]
    return {
        "seed": run.seed or 0,
        "head": ["client", "train", "test", "classes it holds", *(rows[i].label for i in values)],
        "lines": lines,
        "shown": [rows[i] for i in values],
        "left_out": join_names([row.label for i, row in enumerate(rows) if i not in values]),
    }


NEWCOMER_HEAD = (
    *("run", "joined", "data", "digest", "after round", "newcomers", "training examples"),
    *("own model: mean top-1 %", "lowest top-1 %", "shared model: mean top-1 %"),
)


class JoinedNewcomers(NamedTuple):
    """How the newcomers of one file did with so many examples: top-1 on their own test parts."""

    time: str  # empty where an older version wrote it, as data and digest are
    data: str
    digest: str
    round: int  # rounds that were done
    shots: str  # examples that each trained on at most, or all
    clients: int  # that have test examples
    newcomer_top1_test_mean: float
    newcomer_top1_test_lowest: float
    shared_top1_test_mean: float | None  # None: the method has no shared model


def summarize_newcomers(run: RecordedRun) -> list[JoinedNewcomers]:
    """Summarize each time that newcomers joined a run, for each number of examples."""
    table = run.newcomers
    measured = (table.split == "test") & (table.n > 0) & ~np.isnan(table.top1)
    keys = (table.time, table.data, table.digest, table.round, table.shots)
    rows: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(zip(*(column.tolist() for column in keys), strict=True)):
        if measured[row]:
            rows.setdefault(key, []).append(row)
    joined = []
    for key, places in rows.items():
        model, top1 = table.model[places], table.top1[places]
        own, shared = top1[model == "newcomer"], mean_or_none(top1[model == "shared"])
        if own.size:
            found = (own.size, spread.mean(own), float(own.min()), shared)
            joined.append(JoinedNewcomers._make((*key, *found)))
    return joined


def show_newcomers(report: Report) -> SectionContent | None:
    """Show how all newcomers did that ever joined the runs; None where none did."""
    lines = [
        [
            label,
            each.time[:16].replace("T", " ") or MISSING,
            Path(each.data).name or MISSING,
            each.digest[:8] or MISSING,
            each.round or MISSING,
            each.clients,
            each.shots if each.shots == "all" else f"at most {each.shots}",
            *map(format_percent, (each.newcomer_top1_test_mean, each.newcomer_top1_test_lowest)),
            MISSING
            if each.shared_top1_test_mean is None
            else format_percent(each.shared_top1_test_mean),
        ]
        for label, run in zip(labels(report.runs), report.runs, strict=True)
        for each in summarize_newcomers(run)
    ]
    return SectionContent({"head": NEWCOMER_HEAD, "lines": lines}) if lines else None


TRIAL_COLUMNS = ("method", "trial", "settings", "validation_loss", "validation_top1", "chosen")


def show_trials(report: Report) -> SectionContent | None:
    """Show all trials of the comparisons that the runs belong to; None where there are none."""
    places = dict.fromkeys(run.path.resolve().parent.parent / "trials.csv" for run in report.runs)
    tables = [
        columns(place, [*TRIAL_COLUMNS, "seed", "failed"]) for place in places if place.is_file()
    ]
    if not tables:
        return None
    lines = []
    for table in tables:
        for i, failed in enumerate(table["failed"]):
            line = [table[name][i] for name in TRIAL_COLUMNS]
            lines.append([*line[:3], "failed", *line[4:]] if failed else line)
    head = [name.replace("_", " ").replace("top1", "top-1") for name in TRIAL_COLUMNS]
    seeds = join_names(sorted({seed for table in tables for seed in table["seed"]}))
    return SectionContent({"head": head, "lines": lines, "seeds": seeds})


FACTS = {
    "status": "status",
    "rounds": "rounds done",
    "reason": "ended early",
    "digest": "digest of the result",
    "federation": "digest of the federation",
    "isthmus": "isthmus",
    "torch": "torch",
}


def show_settings(report: Report) -> SectionContent:
    """Show what the runs share and where they differ."""
    groups, runs = report.groups, report.runs
    every = {key for run in runs for key in run.settings}
    keys = sorted(every - SEEDED, key=lambda key: ("." in key, key))
    values = {key: [format_setting(group.runs[0], key) for group in groups] for key in keys}
    differing = [key for key in keys if len(set(values[key])) > 1]
    names = ["setting", *(group.label for group in groups)]
    differences = [["seed", *(", ".join(map(str, group.seeds)) for group in groups)]]
    differences += [[key, *values[key]] for key in differing]
    shared = [[key, values[key][0]] for key in keys if key not in differing]
    ends = [
        [name, *(str(getattr(run.summary, key) or MISSING) for key in FACTS)]
        for name, run in zip(labels(runs), runs, strict=True)
    ]
    tables = [
        ("What differs between the runs", names, differences),
        ("What the runs share", ["setting", "value"], shared),
        ("How they ended, and digests to compare", ["run", *FACTS.values()], ends),
    ]
    return SectionContent({"tables": [table for table in tables if table[2]]})
