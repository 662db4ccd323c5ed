"""Makes inputs of a table's cells: numbers in their places, and a 1 at the place of each word."""

import reprlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import BOOLEAN, HOLE, OTHER, REFUSE, Column
from isthmus.data.own.column_rules import describe_format, parse_boolean
from isthmus.data.own.dates import make_part, parse_date
from isthmus.data.own.holes import is_missing
from isthmus.data.own.table_cells import Cells
from isthmus.errors import IsthmusError

NOWHERE = -1  # the place of a word that has no input
TOLD = 3  # words in a note


class RawInputs(NamedTuple):
    """What the cells of a table say: numbers before they are scaled, and where words have a 1."""

    values: NDArray[np.float64]  # [n, numbers], or more columns, of zeros
    places: Mapping[str, NDArray[np.int64]]  # by column, [n]
    notes: tuple[str, ...]


def read_cells(columns: Sequence[Column], cells: Mapping[str, Cells], rows: int) -> RawInputs:
    """Reads numbers, and finds the places of words; refuses what cannot be read."""
    numbers = [column for column in columns if column.category is None]
    # Numbers in two columns or more are added up row by row, in one alone by pairs: means would
    # differ in their last bits with the columns of words beside it.
    values = np.zeros((rows, max(len(numbers), min(len(columns), 2))))
    for place, column in enumerate(numbers):
        values[:, place] = _read_numbers(column, cells[column.name])
    places, notes = _place_words(columns, cells)
    return RawInputs(values, places, notes)


def _read_numbers(column: Column, cells: Cells) -> NDArray[Any]:
    if column.part == HOLE:
        return cells.find_holes()
    if column.missing == REFUSE:
        cells.refuse_holes()
    if column.part == BOOLEAN:
        return cells.convert(parse_boolean, "true or false, yes or no, t or f, y or n, 1 or 0")
    if column.format:
        read = partial(parse_date, form=column.format)
        return make_part(cells.convert(read, describe_format(column.format)), column.part)
    return cells.numbers()


def _place_words(
    columns: Sequence[Column], cells: Mapping[str, Cells]
) -> tuple[dict[str, NDArray[np.int64]], tuple[str, ...]]:
    """Finds for each column of words at which input its rows have a 1."""
    known: dict[str, dict[str, int]] = {}
    special: dict[tuple[str, str], int] = {}  # inputs for holes, and for all other words
    strict = {column.name for column in columns if column.missing == REFUSE}
    for place, column in enumerate(columns):
        if column.category is not None:
            words = known.setdefault(column.name, {})
            if column.part:
                special[column.name, column.part] = place
            else:
                words[column.category] = place
    places, notes = {}, []
    for name, words in known.items():
        if name in strict:
            cells[name].refuse_holes(blank=True)
        rest = special.get((name, OTHER), NOWHERE)
        hole = special.get((name, HOLE), NOWHERE)
        found: list[int] = []
        unseen: list[str] = []
        for word in cells[name].words:
            if word in words:
                found.append(words[word])
            elif name not in strict and hole != NOWHERE and is_missing(word):
                found.append(hole)
            else:
                found.append(rest)
                unseen.append(word)
        codes = cells[name].codes
        places[name] = np.array(found, np.int64)[codes]
        if unseen:
            numbers = [cells[name].words[word] for word in unseen]
            rows = int(np.isin(codes, numbers).sum())
            notes.append(_describe_unseen(name, unseen, rows, rest != NOWHERE))
    return places, tuple(notes)


def _describe_unseen(name: str, words: Sequence[str], rows: int, counts: bool) -> str:
    listed = ", ".join(map(reprlib.repr, words[:TOLD])) + (", ..." if len(words) > TOLD else "")
    taken = "they count as other" if counts else "they count as none of them"
    return (
        f"column {name!r} has words that are not among its categories in {rows:,} "
        f"row{'s' * (rows != 1)} ({listed}): {taken}"
    )


def find_scales(columns: Sequence[Column], values: NDArray[np.float64]) -> tuple[Column, ...]:
    """Gives columns with the mean and the deviation of each that is scaled."""
    with np.errstate(over="ignore", invalid="ignore"):
        scales = zip(values.mean(axis=0).tolist(), values.std(axis=0).tolist(), strict=True)
    result = []
    for column in columns:
        if column.category is None:
            mean, std = next(scales)
            if column.scaled:
                column = column._replace(mean=mean, std=std if std > 0 else 1.0)
        result.append(column)
    return tuple(result)


def join_inputs(
    columns: Sequence[Column], raw: RawInputs, path: Path, kind: type[np.floating[Any]]
) -> NDArray[Any]:
    """Makes an input of each row: numbers scaled, and 1 at the place of each word."""
    places = [place for place, column in enumerate(columns) if column.category is None]
    scales = np.array([(columns[p].mean, columns[p].std) for p in places]).reshape(-1, 2)
    values = raw.values[:, : len(places)]
    for place, column in enumerate(columns[p] for p in places):
        if column.fill is not None:
            values[np.isnan(values[:, place]), place] = column.fill
    with np.errstate(over="ignore", invalid="ignore"):
        values -= scales[:, 0]
        values /= scales[:, 1]
        numbers = values.astype(np.float32)
    usable = np.isfinite(scales[:, 1])  # else all would become 0
    if not (usable.all() and np.isfinite(numbers).all()):
        _refuse_large([columns[p] for p in places], numbers, usable, path)
    result = np.zeros((len(values), len(columns)), kind)
    # Numbers that lie side by side, as they mostly do, are copied in one go.
    together = len(places) > 0 and places[-1] - places[0] + 1 == len(places)
    target = slice(places[0], places[-1] + 1) if together else places
    result[:, target] = numbers if kind is np.float32 else values
    every = np.arange(len(values))
    for row_places in raw.places.values():
        some = every if row_places.min(initial=0) > NOWHERE else row_places > NOWHERE
        result[every[some], row_places[some]] = 1
    return result


def _refuse_large(
    columns: Sequence[Column], numbers: NDArray[Any], usable: NDArray[np.bool_], path: Path
) -> None:
    """Refuses numbers that 32 bits do not hold; holes pass."""
    wrong = np.flatnonzero(np.isinf(numbers).any(axis=0) | ~usable)
    if len(wrong):
        name = columns[wrong[0]].name
        raise IsthmusError(
            f"{path} has numbers in column {name!r} that are too large; expected them below 1e38; "
            f"divide them, or leave the column out with --set drop={name}"
        )
