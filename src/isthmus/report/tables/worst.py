"""The section about the clients of the lowest accuracy."""

from typing import Any

import numpy as np

from isthmus.report.figures.theme import list_classes
from isthmus.report.section import Report, SectionContent
from isthmus.report.tables.formats import format_percent, join_names
from isthmus.report.tables.summary import find_best
from isthmus.run.record import RecordedRun, find_counterpart

LOWEST = 5  # clients in the table


def show(report: Report) -> SectionContent | None:
    """Shows the lowest clients of the best group, seed by seed."""
    best = find_best(report.averages)
    if best is None:
        return None
    group = report.groups[best]
    tables = [_list_lowest(report, run, best) for run in group.runs]
    return SectionContent({"seeds": group.seeds, "best": report.averages[best], "tables": tables})


def _list_lowest(report: Report, run: RecordedRun, best: int) -> dict[str, Any]:
    """Lists the lowest clients of a run, and how they fare in the other groups."""
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
