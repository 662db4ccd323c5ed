"""Published numbers beside ours: for a terminal, for programs, as a page and as a document."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich import box
from rich.table import Table

from isthmus.report.tables.formats import DAGGER, MISSING
from isthmus.report.templates import render
from isthmus.reproduction.cost import guess_hours
from isthmus.reproduction.plan import group_columns, plan
from isthmus.reproduction.recipe import Preset, Recipe, TableCell, list_cells
from isthmus.reproduction.verdict import Outcome, Ranking, Records, Remade, Verdict, judge, rank

MARKS: dict[Outcome, str] = {
    "reproduced": "●",
    "higher": "▲",
    "lower": "▼",
    "not run": "·",
    "cannot run": "×",
}
LEGEND = (
    "published ± as printed; ours chosen as the paper chooses († on test data) and on validation "
    "data; late: mean of the last ten evaluations. ● reproduced: within a point, or twice the "
    "deviation over seeds; ▲ higher; ▼ lower; · not run; × cannot run"
)


class TableRow(NamedTuple):
    """One cell as it is shown."""

    column: str
    method: str
    metric: str
    published: str
    ours: str
    validated: str
    late: str
    difference: str
    mark: str
    outcome: str
    reason: str


class RecipeSection(NamedTuple):
    """One recipe as it is shown."""

    name: str
    title: str
    note: str
    numbers: tuple[str, ...]  # which numbers these are
    rows: tuple[TableRow, ...]
    rankings: tuple[str, ...]
    reasons: tuple[str, ...]  # why some cannot be met
    counts: Mapping[str, int]


def build_section(
    recipe: Recipe, cells: Sequence[TableCell], records: Records, preset: Preset = "paper"
) -> RecipeSection:
    """Holds the cells of a recipe against the records."""
    by_cell = {cell: judge(cell, records, preset) for cell in cells}
    verdicts = list(by_cell.values())
    beside = {(c.column, c.metric): by_cell[c].ours for c in cells if c.method == "local"}
    rankings = []
    for column in group_columns(cells):
        first = column[0]
        ranking = rank([by_cell[cell] for cell in column], beside.get((first.column, first.metric)))
        if ranking is not None and ranking.methods > 1:
            rankings.append(describe_ranking(first, ranking))
    numbers = dict.fromkeys(cell.number.describe() for cell in cells)
    return RecipeSection(
        recipe.name,
        recipe.title,
        recipe.note,
        tuple(numbers),
        tuple(build_row(each) for each in verdicts if each.ours or each.cell.mean is not None),
        tuple(rankings),
        tuple(dict.fromkeys(f"{c.label}: {c.reason}" for c in cells if c.reason is not None)),
        Counter(verdict.outcome for verdict in verdicts if verdict.cell.mean is not None),
    )


def build_row(verdict: Verdict) -> TableRow:
    """Spells the numbers of one cell."""
    cell, ours = verdict.cell, verdict.ours
    difference = verdict.difference
    digits = 2 if cell.number.unit in ("percent", "nats") else 3
    over = cell.number.deviation
    published = MISSING if cell.mean is None else f"{cell.mean:.{digits}f}"
    if cell.mean is not None and cell.std is not None:
        published += f" ± {cell.std:.{digits}f}"
    measured = cell.mean is None and ours is not None
    return TableRow(
        column=cell.column,
        method=cell.label or cell.method,
        metric=cell.metric,
        published=published,
        ours=_spell(ours, digits, over),
        validated=_spell(verdict.validated, digits, over),
        late=MISSING if ours is None or ours.late is None else f"{ours.late:.{digits}f}",
        difference=MISSING if difference is None else f"{difference:+.{digits}f}",
        mark="" if measured else MARKS[verdict.outcome],
        outcome="" if measured else verdict.outcome,
        reason=verdict.reason,
    )


def _spell(number: Remade | None, digits: int, over: str) -> str:
    if number is None:
        return MISSING
    spread = number.over_seeds if over == "seeds" else number.deviation
    text = f"{number.value:.{digits}f}"
    text += "" if spread is None else f" ± {spread:.{digits}f}"
    return text + DAGGER if number.on_test else text


def describe_ranking(cell: TableCell, ranking: Ranking) -> str:
    """Says in a line how far the order of the methods in a column held."""
    tau = "" if ranking.tau is None else f"Kendall's tau {ranking.tau:.2f}; "
    winner = (
        f"{ranking.winner} first in both"
        if ranking.winner == ranking.our_winner
        else f"first: {ranking.winner} as published, {ranking.our_winner} here"
    )
    text = f"{cell.column}, {cell.metric}, {ranking.methods} methods: {tau}{winner}"
    if ranking.above_local is not None:
        theirs, ours = ranking.above_local
        text += f"; above training alone: {theirs} as published, {ours} here"
    return text


def draw_section(section: RecipeSection) -> list[Table]:
    """Draws the cells of a recipe for a terminal of 80 columns: a table for each of its columns."""
    columns: dict[str, Table] = {}
    for row in section.rows:
        name = f"{row.column}: {row.metric}"
        if name not in columns:
            table = columns[name] = Table(title=name, box=box.SIMPLE_HEAD, title_justify="left")
            table.add_column("")
            table.add_column("method", no_wrap=True)
            for title in ("published", "ours", "validated", "late", "differs"):
                table.add_column(title, justify="right", no_wrap=True)
        numbers = (row.published, row.ours, row.validated, row.late, row.difference)
        columns[name].add_row(row.mark, row.method, *numbers)
    return list(columns.values())


def draw_list(recipes: Iterable[Recipe], records: Records, preset: Preset) -> Table:
    """Draws all recipes for a terminal: their cells, what became of them, the hours of all runs."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("recipe", no_wrap=True)
    for title in ("numbers", "●", "▲", "▼", "·", "×", "runs", "hours"):
        table.add_column(title, justify="right")
    for recipe in recipes:
        counts = Counter(judge(cell, records, preset).outcome for cell in recipe.cells)
        runs = plan([*recipe.cells, *recipe.runs], preset)
        hours = [guess_hours(run.experiment, records.get(run.identity)) for run in runs]
        known = [each for each in hours if each is not None]
        shown = f"{sum(known):,.1f}" + ("+" if len(known) < len(hours) else "")
        numbers = [str(counts[outcome]) for outcome in MARKS]
        table.add_row(recipe.name, str(len(recipe.cells)), *numbers, str(len(runs)), shown)
    return table


