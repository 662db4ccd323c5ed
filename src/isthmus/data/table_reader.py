"""A table in a file, CSV or Parquet, read in blocks of rows as columns of text."""

import csv
import reprlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.errors import IsthmusError

BLOCK = 20_000  # rows that are in memory as text
DELIMITERS = ",;\t|"

Cells = list[str]


class Sheet(NamedTuple):
    """A table's header, and its rows as often as they are wanted; "" stands for an empty cell."""

    path: Path
    delimiter: str  # of a CSV file; empty: the one its first line has most of
    header: tuple[str, ...]  # some may have no name

    def blocks(self, columns: Sequence[str]) -> Iterator[tuple[int, list[Cells]]]:
        """Yields the number of a block's first row, counted from 1, and the cells by column."""
        places = [self.header.index(name) for name in columns]
        rows = _rows(self.path, self.delimiter)
        next(rows, None)
        first: int = 1
        block: list[list[str]] = []
        for row in rows:
            block.append([row[place] for place in places])
            if len(block) == BLOCK:
                yield first, [list(column) for column in zip(*block, strict=True)]
                first, block = first + BLOCK, []
        if block:
            yield first, [list(column) for column in zip(*block, strict=True)]


def opened(path: Path, delimiter: str = "") -> Sheet:
    """Reads a table's header."""
    if len(delimiter) > 1:
        raise IsthmusError(
            f"delimiter={delimiter!r}; expected one letter; for example --set \"delimiter=';'\""
        )
    header = next(_rows(path, delimiter), [])
    named = [name for name in header if name]
    wrong = "has no header" if not named else None
    for name in named:
        if named.count(name) > 1:
            wrong = f"has two columns {name!r}"
        elif not name.isprintable():
            wrong = f"has a column {reprlib.repr(name)}"
    if wrong:
        raise IsthmusError(
            f"{path} {wrong}; expected a first line that names every column; rename it"
        )
    return Sheet(path, delimiter, tuple(header))


def _rows(path: Path, delimiter: str) -> Iterator[list[str]]:
    """Yields the header, then the rows."""
    return _of_parquet(path) if path.suffix.lower() == ".parquet" else _of_csv(path, delimiter)


def _of_csv(path: Path, delimiter: str) -> Iterator[list[str]]:
    line, width = 0, None
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            delimiter = delimiter or max(DELIMITERS, key=file.readline().count)
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True, strict=True)
            for row in reader:
                line = reader.line_num
                if width is None:
                    row = [name.strip() for name in row]
                    width = len(row)
                if row and len(row) != width:
                    raise IsthmusError(
                        f"{path} has {len(row)} fields in line {line}; expected {width}, as in its "
                        "first line; mend the line, or set delimiter"
                    )
                if row:
                    yield row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise IsthmusError(
            f"{path} cannot be read after line {line} ({reason}); expected a CSV file in UTF-8; "
            "save it as one"
        ) from None


def _of_parquet(path: Path) -> Iterator[list[str]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise IsthmusError(
            f"{path} needs pyarrow; expected it to be installed; pip install 'isthmus[tables]'"
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            yield [name.strip() for name in file.schema_arrow.names]
            for batch in file.iter_batches(BLOCK):
                columns = [column.to_pylist() for column in batch.columns]
                for row in zip(*columns, strict=True):
                    yield [_text(cell) for cell in row]
    except Exception as error:  # what a damaged file makes a reader raise is anybody's guess
        raise IsthmusError(
            f"{path} cannot be read ({' '.join(str(error).split())[:160]}); expected a Parquet "
            "file of numbers and texts; write it again"
        ) from None


def numbers(sheet: Sheet, name: str, first: int, cells: Cells) -> NDArray[np.float64]:
    """Turns cells into finite numbers."""
    values = floats(words(sheet, name, first, cells))
    if values is None or not np.isfinite(values).all():
        wrong = next(i for i, cell in enumerate(cells) if not is_number(cell))
        raise IsthmusError(
            f"{sheet.path} has {reprlib.repr(cells[wrong])} in column {name!r}, row "
            f"{first + wrong}; expected a number as in other rows; mend it, delete the row, or "
            f"leave the column out with --set drop={name}"
        )
    return values


def words(sheet: Sheet, name: str, first: int, cells: Cells) -> Cells:
    """Refuses empty cells."""
    empty = next((i for i, cell in enumerate(cells) if not cell.strip()), None)
    if empty is not None:
        raise IsthmusError(
            f"{sheet.path} has nothing in column {name!r}, row {first + empty}; expected a value; "
            f"fill it, delete the row, or leave the column out with --set drop={name}"
        )
    return cells


def floats(cells: Cells) -> NDArray[np.float64] | None:
    """Turns cells into numbers, if all of them are any."""
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return None


def is_number(cell: str) -> bool:
    """Tells whether a cell is a finite number."""
    values = floats([cell])
    return values is not None and bool(np.isfinite(values).all())


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool | int | float | str):
        return str(cell)
    raise ValueError(f"a cell holds {type(cell).__name__}, which is neither number nor text")
