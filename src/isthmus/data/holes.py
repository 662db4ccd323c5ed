"""Cells that stand for no value, as people and programs write them."""

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
