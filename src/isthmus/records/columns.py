"""Tables with the experiment at their head, read into immutable columns."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from isthmus.errors import IsthmusError
from isthmus.records.schema import RecordColumn, names

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Value = TypeVar("Value")
Column = TypeVar("Column", bound=NDArray[Any])


def columns(
    path: Path, expected: Iterable[str], perhaps: Iterable[str] = ()
) -> dict[str, list[str]]:
    """Reads a table into columns of text; an incomplete last line is left out.

    A column that is there `perhaps`, since older versions did not write it, is empty if it is not.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise IsthmusError(f"{path} is not text ({error}); restore it, or run again") from None
    # A killed process leaves a last line without its end: what it says may be half a number.
    complete = text[: text.rfind("\n") + 1].splitlines()
    start = next((i for i, line in enumerate(complete) if not line.startswith("#")), len(complete))
    rows = csv.reader(complete[start:])
    header = next(rows, [])
    missing = [name for name in expected if name not in header]
    if missing:
        raise IsthmusError(
            f"{path} has no column {missing[0]!r}; expected {','.join(expected)}, so run it again"
        )
    lines = list(rows)
    for place, line in enumerate(lines, start=start + 2):
        if len(line) != len(header):
            raise IsthmusError(
                f"{path} line {place} has {len(line)} fields; expected {len(header)}, "
                "so restore the file, or run it again"
            )
    turned = zip(*lines, strict=True) if lines else ([] for _ in header)
    there = {name: list(column) for name, column in zip(header, turned, strict=True)}
    return {name: [""] * len(lines) for name in perhaps} | there


def read_columns(
    path: Path, schema: Sequence[RecordColumn], per_batch: bool = False
) -> dict[str, list[str]]:
    """Reads a table of the schema by its columns' names.

    One that may be missing is of empty texts if it is; a column of text then has no rows at all. A
    table that older versions did not write has no rows.
    """
    given = dict(zip(names(schema, per_batch), schema, strict=True))
    if not path.is_file():
        return {column.name: [] for column in schema}
    needed = [name for name, column in given.items() if not column.may_be_missing]
    table = columns(path, needed)
    count = len(table[needed[0]])
    return {
        c.name: table.get(name, [""] * count if c.type is float else [])
        for name, c in given.items()
    }


def parse(
    path: Path, table: Mapping[str, list[str]], name: str, read: Callable[[str], Value]
) -> list[Value]:
    """Reads a column's texts as values."""
    try:
        return [read(text) for text in table[name]]
    except ValueError as error:
        raise IsthmusError(
            f"{path} column {name!r} holds something else than a number ({error}); "
            "restore the file, or run it again"
        ) from None


def number(text: str) -> float:
    """Reads a number; an empty text is none."""
    return float(text) if text else np.nan


def integers(
    path: Path, table: Mapping[str, list[str]], name: str, read: Callable[[str], int] = int
) -> Integers:
    """Reads a column of whole numbers."""
    return freeze(np.asarray(parse(path, table, name, read), dtype=np.int64))


def floats(
    path: Path, table: Mapping[str, list[str]], name: str, read: Callable[[str], float] = number
) -> Floats:
    """Reads a column of numbers, nan where one is missing."""
    return freeze(np.asarray(parse(path, table, name, read), dtype=np.float64))


def freeze(array: Column) -> Column:
    """Makes an array immutable."""
    array.flags.writeable = False
    return array