def list_rows(cells: Iterable[TableCell], records: Records, preset: Preset) -> list[dict[str, Any]]:
    """Lists cells for programs."""
    return [_to_json(judge(cell, records, preset)) for cell in cells]


def _to_json(verdict: Verdict) -> dict[str, Any]:
    cell, ours, validated = verdict.cell, verdict.ours, verdict.validated
    return {
        "paper": cell.paper,
        "table": cell.table,
        "column": cell.column,
        "method": cell.method,
        "label": cell.label,
        "metric": cell.metric,
        "published": cell.mean,
        "std": cell.std,
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


def count_outcomes(records: Records, preset: Preset = "paper") -> Counter[str]:
    """Counts all published numbers by what became of them."""
    return Counter(judge(cell, records, preset).outcome for cell in list_cells())


def describe_counts(counts: Mapping[str, int]) -> str:
    """Says in a line how many numbers were run again, and how that went."""
    total = sum(counts.values())
    run = sum(counts.get(outcome, 0) for outcome in ("reproduced", "higher", "lower"))
    return (
        f"{run} of {total:,} published numbers run again: {counts.get('reproduced', 0)} "
        f"reproduced, {counts.get('higher', 0)} higher, {counts.get('lower', 0)} lower; "
        f"{counts.get('cannot run', 0)} cannot be met"
    )


def render_page(sections: Sequence[RecipeSection], suffix: str) -> str:
    """Renders sections as a page (html) or a document (md)."""
    total: Counter[str] = Counter()
    for section in sections:
        total.update(section.counts)
    return render(
        f"reproduction.{suffix}",
        sections=sections,
        summary=describe_counts(total),
        legend=LEGEND,
    )
