"""The tables of a run: CSV files that anything can read, to which every round appends its rows.

Every table begins with the experiment in lines that start with "#". isthmus.run.schema has the
columns; docs/records.md describes when each table is written. The rows are in these files alone;
the database counts the bytes that belong to rounds that were committed.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from isthmus.context import RunContext
from isthmus.errors import IsthmusError
from isthmus.evaluation import Evaluation, Score
from isthmus.metrics.metric import BINS
from isthmus.run.cells import format_lines, parse_lines
from isthmus.run.columns import read_blocks
from isthmus.run.schema import TABLES, RecordColumn, names
from isthmus.system.files import encode_text, explain_unwritable, overwrite, write_text

if TYPE_CHECKING:
    from isthmus.run.store import RoundUpdate

# The rows that tables get, by the table's name: a value for each of its columns, None for nothing.
TableRows: TypeAlias = Mapping[str, Iterable[Sequence[Any]]]
# The bytes of rows that each table has; None: its file counts as it is.
TableSizes: TypeAlias = dict[str, int | None]

BLOCK = 10_000  # rows that are written at a time
# The tables that rounds append to. The last one tells readers that all rows of a round are there.
OF_A_ROUND = ("calls", "notes", "reliability", "clients", "rounds")


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
    """The tables of one run in its directory.

    A round's rows are on disk before the transaction that commits the round, and `sizes` is a part
    of that transaction. What a killed process wrote of a round that was not committed is cut off
    when the tables are opened again.
    """

    def __init__(
        self,
        path: Path,
        experiment: str,
        setting: RunContext,
        commit: Callable[[TableSizes], None],
        *,
        sync: bool = True,
    ):
        self._path = path
        self._experiment = experiment
        self._setting = setting
        self._commit = commit  # writes sizes into the database
        self._sync = sync  # wait until rows are on the disk
        self.sizes: TableSizes = {}

    def open(self, sizes: TableSizes) -> None:
        """Open the tables to append to them; those of a new run, without sizes, are created."""
        rows = federation_rows(self._setting)
        absent = [k for k, value in enumerate(rows[0]) if value is None]
        there = [[v for k, v in enumerate(row) if k not in absent] for row in rows]
        columns = [TABLES["federation"][k].name for k in absent]
        text = table_text(self._experiment, "federation", there, columns)
        write_text(self._path / "federation.csv", text)
        self.sizes = dict(sizes)
        for table in OF_A_ROUND:
            path = self._path / f"{table}.csv"
            if table in sizes:
                if self._cut(path, sizes[table]) != encode_text(self._head(table)):
                    self.rewrite(table)
            elif table == "calls":  # where clients always answer there is no such table
                path.unlink(missing_ok=True)
            else:
                self._create(table)
        if "notes" not in sizes:
            self._append("notes", ((0, note) for note in self._setting.federation.notes))

    def append(self, rows: TableRows) -> None:
        """Append the rows of a round."""
        for table in OF_A_ROUND:
            if rows.get(table):
                if table not in self.sizes:
                    self._create(table)
                self._append(table, rows[table])

    def rewrite(
        self,
        table: str,
        drop: Callable[[Sequence[str]], bool] = lambda row: False,
        more: Collection[Sequence[Any]] = (),
    ) -> int:
        """Write a table again, without some of its rows and with more; return how many it lost.

        Columns that the file lacks, since an earlier version wrote it, are empty.
        """
        path, gone = self._path / f"{table}.csv", 0
        if not path.is_file() and not more:
            return 0
        if table in self.sizes:
            self._commit(self.sizes | {table: None})
        text = self._head(table)
        header, head = parse_lines(text.splitlines()[-1:])[0], encode_text(text)
        with overwrite(path, sync=self._sync) as file:
            file.write(head)
            for block in read_blocks(path, ()) if path.is_file() else ():
                lines = len(next(iter(block.values())))
                cells = [block.get(name, [""] * lines) for name in header]
                kept = [row for row in zip(*cells, strict=True) if not drop(row)]
                gone += lines - len(kept)
                file.write(encode_text(format_lines(kept)))
            file.write(encode_text(_text(TABLES[table], more)))
        if table in self.sizes:
            self.sizes[table] = path.stat().st_size - len(head)
            self._commit(self.sizes)
        return gone

    def _append(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        path = self._path / f"{table}.csv"
        # Opened for each round: a full disk shows here, and closing has nothing left to write.
        with explain_unwritable(path), path.open("ab") as file:
            left = iter(rows)
            while block := list(islice(left, BLOCK)):
                data = encode_text(_text(TABLES[table], block))
                file.write(data)
                self.sizes[table] = (self.sizes[table] or 0) + len(data)
            file.flush()
            if self._sync:
                os.fsync(file.fileno())

    def _create(self, table: str) -> None:
        write_text(self._path / f"{table}.csv", self._head(table))
        self.sizes[table] = 0

    def _cut(self, path: Path, size: int | None) -> bytes:
        """Cut off what follows the committed rows; return the file's head."""
        head = _read_head(path) if path.is_file() else b""
        if head:
            with explain_unwritable(path), path.open("rb+") as file:
                end = file.seek(0, os.SEEK_END) if size is None else len(head) + size
                file.seek(end - 1)
                if file.read(1) == b"\n":
                    file.truncate(end)
                    self.sizes[path.stem] = end - len(head)
                    return head
        raise IsthmusError(
            f"{path} has lost rows of rounds that are done, or another program changed it; "
            "restore it from a copy, or start the run again in a new directory"
        )

    def _head(self, table: str) -> str:
        per_batch = self._setting.task.calibration == "per-batch"
        return table_text(self._experiment, table, per_batch=per_batch)


