"""What becomes of a column of a table: what its cells are, and which inputs they make."""

import reprlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import BOOLEAN, HOLE, INDICATOR, MEAN, OTHER, REFUSE, Column
from isthmus.data.own.cells import (
    CYCLES,
    DAYS,
    Cells,
    find_formats,
    is_missing,
    list_parts,
    make_part,
    natural_order,
    parse_date,
)
from isthmus.errors import IsthmusError

Missing = Literal["refuse", "mean", "median", "indicator"]

NUMBER, CATEGORY, DATE = "number", "category", "date"  # kinds, beside BOOLEAN
BOOLEANS = (("true", "false"), ("yes", "no"), ("t", "f"), ("y", "n"))
TRUTH = {word: True for word, _ in BOOLEANS} | {word: False for _, word in BOOLEANS}
TRUTH |= {"1": True, "1.0": True, "0": False, "0.0": False}
NOWHERE = -1  # the place of a word that has no input
NAMED_IN_NOTES = 3  # words


class ColumnRule(NamedTuple):
    """What one column is; what is left open is found out from its cells."""

    kind: str = ""
    missing: str = REFUSE
    categories: tuple[str, ...] = ()
    other: bool = False  # words that are not among the categories have an input together
    format: str = ""  # of a date
    cycles: tuple[str, ...] | None = None  # that a date is placed in
    missing_values: tuple[str, ...] = ()  # that stand for none


def parse_boolean(text: str) -> float:
    """Return 1 for yes and 0 for no, in any of their spellings.

    >>> [parse_boolean(word) for word in ("Yes", "f", "TRUE", "0")]
    [1.0, 0.0, 1.0, 0.0]
    """
    word = text.strip().lower()
    if word not in TRUTH:
        raise ValueError(f"{text!r} is neither yes nor no")
    return float(TRUTH[word])


def complete_rule(rule: ColumnRule, cells: Cells, most: int) -> ColumnRule:
    """Find out from a column's cells what its rule leaves open; more than `most` words are many."""
    rule = rule if rule.kind else rule._replace(kind=find_kind(cells))
    if rule.kind == DATE:
        form = rule.format or _find_format(cells)
        cycles = rule.cycles
        if cycles is None:  # that of the day only where dates come with a time
            days = _convert_dates(cells, form)
            timed = bool((np.nan_to_num(days) % 1).any())
            cycles = tuple(CYCLES) if timed else tuple(CYCLES)[:2]
        return rule._replace(format=form, cycles=cycles)
    if rule.kind == CATEGORY and not rule.categories:
        if rule.missing == REFUSE:
            cells.refuse_missing(blank=True)
        words = cells.list_words(with_missing=rule.missing == REFUSE)
        if len(words) > most:
            raise IsthmusError(
                f"{cells.path} has more than {most} different words in column {cells.name!r}, "
                f"such as {reprlib.repr(min(words))}; leave it out with --set drop={cells.name}, "
                "raise categories, or list those that count in a schema: isthmus data schema FILE"
            )
        return rule._replace(categories=tuple(sorted(words, key=natural_order)))
    return rule


def find_kind(cells: Cells) -> str:
    """Return what a column is by its cells."""
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
    name: str, rule: ColumnRule, missing: NDArray[np.bool_], scaled: bool
) -> list[Column]:
    """List the inputs that a column becomes; `missing` are values of rows to learn from."""
    usual = Column(
        name,
        None,
        missing=MEAN if rule.missing == INDICATOR else rule.missing,
        scaled=scaled,
        missing_values=rule.missing_values,
    )
    lacks = rule.missing != REFUSE and bool(missing.any())
    if rule.kind == CATEGORY:
        parts = [(word, "") for word in rule.categories]
        parts += [(HOLE, HOLE)] * lacks + [(OTHER, OTHER)] * rule.other
        return [usual._replace(category=w, part=part, scaled=True) for w, part in parts]
    if rule.kind == DATE:
        columns = [
            usual._replace(part=part, format=rule.format, scaled=scaled and part == DAYS)
            for part in list_parts(rule.cycles or ())
        ]
    elif rule.kind == BOOLEAN:
        columns = [usual._replace(part=BOOLEAN, scaled=False)]
    else:
        columns = [usual]
    if lacks and rule.missing == INDICATOR:
        columns.append(
            Column(name, None, part=HOLE, scaled=False)._replace(missing_values=rule.missing_values)
        )
    return columns


def _find_format(cells: Cells) -> str:
    words = cells.list_words()
    formats = find_formats(words)
    if len(formats) == 1:
        return formats[0]
    if formats:
        raise IsthmusError(
            f"{cells.path} has {reprlib.repr(words[0])} in column {cells.name!r}, which may be "
            f"{' or '.join(formats)}, and so may all others; set format = {formats[0]!r} in a "
            f"schema (isthmus data schema FILE), or leave it out with --set drop={cells.name}"
        )
    raise cells.refuse(
        min(words, default=""), None, "a date such as 2024-01-31; set its format in the schema"
    )


