"""Reads a table in a file, CSV or Parquet, as columns of numbers and of words.

A file is read once, in blocks so small that their text stays in the processor's cache: that makes
it several times faster than large ones, and as fast as need be without another library.
"""

import csv
import io
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from isthmus.data.own.cells import Cells, Texts
from isthmus.errors import IsthmusError
from isthmus.system.files import open_regular
from isthmus.system.machine import free_memory

BLOCK = 256  # rows that are in memory as text
CHECK_EVERY = 1000  # blocks, whether there is memory for more
DELIMITERS = ",;\t|"


class TableFile(NamedTuple):
    """A table's file and its header."""

    path: Path
    delimiter: str  # of a CSV file; empty: the one its first line has most of
    header: Mapping[str, int]  # where each column is, in their order; some may have no name


def open_table(path: Path, delimiter: str = "") -> TableFile:
    """Reads a table's header."""
    if len(delimiter) > 1:
        raise IsthmusError(
            f"delimiter={delimiter!r}; expected one letter; for example --set \"delimiter=';'\""
        )
    header = next(_blocks(path, delimiter), [])
    names = [name for (name,) in header if name]
    counts = Counter(names)
    wrong = "has no header" if not names else None
    for name in names:
        if counts[name] > 1:
            wrong = f"has two columns {name!r}"
        elif not name.isprintable():
            wrong = f"has a column {reprlib.repr(name)}"
    if wrong:
        raise IsthmusError(
            f"{path} {wrong}; expected a first line that names every column; rename it"
        )
    return TableFile(path, delimiter, {name: place for place, (name,) in enumerate(header)})


def read_columns(
    table: TableFile,
    words: Sequence[str],
    inputs: Sequence[str],
    most: int,
    missing_values: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Mapping[str, Cells]:
    """Reads columns by name: some as words, and `inputs`, as numbers or `most` different words.

    `missing_values` are, by column, what stands for no value beside what everybody writes so.
    """
    wanted: dict[str, int | None] = {**dict.fromkeys(words), **dict.fromkeys(inputs, most)}
    columns = {
        name: Cells(table.path, name, count, count is not None, missing_values.get(name, ()))
        for name, count in wanted.items()
    }
    blocks = _blocks(table.path, table.delimiter)
    next(blocks, None)
    rows = 0
    for number, block in enumerate(blocks, start=1):
        for name, cells in columns.items():
            cells.add(block[table.header[name]])
        rows += len(block[0])
        if number % CHECK_EVERY == 0:
            check_memory(table, rows, len(inputs))
    return columns


def read_rows(table: TableFile) -> Iterator[tuple[str, ...]]:
    """Yields the rows of a table as texts, the header first."""
    for block in _blocks(table.path, table.delimiter):
        yield from zip(*block, strict=True)


def check_memory(table: TableFile, rows: int, columns: int) -> None:
    """Refuses to make inputs of so many rows and columns where memory does not hold them."""
    needed, free = 12 * rows * columns, free_memory()
    if free is not None and needed > free:
        raise IsthmusError(
            f"{table.path} needs {needed / 1e6:,.0f} MB, {free / 1e6:,.0f} MB are free; "
            "expected it to fit; lower categories, or drop columns"
        )


def _blocks(path: Path, delimiter: str) -> Iterator[list[Texts]]:
    """Yields the header, then the rows, some at a time: by column, a text per row."""
    parquet = path.suffix.lower() == ".parquet"
    return _parquet_blocks(path) if parquet else _csv_blocks(path, delimiter)


def _csv_blocks(path: Path, delimiter: str) -> Iterator[list[Texts]]:
    line = 0
    try:
        with io.TextIOWrapper(open_regular(path), "utf-8-sig", newline="") as file:
            delimiter = delimiter or max(DELIMITERS, key=file.readline().count)
            file.seek(0)
            header, line = next(_read_rows(file, delimiter), ([], 0))
            if header:
                yield [[name.strip()] for name in header]
            while True:
                lines: list[str] = []
                rest: Iterator[str] = file
                try:
                    lines.extend(islice(file, BLOCK))
                except UnicodeDecodeError as error:
                    rest = _fail(error)  # after the lines before it
                if rest is file and not lines:
                    return
                block = _split(lines, delimiter, len(header)) if rest is file else None
                if block is None:
                    rows, start = [], line
                    for row, count in _read_rows(chain(lines, rest), delimiter):
                        line = start + count
                        if len(row) == len(header):
                            rows.append(row)
                        elif row:
                            raise IsthmusError(
                                f"{path} has {len(row)} fields in line {line}; expected "
                                f"{len(header)}, as in its first line; mend the line, or set "
                                "delimiter"
                            )
                        if rest is file and count >= len(lines):
                            break
                    block = list(zip(*rows, strict=True))
                else:
                    line += len(lines)
                if block:
                    yield block
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise IsthmusError(
            f"{path} cannot be read after line {line} ({reason}); expected a CSV file in UTF-8; "
            "save it as one"
        ) from None


def _read_rows(lines: Iterator[str], delimiter: str) -> Iterator[tuple[list[str], int]]:
    """Reads row by row, and counts the lines so far."""
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    for row in reader:
        yield row, reader.line_num


def _split(lines: Sequence[str], delimiter: str, width: int) -> list[Texts] | None:
    """Splits plain lines into columns, all at once, as csv does row by row.

    None where there are quotes, or spaces to skip, or a line that has not as many fields.
    """
    text = delimiter.join(lines)
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    spaces = text[0] == " " or f"{delimiter} " in text
    if width < 2 or '"' in text or "\r" in text or spaces:
        return None
    cells = text.split(delimiter)
    # a line ends in its last field: where all do, every line has as many
    last = "".join(cells[width - 1 :: width]).removesuffix("\n").split("\n")
    if len(cells) != len(lines) * width or len(last) != len(lines):
        return None
    limit = csv.field_size_limit()
    if len(text) > limit and max(map(len, cells)) > limit:
        return None
    return [*(cells[place::width] for place in range(width - 1)), last]


def _fail(error: Exception) -> Iterator[str]:
    raise error
    yield ""


def _parquet_blocks(path: Path) -> Iterator[list[Texts]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise IsthmusError(
            f"{path} needs pyarrow; expected it to be installed; pip install 'isthmus[tables]'"
        ) from None
    try:
        open_regular(path).close()
        with parquet.ParquetFile(path) as file:
            yield [[name.strip()] for name in file.schema_arrow.names]
            for batch in file.iter_batches(BLOCK):
                yield [[_text(cell) for cell in column.to_pylist()] for column in batch.columns]
    except Exception as error:  # what a damaged file makes a reader raise is anybody's guess
        raise IsthmusError(
            f"{path} cannot be read ({' '.join(str(error).split())[:160]}); expected a Parquet "
            "file of numbers and texts; write it again"
        ) from None


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool | int | float | str):
        return str(cell)
    if isinstance(cell, date):
        return cell.isoformat()
    raise ValueError(f"a cell holds {type(cell).__name__}, which is neither number nor text")
