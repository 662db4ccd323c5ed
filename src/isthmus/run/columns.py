"""Tables with the experiment at their head, read into immutable columns."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile, islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from isthmus.errors import IsthmusError, quote
from isthmus.run.cells import parse_lines
from isthmus.run.schema import LARGEST, RecordColumn, names

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Column = TypeVar("Column", bound=NDArray[Any])

LINES = 50_000  # that are read at a time


def columns(path: Path, expected: Iterable[str]) -> dict[str, list[str]]:
    """Read a table into columns of text, without an incomplete last line."""
    blocks = list(read_blocks(path, expected))
    return {name: [cell for block in blocks for cell in block[name]] for name in blocks[0]}


def read_seconds(run: Path) -> list[float]:
    """Read how long each round of a run took, with its evaluation."""
    spent = columns(run / "rounds.csv", ("train_seconds", "evaluate_seconds"))
    pairs = zip(spent["train_seconds"], spent["evaluate_seconds"], strict=True)
    return [float(train) + float(evaluate) for train, evaluate in pairs]


def read_blocks(path: Path, expected: Iterable[str]) -> Iterator[dict[str, list[str]]]:
    """Yield the columns of some lines at a time: text takes ten times the memory of numbers.

    The first block is there even where a table has no lines.
    """
    try:
        with path.open(encoding="utf-8") as file:
            # A killed process leaves a last line without its end: it may be half a number.
            whole = (line.rstrip("\n").removesuffix("\r") for line in file if line.endswith("\n"))
            places = dropwhile(lambda place: place[1].startswith("#"), enumerate(whole, start=1))
            (header,) = parse_lines([line for _, line in islice(places, 1)]) or [[]]
            missing = [name for name in expected if name not in header]
            if missing:
                raise IsthmusError(
                    f"{path} has no column {missing[0]!r}; restore the file, or run it again"
                )
            block = list(islice(places, LINES))
            while True:
                rows = parse_lines(line for _, line in block)
                for (place, _), row in zip(block, rows, strict=True):
                    if len(row) != len(header):
                        raise IsthmusError(
                            f"{path} line {place} has {len(row)} fields instead of {len(header)}; "
                            "restore the file, or run it again"
                        )
                turned = zip(*rows, strict=True) if rows else ([] for _ in header)
                yield {name: list(column) for name, column in zip(header, turned, strict=True)}
                if not (block := list(islice(places, LINES))):
                    return
    except UnicodeDecodeError as error:
        raise IsthmusError(f"{path} is not text ({error}); restore it, or run it again") from None
    except csv.Error as error:
        raise IsthmusError(f"{path} is not CSV ({error}); restore it, or run it again") from None


def read_arrays(
    path: Path, schema: Sequence[RecordColumn], per_batch: bool = False
) -> dict[str, NDArray[Any]]:
    """Read a table of the schema by its columns' names; what is not one number stays text.

    A column of numbers that may be missing is nan if it is; one of text then has no rows at all. A
    table that older versions did not write has no rows.
    """
    given = dict(zip(names(schema, per_batch), schema, strict=True))
    needed = [name for name, column in given.items() if not column.may_be_missing]
    nothing: dict[str, list[str]] = {name: [] for name in given}
    blocks = read_blocks(path, needed) if path.is_file() else iter([nothing])
    parts = [_read_block(path, given, needed[0], block) for block in blocks]
    return {
        name: parts[0][name]
        if len(parts) == 1
        else freeze(np.concatenate([p[name] for p in parts]))
        for name in parts[0]
    }


def _read_block(
    path: Path, given: Mapping[str, RecordColumn], first: str, table: Mapping[str, list[str]]
) -> dict[str, NDArray[Any]]:
    empty = [""] * len(table[first])
    readers: dict[type, Callable[[str], Any]] = {int: int, float: number}
    arrays: dict[str, NDArray[Any]] = {}
    for name, column in given.items():
        texts = table.get(name, empty if column.type is float else [])
        read, dtype = readers.get(column.type, str), column.type if column.type in readers else str
        arrays[column.name] = parse(path, column.name, texts, read, np.dtype(dtype))
        _refuse_impossible(path, column, texts, arrays[column.name])
    return arrays


def _refuse_impossible(
    path: Path, column: RecordColumn, texts: Sequence[str], values: NDArray[Any]
) -> None:
    """Refuse values that no run writes; a loss may be infinite, a share may not."""
    wrong = [text for text in set(texts) if column.choices and text not in column.choices]
    expected = ", ".join(name or "nothing" for name in column.choices)
    if column.type in (int, float):
        least, most = column.bounds
        outside = (values < least - 1e-6) | (values > most + 1e-6)
        outside &= (most < LARGEST) | np.isfinite(values)
        wrong = [texts[i] for i in np.flatnonzero(outside)[:1]]
        expected = f"{least:g} to {most:g}"
    if wrong:
        raise IsthmusError(
            f"{path} column {column.name!r} holds {quote(wrong[0])} instead of {expected}; restore "
            "the file, or run it again"
        )


def parse(
    path: Path, name: str, texts: Iterable[str], read: Callable[[str], Any], dtype: Any
) -> NDArray[Any]:
    """Read a column's texts as values."""
    try:
        return freeze(np.asarray([read(text) for text in texts], dtype=dtype))
    except (ValueError, OverflowError) as error:
        raise IsthmusError(
            f"{path} column {name!r} holds a text that is no number ({error}); restore the file, "
            "or run it again"
        ) from None


def number(text: str) -> float:
    """Return a number; nan for an empty text."""
    return float(text) if text else np.nan


def freeze(array: Column) -> Column:
    """Make an array immutable."""
    array.flags.writeable = False
    return array
