"""Published numbers beside ours, for a terminal and for programs."""

from collections.abc import Iterable
from typing import Any

from rich import box
from rich.table import Table

from isthmus_papers.conduct import guess_seconds
from isthmus_papers.plan import plan
from isthmus_papers.recipe import Preset, Recipe, TableCell
from isthmus_papers.section import MARKS, RecipeSection
from isthmus_papers.verdict import Records, Verdict, count_outcomes, judge


def draw_section(section: RecipeSection) -> list[Table]:
    """Draws the cells of a recipe for a terminal of 80 columns: a table for each of its columns."""
    tables = []
    for column in section.columns:
        table = Table(
            title=f"{column.column}: {column.metric}",
            caption=column.ranking or None,
            box=box.SIMPLE_HEAD,
            title_justify="left",
            caption_justify="left",
            collapse_padding=True,
            pad_edge=False,
        )
        table.add_column("", no_wrap=True, min_width=1)
        table.add_column("method", overflow="fold")  # nothing is cut off; the longest wraps first
        for title in column.heads.values():
            table.add_column(title, justify="right", overflow="fold")
        for row in column.rows:
            table.add_row(row.mark, row.method, *(getattr(row, field) for field in column.heads))
        tables.append(table)
    return tables


def draw_list(recipes: Iterable[Recipe], records: Records, preset: Preset) -> Table:
    """Draw all recipes for a terminal: their cells, what became of them, the hours of all runs."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("recipe", no_wrap=True)
    for title in ("numbers", "●", "▲", "▼", "·", "×", "runs", "hours"):
        table.add_column(title, justify="right")
    for recipe in recipes:
        counts = count_outcomes(recipe.cells, records, preset)
        runs = plan([*recipe.cells, *recipe.runs], preset)
        seconds = [guess_seconds(run.experiment, records) for run in runs]
        known = [each for each in seconds if each is not None]
        shown = f"{sum(known) / 3600:,.1f}" + ("+" if len(known) < len(runs) else "")
        numbers = [str(counts[outcome]) for outcome in MARKS]
        table.add_row(recipe.name, str(len(recipe.cells)), *numbers, str(len(runs)), shown)
    return table


def list_rows(cells: Iterable[TableCell], records: Records, preset: Preset) -> list[dict[str, Any]]:
    """Lists cells for programs."""
    return [_to_json(judge(cell, records, preset)) for cell in cells]


def _to_json(verdict: Verdict) -> dict[str, Any]:
    cell, ours, validated = verdict.cell, verdict.judged, verdict.validated
    return {
        "paper": cell.paper,
        "table": cell.table,
        "column": cell.column,
        "method": cell.method,
        "label": cell.label,
        "metric": cell.metric,
        "published": cell.mean,
        "std": cell.std,
        "preset": verdict.follows,
        "ours": None if ours is None else ours.value,
        "ours_std": None if ours is None else ours.deviation,
        "ours_over_seeds": None if ours is None else ours.over_seeds,
        "late": None if ours is None else ours.late,
        "seeds": [] if ours is None else list(ours.seeds),
        "chosen_on_test": ours is not None and ours.on_test,
        "validated": None if validated is None else validated.value,
        "verdict": verdict.outcome,
        "reason": verdict.reason,
        "number": cell.number.describe(),
    }
