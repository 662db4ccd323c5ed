"""The section with the result: the best method's figures, and the summary table."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from isthmus.report.figures import gain
from isthmus.report.section import Report, SectionContent
from isthmus.report.tables.formats import MISSING, format_percent, format_points
from isthmus.report.tables.summary import (
    COLUMNS,
    SummaryColumn,
    SummaryRow,
    describe,
    describe_seeds,
    find_best,
)


def show(report: Report) -> SectionContent:
    """Shows the summary table, a row per group, and above it the best group's figures."""
    of_run = {run.path: row for run, row in zip(report.runs, report.rows, strict=True)}
    notes = [_describe_range([of_run[run.path] for run in group.runs]) for group in report.groups]
    tones = [style.colour for style in report.styles]
    several = report.several_seeds
    values = {
        "tiles": _list_tiles(report),
        "table": _fill(report.averages, tones, notes if several else None),
        "every_run": _fill(report.rows, report.tones, None) if several else None,
        "seeds": f" {describe_seeds(report.groups)} Small: its lowest and highest seed.",
        "caption": describe(report.averages),
    }
    return SectionContent(values)


def _describe_range(rows: Sequence[SummaryRow]) -> tuple[str, str]:
    """Says how many seeds there are, and how far their mean accuracies reach."""
    if len(rows) == 1:
        return "1 seed", ""
    top1 = [row.top1 for row in rows if row.top1 is not None]
    rounds = sorted({row.round for row in rows})
    ended = f", after rounds {rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else ""
    span = f"{format_percent(min(top1))} to {format_percent(max(top1))}" if top1 else ""
    return f"{len(rows)} seeds{ended}", span


def _fill(
    rows: Sequence[SummaryRow], tones: Sequence[str], notes: Sequence[tuple[str, str]] | None
) -> dict[str, Any]:
    # A column without a single number says nothing; it is left out.
    filled = [column for column in COLUMNS if any(column.cell(row) != MISSING for row in rows)]
    groups: dict[str, list[SummaryColumn]] = {}
    for column in filled:
        groups.setdefault(column.group, []).append(column)
    best = find_best(rows) if len(rows) > 1 else None
    return {
        "groups": [(title, len(columns)) for title, columns in groups.items()],
        "short": [column.short for column in filled],
        "rows": [
            {
                "tone": tone,
                "label": row.label,
                "cells": [column.cell(row) for column in filled],
                "best": place == best,
                "notes": notes[place] if notes else None,
            }
            for place, (row, tone) in enumerate(zip(rows, tones, strict=True))
        ],
    }


def _list_tiles(report: Report) -> list[dict[str, str]]:
    """Lists the figures of the best group: the number, what it is before its name, and after."""
    best = find_best(report.averages)
    if best is None:
        return []
    row, group = report.averages[best], report.groups[best]
    many = f"; mean of {len(group.runs)} seeds" if len(group.runs) > 1 else ""
    over = f", on clients' own test parts, after round {row.round}{many}"
    tiles = [
        (f"{format_percent(row.top1)} %", "highest mean personal accuracy: ", over),
        (f"{format_percent(row.worst)} %", "mean of its worst twentieth of the clients: ", over),
    ]
    gains = gain.compute_by_seed(group, report.runs)
    if gains and row.harmed is not None:
        change = float(np.mean([np.mean(each.points) for each in gains.values()]))
        counted = float(np.mean([len(each.points) for each in gains.values()]))
        tiles += [
            (
                f"{format_points(change / 100)} points",
                "mean change in accuracy over training alone (local): ",
                many,
            ),
            (
                f"{round(row.harmed, 1):g} of {round(counted, 1):g}",
                "clients harmed: less accurate than training alone, under ",
                many,
            ),
        ]
    elif row.shared is not None and row.top1 is not None:
        points = f"{format_points(row.top1 - row.shared)} points"
        tiles.append((points, "mean personal accuracy against its shared model: ", over))
    return [
        {"number": row.mark(number), "what": what, "label": row.label, "over": after}
        for number, what, after in tiles
    ]
