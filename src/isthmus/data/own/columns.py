"""What becomes of a column of a table: what its cells are, and which inputs they make."""

import reprlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import BOOLEAN, HOLE, INDICATOR, MEAN, OTHER, REFUSE, Column
from isthmus.data.own.arrays import natural_order
from isthmus.data.own.cells import (
    CYCLES,
    DAYS,
    Cells,
    find_formats,
    is_missing,
    list_parts,
    make_part,
    parse_date,
)
from isthmus.errors import IsthmusError

Missing = Literal["refuse", "mean", "median", "indicator"]

NUMBER, CATEGORY, DATE = "number", "category", "date"  # kinds, beside BOOLEAN
BOOLEANS = (("true", "false"), ("yes", "no"), ("t", "f"), ("y", "n"))
TRUTH = {word: True for word, _ in BOOLEANS} | {word: False for _, word in BOOLEANS}
TRUTH |= {"1": True, "1.0": True, "0": False, "0.0": False}


class ColumnRule(NamedTuple):
    """What one column is; what is left open is found out from its cells."""

    kind: str = ""
    missing: str = REFUSE
    categories: tuple[str, ...] = ()
    other: bool = False  # words that are not among the categories have an input together
    format: str = ""  # of a date
    cycles: tuple[str, ...] | None = None  # that a date is placed in
    missing_values: tuple[str, ...] | None = None  # that stand for none; None: as the run says


def parse_boolean(text: str) -> float:
    """Gives 1 for yes and 0 for no, in any of their spellings.

    >>> [parse_boolean(word) for word in ("Yes", "f", "TRUE", "0")]
    [1.0, 0.0, 1.0, 0.0]
    """
    try:
        return float(TRUTH[text.strip().lower()])
    except KeyError:
        raise ValueError(f"{text!r} is neither yes nor no") from None


def complete_rule(rule: ColumnRule, cells: Cells, most: int) -> ColumnRule:
    """Finds out from a column's cells what its rule leaves open; `most` categories are many."""
    rule = rule if rule.kind else rule._replace(kind=find_kind(cells))
    if rule.kind == DATE:
        form = rule.format or _find_format(cells)
        cycles = _find_cycles(cells, form) if rule.cycles is None else rule.cycles
        return rule._replace(format=form, cycles=cycles)
    if rule.kind == CATEGORY and not rule.categories:
        if rule.missing == REFUSE:
            cells.refuse_holes(blank=True)
        words = cells.list_words(with_holes=rule.missing == REFUSE)
        if len(words) > most:
            raise IsthmusError(
                f"{cells.path} has more than {most} different words in column {cells.name!r}, "
                f"such as {reprlib.repr(min(words))}; expected numbers, dates or a few categories; "
                f"leave it out with --set drop={cells.name}, raise categories, or list those that "
                "count in a schema: isthmus data schema FILE"
            )
        return rule._replace(categories=tuple(sorted(words, key=natural_order)))
    return rule


def find_kind(cells: Cells) -> str:
    """Tells what a column is by its cells."""
    if cells.are_numbers():
        return NUMBER
    if cells.has_all_words:
        words = cells.list_words()
        if {word.strip().lower() for word in words} in map(set, BOOLEANS):
            return BOOLEAN
        if find_formats(words):
            return DATE
    return CATEGORY


def make_columns(
    name: str, rule: ColumnRule, holes: NDArray[np.bool_], scaled: bool
) -> list[Column]:
    """Lists the inputs that a column becomes; `holes` are those of rows to learn from."""
    columns = _list_columns(name, rule, holes, scaled)
    return [column._replace(missing_values=rule.missing_values or ()) for column in columns]


def _list_columns(
    name: str, rule: ColumnRule, holes: NDArray[np.bool_], scaled: bool
) -> list[Column]:
    missing = MEAN if rule.missing == INDICATOR else rule.missing
    lacks = missing != REFUSE and bool(holes.any())
    if rule.kind == CATEGORY:
        columns = [Column(name, word, missing=missing) for word in rule.categories]
        columns += [Column(name, HOLE, part=HOLE, missing=missing)] if lacks else []
        return columns + ([Column(name, OTHER, part=OTHER, missing=missing)] if rule.other else [])
    if rule.kind == DATE:
        columns = [
            Column(name, None, part=part, format=rule.format, scaled=scaled and part == DAYS)
            for part in list_parts(rule.cycles or ())
        ]
    elif rule.kind == BOOLEAN:
        columns = [Column(name, None, part=BOOLEAN, scaled=False)]
    else:
        columns = [Column(name, None, scaled=scaled)]
    columns = [column._replace(missing=missing) for column in columns]
    told = lacks and rule.missing == INDICATOR
    return columns + ([Column(name, None, part=HOLE, scaled=False)] if told else [])


def _find_format(cells: Cells) -> str:
    words = cells.list_words()
    formats = find_formats(words)
    if len(formats) == 1:
        return formats[0]
    if formats:
        raise IsthmusError(
            f"{cells.path} has {reprlib.repr(words[0])} in column {cells.name!r}, which may be "
            f"{' or '.join(formats)}, and so may all others; expected dates of one meaning; say "
            f"format = {formats[0]!r} in a schema (isthmus data schema FILE), or leave it out with "
            f"--set drop={cells.name}"
        )
    raise IsthmusError(
        f"{cells.path} has {reprlib.repr(min(words, default=''))} in column {cells.name!r}; "
        "expected dates such as 2024-01-31; say their format in the schema"
    )


def _find_cycles(cells: Cells, form: str) -> tuple[str, ...]:
    """Takes the cycle of the day in only where dates come with a time."""
    days = cells.convert(lambda word: parse_date(word, form), describe_format(form))
    timed = bool((np.nan_to_num(days) % 1).any())
    return tuple(CYCLES) if timed else tuple(CYCLES)[:2]


def describe_format(form: str) -> str:
    """Says what a date looks like."""
    return f"a date of format {form}"


def list_names(columns: Sequence[Column]) -> tuple[str, ...]:
    """Names the columns of a table that inputs come from, each once."""
    return tuple(dict.fromkeys(column.name for column in columns))


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
