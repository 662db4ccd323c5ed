"""What becomes of a table's column: what its cells are, and which inputs they make."""

import reprlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import BOOLEAN, HOLE, INDICATOR, MEAN, OTHER, REFUSE, Column
from isthmus.data.own.array_files import natural_order
from isthmus.data.own.dates import CYCLES, DAYS, find_formats, list_parts, parse_date
from isthmus.data.own.table_cells import Cells
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
