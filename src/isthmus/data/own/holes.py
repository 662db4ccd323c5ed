"""Cells that stand for no value, as people and programs write them."""

from collections.abc import Sequence
from functools import lru_cache

EXACTLY = ("NA", "NaT", "?")
IN_ANY_CASE = ("", "nan", "+nan", "-nan", "null", "n/a", "#n/a", "#na", "<na>")


@lru_cache(1024)  # words of a few columns, in every block
def is_missing(word: str) -> bool:
    """Tells whether a word stands for no value: white space, or what programs write for none.

    >>> [word for word in (" ", "nan", "NA", "null", "?", "Na", "-") if is_missing(word)]
    [' ', 'nan', 'NA', 'null', '?']
    """
    word = word.strip()
    return word in EXACTLY or word.lower() in IN_ANY_CASE


def empty_named(cells: Sequence[str], values: tuple[str, ...]) -> Sequence[str]:
    """Empties the cells that have one of the values which somebody says to stand for none.

    >>> empty_named(["41", "-999.0", "unknown", "known"], ("-999", "unknown"))
    ['41', '', '', 'known']
    """
    named = {cell for cell in set(cells) if _is_named(cell, values)}
    return ["" if cell in named else cell for cell in cells] if named else cells


@lru_cache(1024)
def _is_named(cell: str, values: tuple[str, ...]) -> bool:
    word, number = cell.strip(), _read_number(cell)
    return word in values or (number is not None and number in map(_read_number, values))


def _read_number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
