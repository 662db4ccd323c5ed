"""Tables with the experiment at their head, read into immutable columns."""

import csv
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from isthmus.errors import IsthmusError

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
    found = {name: list(column) for name, column in zip(header, turned, strict=True)}
    return {name: [""] * len(lines) for name in perhaps} | found


def checked(
    path: Path, table: Mapping[str, list[str]], name: str, parse: Callable[[str], Value]
) -> list[Value]:
    """Reads a column's texts as values."""
    try:
        return [parse(text) for text in table[name]]
    except ValueError as error:
        raise IsthmusError(
            f"{path} column {name!r} holds something else than a number ({error}); "
            "restore the file, or run it again"
        ) from None


def number(text: str) -> float:
    """Reads a number; an empty text is none."""
    return float(text) if text else np.nan


def integers(
    path: Path, table: Mapping[str, list[str]], name: str, parse: Callable[[str], int] = int
) -> Integers:
    """Reads a column of whole numbers."""
    return frozen(np.asarray(checked(path, table, name, parse), dtype=np.int64))


def floats(
    path: Path, table: Mapping[str, list[str]], name: str, parse: Callable[[str], float] = number
) -> Floats:
    """Reads a column of numbers, nan where one is missing."""
    return frozen(np.asarray(checked(path, table, name, parse), dtype=np.float64))


def frozen(array: Column) -> Column:
    """Makes an array immutable."""
    array.flags.writeable = False
    return array