def round_rows(update: "RoundUpdate") -> TableRows:
    """Return what a round and, where there was one, its evaluation add to the tables."""
    number, evaluation, withheld = update.cost.round, update.evaluation, update.withheld
    return {
        "rounds": [update.cost],
        "clients": [] if evaluation is None else evaluation_rows(number, evaluation, withheld),
        "notes": [(number, note) for note in update.notes],
        "calls": [(number, *outcome) for outcome in update.outcomes],
        "reliability": [] if evaluation is None else bin_rows(number, evaluation.scores),
    }


def newcomer_rows(
    joined: Sequence[Any], each: Iterable[tuple[int | None, tuple[Score, ...]]]
) -> list[Sequence[Any]]:
    """Return the rows of newcomers; `joined` is when they joined, from where, after what."""
    return [
        (*joined, *row)
        for shots, scores in each
        for row in _score_rows("all" if shots is None else str(shots), scores)
    ]


def table_text(
    experiment: str,
    table: str,
    rows: Iterable[Sequence[Any]] = (),
    absent: Sequence[str] = (),
    per_batch: bool = False,
) -> str:
    """Return a table: the experiment in lines that start with "#", columns' names, rows."""
    columns = [column for column in TABLES[table] if column.name not in absent]
    comment = "".join(f"# {line}".rstrip() + "\n" for line in experiment.splitlines())
    return comment + format_lines([names(columns, per_batch)]) + _text(columns, rows)


def _read_head(path: Path) -> bytes:
    """Read the lines of the experiment and of the columns' names, as they are in a file."""
    lines = []
    with path.open("rb") as file:
        for line in file:
            lines.append(line)
            if not line.startswith(b"#"):
                break
    return b"".join(lines)


def _text(columns: Sequence[RecordColumn], rows: Iterable[Sequence[Any]]) -> str:
    cells = [_cell(column) for column in columns]
    return format_lines(
        [cell(value) for cell, value in zip(cells, row, strict=True)] for row in rows
    )


def _cell(column: RecordColumn) -> Callable[[Any], Any]:
    """Return what writes a column's values; None is an empty text."""
    digits = column.format
    if column.type is tuple:
        return lambda values: " ".join([format(value, digits) for value in values or ()])
    if digits:
        return lambda value: None if value is None else format(value, digits)
    return lambda value: value


def federation_rows(setting: RunContext) -> list[Sequence[Any]]:
    """Return a row for each client; a column that no client has a value for is None."""
    federation, networks = setting.federation, setting.method.networks().names
    sample = set(setting.evaluated or ())
    # The kind of a client is its second network, by its name and, where names repeat, its number.
    kinds = [f"{n} #{k}" if networks.count(n) > 1 else n for k, n in enumerate(networks, 1)]
    return [
        (
            i,
            *federation.count_holdings(i),
            kinds[setting.kind(i)] if len(kinds) > 1 else None,
            ("yes" if i in sample else "no") if sample else None,
            federation.name(i),
        )
        for i in range(len(federation))
    ]


def evaluation_rows(
    number: int, evaluation: Evaluation, withheld: Collection[int] = ()
) -> Iterator[Sequence[Any]]:
    """Yield the clients' rows and then, where there is one, that of the server's test set."""
    for row in _score_rows(number, evaluation.scores):
        if row[1] not in withheld:
            yield row
    if evaluation.server is not None:
        yield number, "server", "shared", (), "test", *(f.item() for f in evaluation.server)


def _score_rows(first: Any, scores: Iterable[Score]) -> Iterator[tuple[Any, ...]]:
    """Yield one row per client or, along a path, one per client and point."""
    for model, split, clients, at, figures, _ in scores:
        places = at if at.ndim == 3 else at[:, None]
        numbers = [c if c.ndim == 2 else c[:, None] for c in figures]
        for begin in range(0, len(clients), BLOCK):
            some = slice(begin, begin + BLOCK)  # lists of numbers are much larger than arrays
            columns = [column[some].tolist() for column in (clients, places, *numbers)]
            for i, points, *each in zip(*columns, strict=True):
                for point, *values in zip(points, *each, strict=True):
                    yield first, i, model, point, split, *values


def bin_rows(round: int, scores: Iterable[Score]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of reliability.csv."""
    for model, split, _, _, _, pooled in scores:
        if pooled is not None:
            for b, (n, *sums) in enumerate(zip(*(c.tolist() for c in pooled.bins), strict=True)):
                means = [value / n if n else None for value in sums]
                yield round, model, split, b + 1, b / BINS, (b + 1) / BINS, n, *means
