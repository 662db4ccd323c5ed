"""The tables of a run, as text files that anything can read.

Every table begins with the experiment in lines that start with "#". isthmus.run.schema has the
columns; docs/records.md says when each table is written. The store keeps the same rows, as values,
with the state they belong to; the tables are written anew when a run is resumed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from isthmus.context import CallOutcome
from isthmus.data.federation import Federation
from isthmus.evaluation import Evaluation, Score
from isthmus.metrics.calibration import BINS
from isthmus.ranges import Calibration
from isthmus.run.cells import format_lines
from isthmus.run.schema import TABLES, RecordColumn, names
from isthmus.system.files import append_text, write_text

# The rows that tables get, by the table's name: a value for each of its columns, None for nothing.
TableRows: TypeAlias = Mapping[str, Collection[Sequence[Any]]]

BLOCK = 10_000  # rows that are written at a time

OF_A_ROUND = (
    "calls",
    "notes",
    "reliability",
    "clients",
    "rounds",
)  # the last one says that all are there


class Cost(NamedTuple):
    """What one round cost: a row of rounds.csv."""

    round: int  # counted from 1
    lr: float
    asked: int
    answered: int
    down_bytes: int
    up_bytes: int
    head_variance: float | None
    train_seconds: float
    evaluate_seconds: float


class TableWriter:
    """Writes the tables of one run into its directory."""

    def __init__(
        self,
        path: Path,
        experiment: str,
        federation: Federation,
        calibration: Calibration,
        kinds: Sequence[str] = (),
        evaluated: Collection[int] | None = None,
    ):
        self._path = path
        self._experiment = experiment
        self._per_batch = calibration == "per-batch"
        there = {"kind": kinds, "evaluated": evaluated, "name": federation.names}
        absent = [name for name, given in there.items() if not given]
        self._begin("federation", _clients_of(federation, kinds, evaluated), absent)
        self._begin("notes", ((0, note) for note in federation.notes))
        for table in ("rounds", "clients", "reliability"):
            self._begin(table)
        (path / "calls.csv").unlink(missing_ok=True)  # written anew, as all are

    def add(self, rows: TableRows) -> None:
        """Adds one round's rows."""
        if rows.get("calls") and not (self._path / "calls.csv").exists():
            self._begin("calls")  # where clients always answer there is no such table
        for table in OF_A_ROUND if rows.get("calls") else OF_A_ROUND[1:]:
            # Opened for each round: a full disk shows here, and closing has nothing left to write.
            for block in split_rows(rows[table]):
                append_text(self._path / f"{table}.csv", _text(TABLES[table], block))

    def _begin(
        self, table: str, rows: Iterable[Sequence[Any]] = (), absent: Sequence[str] = ()
    ) -> None:
        text = table_text(self._experiment, table, rows, absent, self._per_batch)
        write_text(self._path / f"{table}.csv", text)


def round_rows(
    cost: Cost,
    evaluation: Evaluation | None,
    notes: Iterable[str] = (),
    outcomes: Iterable[CallOutcome] = (),
    withheld: Collection[int] = (),
) -> TableRows:
    """Lists what one finished round and, where there was one, its evaluation add to the tables."""
    bins = [] if evaluation is None else list(_rows_of_bins(cost.round, evaluation.scores))
    return {
        "rounds": [cost],
        "clients": [] if evaluation is None else ScoreRows(cost.round, evaluation, withheld),
        "notes": [(cost.round, note) for note in notes],
        "calls": [(cost.round, *outcome) for outcome in outcomes],
        "reliability": bins,
    }


class ScoreRows(Collection[tuple[Any, ...]]):
    """The rows of an evaluation, made when they are looked at: they take ten times its memory."""

    def __init__(self, round: int, evaluation: Evaluation, withheld: Collection[int] = ()):
        self._round, self._evaluation, self._withheld = round, evaluation, withheld

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yields the clients' rows and then, where there is one, that of the server's test set."""
        for row in _rows_of_scores(self._round, self._evaluation.scores):
            if row[1] not in self._withheld:
                yield row
        if self._evaluation.server is not None:
            figures = (figure.item() for figure in self._evaluation.server)
            yield self._round, "server", "shared", (), "test", *figures

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, row: object) -> bool:
        return any(row == other for other in self)


def split_rows(rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    """Yields rows some at a time.

    >>> [len(block) for block in split_rows([()] * 10_001)]
    [10000, 1]
    """
    left = iter(rows)
    while block := list(islice(left, BLOCK)):
        yield block


def newcomer_rows(
    joined: Sequence[Any], each: Iterable[tuple[int | None, tuple[Score, ...]]]
) -> TableRows:
    """Lists how clients did that took part in no round; `joined` says when, whence, after what."""
    rows = [
        (*joined, *row)
        for shots, scores in each
        for row in _rows_of_scores("all" if shots is None else str(shots), scores)
    ]
    return {"newcomers": rows}


def table_text(
    experiment: str,
    table: str,
    rows: Iterable[Sequence[Any]],
    absent: Sequence[str] = (),
    per_batch: bool = False,
) -> str:
    """Writes a table: the experiment in lines that start with "#", columns' names, rows."""
    head = "".join(f"# {line}".rstrip() + "\n" for line in experiment.splitlines())
    columns = [column for column in TABLES[table] if column.name not in absent]
    return head + format_lines([names(columns, per_batch)]) + _text(columns, rows)


def _text(columns: Sequence[RecordColumn], rows: Iterable[Sequence[Any]]) -> str:
    cells = [_cell(column) for column in columns]
    return format_lines(
        [cell(value) for cell, value in zip(cells, row, strict=True)] for row in rows
    )


def _cell(column: RecordColumn) -> Callable[[Any], Any]:
    """Says how a column's values are written; None is an empty text."""
    digits = column.format
    if column.type is tuple:
        return lambda values: " ".join([format(value, digits) for value in values or ()])
    if digits:
        return lambda value: None if value is None else format(value, digits)
    return lambda value: value


def _clients_of(
    federation: Federation, kinds: Sequence[str], evaluated: Collection[int] | None
) -> Iterator[tuple[Any, ...]]:
    sample = set(evaluated or ())
    for i in range(len(federation)):
        name = federation.name(i)
        sampled = ["yes" if i in sample else "no"] if sample else []
        others = (*kinds[i : i + 1], *sampled, *([] if name is None else [name]))
        yield i, *federation.count_holdings(i), *others


def _rows_of_scores(first: Any, scores: Iterable[Score]) -> Iterator[tuple[Any, ...]]:
    """Lists one row per client or, along a path, one per client and point."""
    for model, split, clients, at, figures, _ in scores:
        places = at if at.ndim == 3 else at[:, None]
        numbers = [c if c.ndim == 2 else c[:, None] for c in figures]
        for begin in range(0, len(clients), BLOCK):
            some = slice(begin, begin + BLOCK)  # lists of numbers are much larger than arrays
            columns = [column[some].tolist() for column in (clients, places, *numbers)]
            for i, points, *each in zip(*columns, strict=True):
                for point, *values in zip(points, *each, strict=True):
                    yield first, i, model, point, split, *values


def _rows_of_bins(round: int, scores: Iterable[Score]) -> Iterator[tuple[Any, ...]]:
    for model, split, _, _, _, pooled in scores:
        if pooled is not None:
            for b, (n, *sums) in enumerate(zip(*(c.tolist() for c in pooled.bins), strict=True)):
                means = [value / n if n else None for value in sums]
                yield round, model, split, b + 1, b / BINS, (b + 1) / BINS, n, *means