def _convert_dates(cells: Cells, form: str) -> NDArray[np.float64]:
    return cells.convert(partial(parse_date, form=form), f"a date of format {form}")


def list_names(columns: Sequence[Column]) -> tuple[str, ...]:
    """List the columns of a table that inputs come from, each once."""
    return tuple(dict.fromkeys(column.name for column in columns))


class RawInputs(NamedTuple):
    """What the cells of a table say: numbers before they are scaled, and where words have a 1."""

    values: NDArray[np.float64]  # [n, numbers], or more columns, of zeros
    places: Mapping[str, NDArray[np.int64]]  # by column, [n]
    notes: tuple[str, ...]


def read_cells(columns: Sequence[Column], cells: Mapping[str, Cells], rows: int) -> RawInputs:
    """Read numbers, and find the places of words; refuse what cannot be read."""
    numbers = [column for column in columns if column.category is None]
    # Numbers in two columns or more are added up row by row, in one alone by pairs: means would
    # differ in their last bits with the columns of words beside it.
    values = np.zeros((rows, max(len(numbers), min(len(columns), 2))))
    for place, column in enumerate(numbers):
        values[:, place] = _read_numbers(column, cells[column.name])
    places, notes = {}, []
    for name in list_names([column for column in columns if column.category is not None]):
        inputs = {place: column for place, column in enumerate(columns) if column.name == name}
        places[name], note = _place_words(inputs, cells[name])
        notes += [note] if note else []
    return RawInputs(values, places, tuple(notes))


def _read_numbers(column: Column, cells: Cells) -> NDArray[Any]:
    if column.part == HOLE:
        return cells.find_missing()
    if column.missing == REFUSE:
        cells.refuse_missing()
    if column.part == BOOLEAN:
        return cells.convert(parse_boolean, "true or false, yes or no, t or f, y or n, 1 or 0")
    if column.format:
        return make_part(_convert_dates(cells, column.format), column.part)
    return cells.numbers()


def _place_words(inputs: Mapping[int, Column], cells: Cells) -> tuple[NDArray[np.int64], str]:
    """Find at which input each row of a column has its 1; note the words that have none."""
    first = next(iter(inputs.values()))
    strict = first.missing == REFUSE
    if strict:
        cells.refuse_missing(blank=True)
    places = {column.category: place for place, column in inputs.items() if not column.part}
    special = {column.part: place for place, column in inputs.items() if column.part}
    rest, hole = special.get(OTHER, NOWHERE), special.get(HOLE, NOWHERE)
    unseen = []
    for word in cells.words:
        if word not in places:
            lacks = not strict and hole != NOWHERE and is_missing(word)
            unseen += [] if lacks else [word]
            places[word] = hole if lacks else rest
    found = np.array([places[word] for word in cells.words], np.int64)[cells.codes]
    if not unseen:
        return found, ""
    rows = int(np.isin(cells.codes, [cells.words[word] for word in unseen]).sum())
    listed = ", ".join(map(reprlib.repr, unseen[:NAMED_IN_NOTES]))
    more = ", ..." if len(unseen) > NAMED_IN_NOTES else ""
    return found, (
        f"column {first.name!r} has words that are not among its categories in {rows:,} "
        f"row{'s' * (rows != 1)} ({listed}{more}): they count as "
        f"{'other' if rest != NOWHERE else 'none of them'}"
    )


def find_scales(columns: Sequence[Column], values: NDArray[np.float64]) -> tuple[Column, ...]:
    """Return columns with the mean and the deviation of each that is scaled."""
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
    """Return an input for each row: numbers scaled, and 1 at the place of each word."""
    places = [place for place, column in enumerate(columns) if column.category is None]
    scales = np.array([(columns[p].mean, columns[p].std) for p in places]).reshape(-1, 2)
    values = raw.values[:, : len(places)]
    for number, place in enumerate(places):
        fill = columns[place].fill
        if fill is not None:
            values[np.isnan(values[:, number]), number] = fill
    with np.errstate(over="ignore", invalid="ignore"):
        values -= scales[:, 0]
        values /= scales[:, 1]
        numbers = values.astype(np.float32)
    # what 32 bits do not hold; missing values pass, and an infinite deviation makes zeros of all
    wrong = np.flatnonzero(np.isinf(numbers).any(axis=0) | ~np.isfinite(scales[:, 1]))
    if len(wrong):
        name = columns[places[wrong[0]]].name
        raise IsthmusError(
            f"{path} has numbers in column {name!r} that are too large for 32 bits; divide them, "
            f"or leave the column out with --set drop={name}"
        )
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
