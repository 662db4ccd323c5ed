"""Read a table in a file, CSV or Parquet, as columns of numbers and of words.

A file is read once, in blocks so small that their text stays in the processor's cache: that makes
it several times faster than large ones. By hand, because pyarrow.csv, which is twice as fast, takes
2.4 times the memory and 165 MB of disk.
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

from isthmus.data.file_errors import reading
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
    """Read the header of a table."""
    if len(delimiter) > 1:
        raise IsthmusError(
            f"delimiter={delimiter!r} is no single letter; for example --set \"delimiter=';'\""
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
        raise IsthmusError(f"{path} {wrong}; its first line must name every column")
    return TableFile(path, delimiter, {name: place for place, (name,) in enumerate(header)})


def read_columns(
    table: TableFile,
    words: Sequence[str],
    inputs: Sequence[str],
    most: int,
    missing_values: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Mapping[str, Cells]:
    """Read columns by name: some as words, and `inputs`, as numbers or `most` different words.

    `missing_values` are, by column, what stands for no value besides the usual spellings.
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
    """Yield the rows of a table as texts, the header first."""
    for block in _blocks(table.path, table.delimiter):
        yield from zip(*block, strict=True)


def check_memory(table: TableFile, rows: int, columns: int) -> None:
    """Refuse so many rows and columns of inputs where memory does not hold them."""
    needed, free = 12 * rows * columns, free_memory()
    if free is not None and needed > free:
        raise IsthmusError(
            f"{table.path} needs {needed / 1e6:,.0f} MB, {free / 1e6:,.0f} MB are free; "
            "lower categories, or drop columns"
        )


def _blocks(path: Path, delimiter: str) -> Iterator[list[Texts]]:
    """Yield the header, then the rows, some at a time: by column, a text per row."""
    parquet = path.suffix.lower() == ".parquet"
    return _parquet_blocks(path) if parquet else _csv_blocks(path, delimiter)


def _csv_blocks(path: Path, delimiter: str) -> Iterator[list[Texts]]:
    line = 0
    try:
        with io.TextIOWrapper(open_regular(path), "utf-8-sig", newline="") as file:
            delimiter = delimiter or max(DELIMITERS, key=file.readline().count)
            file.seek(0)
            reader = _read_rows(file, delimiter)
            header: list[str] = next(reader, [])
            line = reader.line_num
            if header:
                yield [[name.strip()] for name in header]
            while lines := list(islice(file, BLOCK)):
                block = _split(lines, delimiter, len(header))
                if block is None:
                    rows, reader = [], _read_rows(chain(lines, file), delimiter)
                    for row in reader:
                        if row and len(row) != len(header):
                            raise IsthmusError(
                                f"{path} has {len(row)} fields in line {line + reader.line_num}, "
                                f"not {len(header)} as in its first; correct it, or set delimiter"
                            )
                        rows += [row] if row else []
                        if reader.line_num >= len(lines):
                            break
                    line += reader.line_num
                    block = list(zip(*rows, strict=True))
                else:
                    line += len(lines)
                if block:
                    yield block
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise IsthmusError(
            f"{path} cannot be read after line {line} ({reason}); save it as a CSV file in UTF-8"
        ) from None


def _read_rows(lines: Iterator[str], delimiter: str) -> Any:
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)


def _split(lines: Sequence[str], delimiter: str, width: int) -> list[Texts] | None:
    """Split plain lines into columns, all at once, as csv does row by row.

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


def _parquet_blocks(path: Path) -> Iterator[list[Texts]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise IsthmusError(
            f"{path} needs pyarrow; install it with: pip install 'isthmus[tables]'"
        ) from None
    with reading(path, "write it again, with numbers and texts"), parquet.ParquetFile(path) as file:
        yield [[name.strip()] for name in file.schema_arrow.names]
        for batch in file.iter_batches(BLOCK):
            yield [[_text(cell) for cell in column.to_pylist()] for column in batch.columns]


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool | int | float | str):
        return str(cell)
    if isinstance(cell, date):
        return cell.isoformat()
    raise ValueError(f"a cell holds {type(cell).__name__}, which is neither number nor text")
