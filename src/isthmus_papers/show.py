"""A recipe as it is shown: column by column beside ours; in words, on a terminal, for programs."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich import box
from rich.table import Table

from isthmus.report.tables.formats import DAGGER, MISSING
from isthmus_papers.conduct import guess_seconds, list_paces
from isthmus_papers.plan import group_columns, plan
from isthmus_papers.recipe import Preset, Recipe, TableCell
from isthmus_papers.verdict import (
    Outcome,
    Records,
    ReproducedNumber,
    Verdict,
    assess,
    choose_trials,
    describe_order,
)

MARKS: dict[Outcome, str] = {
    "reproduced": "●",
    "higher": "▲",
    "lower": "▼",
    "not run": "·",
    "cannot run": "×",
}
CHOSEN = "✓"  # of a method's trials
DIVERGED = "diverged"


class TableRow(NamedTuple):
    """One cell as it is shown."""

    method: str
    published: str
    ours: str
    seeds: str  # of those that were asked for
    validated: str
    released: str
    late: str
    swing: str  # of the evaluations whose mean that is
    difference: str
    mark: str
    outcome: str
    reason: str

    @property
    def is_run(self) -> bool:
        """Whether it was run."""
        return self.ours != MISSING or self.released != MISSING

    @property
    def beside(self) -> str:
        """What came out beside what is printed, for a sentence."""
        return f"{self.ours} here, {self.published} published"


# What a column shows of each method, by the names of fields: where one of them has it.
HEADS = {
    "published": "published",
    "ours": "ours",
    "seeds": "seeds",
    "validated": "validated",
    "released": "as released",
    "late": "late",
    "difference": "differs",
}


def list_heads(rows: Sequence[TableRow]) -> dict[str, str]:
    """List what is known of at least one row: field and title."""
    return {
        field: title
        for field, title in HEADS.items()
        if any(getattr(row, field) != MISSING for row in rows)
    }


class ColumnTable(NamedTuple):
    """The methods of one column by one metric: those that compete."""

    column: str
    metric: str
    rows: list[TableRow]
    ranking: str  # how far the order held; empty with fewer than two that were run

    @property
    def is_run(self) -> bool:
        """Whether any of its methods was run."""
        return any(row.is_run for row in self.rows)

    @property
    def heads(self) -> dict[str, str]:
        """List what is known of at least one method."""
        return list_heads(self.rows)


class PrintedTable(NamedTuple):
    """The columns of one metric of which nothing was run: what is printed, and nothing else."""

    metric: str
    columns: list[str]
    rows: Mapping[str, list[str]]  # by method


class RecipeSection(NamedTuple):
    """One recipe as it is shown."""

    recipe: Recipe
    numbers: list[str]  # which numbers these are
    columns: list[ColumnTable]
    reasons: list[str]  # why some cannot be met
    counts: Counter[str]

    @property
    def anchor(self) -> str:
        """Name its heading as a link to it does."""
        return re.sub(r"[^\w -]", "", self.recipe.title.lower()).replace(" ", "-")

    @property
    def run(self) -> list[ColumnTable]:
        """List the columns of which something was run."""
        return [column for column in self.columns if column.is_run]

    @property
    def printed(self) -> list[PrintedTable]:
        """List the other columns, one table for each metric."""
        others: dict[str, list[ColumnTable]] = {}
        for column in self.columns:
            if not column.is_run:
                others.setdefault(column.metric, []).append(column)
        tables = []
        for metric, columns in others.items():
            cells = [{row.method: f"{row.published} {row.mark}" for row in c.rows} for c in columns]
            methods = dict.fromkeys(method for column in cells for method in column)
            rows = {m: [column.get(m, MISSING) for column in cells] for m in methods}
            tables.append(PrintedTable(metric, [column.column for column in columns], rows))
        return tables


def build_section(
    recipe: Recipe, cells: Sequence[TableCell], records: Records, preset: Preset = "paper"
) -> RecipeSection:
    """Compare the cells of a recipe with the records."""
    by_cell = {cell: assess(cell, records, preset) for cell in cells}
    beside = {(c.column, c.metric): by_cell[c].judged for c in cells if c.method == "local"}
    columns = []
    for column in group_columns(cells):
        first, verdicts = column[0], [by_cell[cell] for cell in column]
        order = describe_order(verdicts, beside.get((first.column, first.metric)))
        shown = [e for e in verdicts if e.judged or e.failed or e.cell.mean is not None]
        best = choose_trials(verdicts, records).values()
        rows = [
            build_row(each)._replace(mark=CHOSEN) if each.cell in best else build_row(each)
            for each in shown
        ]
        if rows:
            columns.append(ColumnTable(first.column, first.metric, rows, order))
    outcomes = (each.outcome for each in by_cell.values() if each.cell.mean is not None)
    numbers, reasons = list(_describe_numbers(cells)), list(_list_reasons(cells))
    return RecipeSection(recipe, numbers, columns, reasons, Counter(outcomes))


def _describe_numbers(cells: Sequence[TableCell]) -> Iterator[str]:
    """Describe which numbers these are, and of those that are not the usual, where they stand."""
    by_metric: dict[str, dict[str, list[TableCell]]] = {}
    for cell in cells:
        by_metric.setdefault(cell.metric, {}).setdefault(cell.number.describe(), []).append(cell)
    for metric, numbers in by_metric.items():
        usual = max(numbers.values(), key=lambda there: len({cell.label for cell in there}))
        for number, there in numbers.items():
            where = "" if there is usual else _tell_apart(there, usual)
            named = "" if number.startswith(f"{metric} ") else metric
            before = ", ".join(filter(None, [named, where]))
            yield f"{before}: {number}" if before else number


def _tell_apart(some: Sequence[TableCell], others: Sequence[TableCell]) -> str:
    """Name the columns of some cells, or their methods where other methods share the columns."""
    columns, elsewhere = ({cell.column: None for cell in each} for each in (some, others))
    if not columns.keys() & elsewhere.keys():
        return f"in {'; '.join(columns)}"
    return f"of {'; '.join(sorted({cell.label for cell in some}))}"


def _list_reasons(cells: Sequence[TableCell]) -> Iterator[str]:
    """List each reason why some cannot be met once, and of which methods."""
    labels: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell.reason is not None:
            labels.setdefault(cell.reason, {})[cell.label] = None
    for reason, named in labels.items():
        yield f"{', '.join(named)}: {reason}"


def build_row(verdict: Verdict) -> TableRow:
    """Write the numbers of one cell."""
    cell, ours, judged = verdict.cell, verdict.ours, verdict.judged
    difference = verdict.difference
    digits = 2 if cell.number.unit in ("percent", "nats") and not cell.is_trial else 3
    over = cell.number.deviation
    published = MISSING if cell.mean is None else f"{cell.mean:.{digits}f}"
    if cell.mean is not None and cell.std is not None:
        published += f" ± {cell.std:.{digits}f}"
    is_beside, several = cell.mean is None, len(cell.seeds) > 1
    return TableRow(
        method=cell.label or cell.method,
        published=published,
        ours=DIVERGED if verdict.failed and ours is None else _spell(ours, digits, over),
        seeds=f"{len(judged.seeds)} of {len(cell.seeds)}" if judged and several else MISSING,
        validated=_spell(verdict.validated, digits, over),
        released=_spell(verdict.released, digits, over),
        late=MISSING if judged is None or judged.late is None else f"{judged.late:.{digits}f}",
        swing=MISSING if judged is None or judged.swing is None else f"{judged.swing:.{digits}f}",
        difference=MISSING if difference is None else f"{difference:+.{digits}f}",
        mark="" if is_beside else MARKS[verdict.outcome],
        outcome="" if is_beside else verdict.outcome,
        reason=verdict.reason,
    )


def _spell(number: ReproducedNumber | None, digits: int, over: str) -> str:
    if number is None:
        return MISSING
    spread = number.deviation if over == "clients" else number.over_seeds
    text = f"{number.value:.{digits}f}"
    text += "" if spread is None else f" ± {spread:.{digits}f}"
    return text + DAGGER if number.on_test else text


def describe_counts(counts: Mapping[str, int]) -> str:
    """Describe in a line how many numbers were run again, and how that went."""
    total = sum(counts.values())
    run = sum(counts.get(outcome, 0) for outcome in ("reproduced", "higher", "lower"))
    return (
        f"{run} of {total:,} published numbers run again: {counts.get('reproduced', 0)} "
        f"reproduced, {counts.get('higher', 0)} higher, {counts.get('lower', 0)} lower; "
        f"{counts.get('cannot run', 0)} cannot be met"
    )


def draw_section(section: RecipeSection) -> list[Table]:
    """Draw the cells of a recipe for a terminal of 80 columns: a table for each of its columns."""
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


def draw_list(
    recipes: Iterable[Recipe], records: Records, preset: Preset
) -> tuple[Table, Counter[str]]:
    """Draw all recipes for a terminal: their cells, what became of them, the hours of all runs.

    Return also what became of all cells together.
    """
    total: Counter[str] = Counter()
    paces = list_paces(records)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("recipe", no_wrap=True)
    for title in ("numbers", "●", "▲", "▼", "·", "×", "runs", "hours"):
        table.add_column(title, justify="right")
    for recipe in recipes:
        counts = Counter(assess(cell, records, preset).outcome for cell in recipe.cells)
        total += counts
        runs = plan([*recipe.cells, *recipe.runs], preset)
        seconds = [guess_seconds(run, records, paces) for run in runs]
        known = [each for each in seconds if each is not None]
        shown = f"{sum(known) / 3600:,.1f}" + ("+" if len(known) < len(runs) else "")
        numbers = [str(counts[outcome]) for outcome in MARKS]
        table.add_row(recipe.name, str(len(recipe.cells)), *numbers, str(len(runs)), shown)
    return table, total


def to_json(verdict: Verdict) -> dict[str, Any]:
    """Return a cell for programs."""
    cell, ours, validated = verdict.cell, verdict.judged, verdict.validated
    names = ("paper", "table", "column", "method", "label", "metric")
    return {name: getattr(cell, name) for name in names} | {
        "published": cell.mean,
        "std": cell.std,
        "preset": verdict.follows,
        "ours": ours and ours.value,
        "ours_std": ours and ours.deviation,
        "ours_over_seeds": ours and ours.over_seeds,
        "late": ours and ours.late,
        "seeds": list(ours.seeds) if ours else [],
        "chosen_on_test": ours is not None and ours.on_test,
        "validated": validated and validated.value,
        "verdict": verdict.outcome,
        "reason": verdict.reason,
        "number": cell.number.describe(),
    }
