"""Names of classes and owners as people write them: missing, with spaces around, 1 and 1.0."""

import re
import reprlib
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.own.holes import is_missing
from isthmus.errors import IsthmusError

PLAIN_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]*)?")  # 007 and 1e5 may be codes
TOLD = 5  # spellings in a note


class Spellings(NamedTuple):
    """The name that each word stands for, and a note on words that stand for one together."""

    names: dict[str, str]
    notes: tuple[str, ...]


class NumberedNames(NamedTuple):
    """Names in their order, and the number of the one that each row has."""

    names: tuple[str, ...]
    numbers: NDArray[np.int64]
    notes: tuple[str, ...]


def merge_spellings(words: Iterable[str], what: str, known: Sequence[str] = ()) -> Spellings:
    """Strips white space, and takes numbers that are equal for one name, the shortest or `known`.

    >>> merge_spellings(["yes", "1.0", "1", "yes "], "the labels").notes
    ("in the labels '1.0' counts as '1', 'yes ' counts as 'yes'",)
    """
    words = list(words)
    shortest_first = sorted((word.strip() for word in words), key=lambda word: (len(word), word))
    found: dict[str | Decimal, str] = {}
    for name in (*known, *shortest_first):
        found.setdefault(_meaning(name), name)
    names = {word: found[_meaning(word)] for word in words}
    if len(set(names.values())) == len(names):
        return Spellings(names, ())
    merged = [
        f"{reprlib.repr(word)} counts as {reprlib.repr(names[word])}"
        for word in sorted(words)
        if word != names[word]
    ]
    more = f" and {len(merged) - TOLD:,} more" if len(merged) > TOLD else ""
    return Spellings(names, (f"in {what} {', '.join(merged[:TOLD])}{more}",))


def find_missing(values: NDArray[Any]) -> int | None:
    """Finds the first row without a value, counted from 1."""
    if values.dtype.kind == "U":
        words, numbers = np.unique(values, return_inverse=True)
        missing = np.array([is_missing(word) for word in words.tolist()], bool)[numbers]
    elif values.dtype.kind == "O":
        missing = np.array([value is None or value != value for value in values.tolist()], bool)
    else:
        missing = values != values  # nan is the one number that is not itself
    return int(np.argmax(missing)) + 1 if missing.any() else None


def decode_texts(values: NDArray[Any]) -> NDArray[Any]:
    """Gives texts, of whatever kind, as such, and other values as they are."""
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8", "backslashreplace")
    if values.dtype.kind == "O" and all(isinstance(value, str) for value in values.tolist()):
        return values.astype(str)
    return values


def number_owners(values: NDArray[Any], where: str) -> NumberedNames:
    """Numbers owners in their order; refuses a row without one."""
    values = decode_texts(values)
    if values.dtype.kind in "Vc":
        raise _refuse_kind(values, where)
    row = find_missing(values)
    if row is not None:
        raise IsthmusError(
            f"{where} has no client in row {row}; expected whose each row is; fill it, or delete "
            "the row"
        )
    try:
        known, numbers = np.unique(values, return_inverse=True)
    except TypeError:  # of objects that cannot be compared
        raise _refuse_kind(values, where) from None
    if known.dtype.kind != "U":
        return NumberedNames(tuple(str(name) for name in known), numbers, ())
    spelled = merge_spellings(known.tolist(), "the clients")
    names = sorted(set(spelled.names.values()))
    place = {name: number for number, name in enumerate(names)}
    of_word = np.array([place[name] for name in spelled.names.values()], np.int64)
    return NumberedNames(tuple(names), of_word[numbers], spelled.notes)


def _refuse_kind(values: NDArray[Any], where: str) -> IsthmusError:
    return IsthmusError(
        f"{where} has clients of type {values.dtype}, which have no order; expected numbers or "
        "names; convert them"
    )


def _meaning(word: str) -> str | Decimal:
    word = word.strip()
    return Decimal(word) if PLAIN_NUMBER.fullmatch(word) else word
