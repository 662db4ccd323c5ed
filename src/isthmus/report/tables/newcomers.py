"""The section about clients that took part in no round and joined afterwards."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isthmus.metrics import spread
from isthmus.report.section import Report, SectionContent
from isthmus.report.tables.formats import MISSING, format_percent
from isthmus.run.record import RecordedRun, labels, mean_or_none

HEAD = (
    *("run", "joined", "data", "digest", "after round", "newcomers", "training examples"),
    *("own model: mean top-1 %", "lowest top-1 %", "shared model: mean top-1 %"),
)


class Joined(NamedTuple):
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


def summarize(run: RecordedRun) -> list[Joined]:
    """Sums up each time that newcomers joined a run, for each number of examples."""
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
            joined.append(Joined._make((*key, *found)))
    return joined


def show(report: Report) -> SectionContent | None:
    """Shows how all newcomers did that ever joined the runs; nothing where nobody did."""
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
        for each in summarize(run)
    ]
    return SectionContent({"head": HEAD, "lines": lines}) if lines else None
