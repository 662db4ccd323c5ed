"""The cells of one column of a table, as they come: numbers, words, and holes among them."""

import reprlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import count
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isthmus.data.own.dates import find_formats
from isthmus.data.own.holes import empty_named, is_missing
from isthmus.errors import IsthmusError

Texts = Sequence[str]

NAN, INFINITE = float("nan"), float("inf")


class Cells:
    """The cells of one column: as words while these are few, and as numbers if they may be any.

    Words are remembered beyond the limit where those up to it are dates.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        most: int | None,
        may_be_numbers: bool,
        missing_values: Sequence[str] = (),
    ):
        self.path = path
        self.name = name
        self.most = most  # different words to remember; None: all of them
        self.may_be_numbers = may_be_numbers
        self.missing_values = tuple(missing_values)  # that stand for none beside the usual ones
        self.rows = 0
        # numbered in the order of their first rows: a new word gets the next number
        self.words: dict[str, int] = defaultdict(count().__next__)
        self._codes: list[NDArray[np.int32]] = []
        self._values: list[NDArray[np.float64]] = []  # as long as all cells are numbers or holes
        self._finite = 0
        self._holes = 0
        self._nonsense: set[str] = set()  # some words that are neither numbers nor holes
        self._first_hole: tuple[int, str] | None = None  # a row, and how it is spelled
        self._first_wrong: tuple[int, str] | None = None  # a row, and what it has in place of one

    def add(self, cells: Texts) -> None:
        """Takes the next rows."""
        if self.missing_values:
            cells = empty_named(cells, self.missing_values)
        values = None
        if self.may_be_numbers and cells[0] not in self._nonsense:
            values = parse_numbers(cells)
        if values is None or self.has_all_words:
            self._add_words(cells)
        if self.may_be_numbers:
            self._add_numbers(cells, values)
        self.rows += len(cells)

    @property
    def has_all_words(self) -> bool:
        """Whether there are few enough different words for all of them to be remembered."""
        return self.most is None or len(self.words) <= self.most

    @property
    def codes(self) -> NDArray[np.int32]:
        """The number of each row's word, up to the block with one word too many."""
        return np.concatenate(self._codes) if self._codes else np.empty(0, np.int32)

    def texts(self) -> list[str]:
        """Lists the cells."""
        words = list(self.words)
        return [words[code] for code in self.codes.tolist()]

    def are_numbers(self) -> bool:
        """Tells whether at least half of the cells that say something are numbers."""
        return self._first_wrong is None or 2 * self._finite >= self.rows - self._holes

    def numbers(self) -> NDArray[np.float64]:
        """Gives the cells as numbers, nan where there is a hole; refuses what is neither."""
        if self._first_wrong is not None:
            row, cell = self._first_wrong
            raise IsthmusError(
                f"{self.path} has {reprlib.repr(cell)} in column {self.name!r}, row {row}; "
                "expected a number as in other rows; mend it, delete the row, or leave the column "
                f"out with --set drop={self.name}"
            )
        return np.concatenate(self._values)

    def convert(self, read: Callable[[str], float], expected: str) -> NDArray[np.float64]:
        """Gives what words are read as, nan where there is a hole; `read` raises ValueError."""
        values = np.full(len(self.words), NAN)
        for word, place in self.words.items():
            if not is_missing(word):
                try:
                    values[place] = read(word)
                except ValueError:
                    raise IsthmusError(
                        f"{self.path} has {reprlib.repr(word)} in column {self.name!r}, row "
                        f"{self.find_row(word)}; expected {expected}; correct it"
                    ) from None
        return values[self.codes]

    def list_words(self, with_holes: bool = False) -> list[str]:
        """Lists the different words, those of a hole only where these count as words."""
        return [word for word in self.words if with_holes or not is_missing(word)]

    def refuse_holes(self, blank: bool = False) -> None:
        """Refuses a column with a hole; with `blank`, one with a cell that has nothing in it."""
        hole = self._first_hole
        if hole is None:
            lacks: Callable[[str], bool] = (lambda word: not word.strip()) if blank else is_missing
            word = next((word for word in self.words if lacks(word)), None)
            hole = None if word is None else (self.find_row(word), word)
        if hole is not None:
            row, word = hole
            raise IsthmusError(
                f"{self.path} has {reprlib.repr(word) if word.strip() else 'nothing'} in column "
                f"{self.name!r}, row {row}; expected a value; fill it, delete the row, leave the "
                f"column out with --set drop={self.name}, or fill all such cells with --set "
                "missing=mean"
            )

    def find_holes(self) -> NDArray[np.bool_]:
        """Tells of each row whether its cell says nothing."""
        if self.may_be_numbers and self._first_wrong is None:
            return np.isnan(np.concatenate(self._values))
        return np.array([is_missing(word) for word in self.words], bool)[self.codes]

    def find_row(self, word: str) -> int:
        """Finds the first row of a word, counted from 1."""
        return int(np.argmax(self.codes == self.words[word])) + 1

    def _add_words(self, cells: Texts) -> None:
        if not self.has_all_words:
            return
        codes = map(self.words.__getitem__, cells)
        self._codes.append(np.fromiter(codes, np.int32, len(cells)))
        if not self.has_all_words and find_formats(self.list_words()):
            self.most = None

    def _add_numbers(self, cells: Texts, values: NDArray[np.float64] | None) -> None:
        if values is None:
            if self._nonsense.issuperset(cells):
                return
            known = {word: parse_number(word) for word in set(cells)}
            holes = {word for word in known if is_missing(word)}
            wrong = {word for word, value in known.items() if not isfinite(value)} - holes
            self._nonsense |= wrong if self.has_all_words else set()
            others = len(known) - len(wrong) - len(holes)
            holed = sum(cell in holes for cell in cells) if holes else 0
            self._finite += sum(isfinite(known[cell]) for cell in cells) if others else 0
        else:
            self._values.append(values)
            finite = np.isfinite(values)
            if finite.all():
                self._finite += len(cells)
                return
            self._finite += int(finite.sum())
            holed = int(np.isnan(values).sum())
            first = holed and self._first_hole is None
            holes = {cell for cell in cells if is_missing(cell)} if first else set()
            infinite = np.isinf(values).any()
            wrong = {c for c in cells if abs(parse_number(c)) == INFINITE} if infinite else set()
        self._holes += holed
        if holes and self._first_hole is None:
            self._first_hole = self._find(cells, holes)
        if wrong and self._first_wrong is None:
            self._first_wrong = self._find(cells, wrong)

    def _find(self, cells: Texts, words: set[str]) -> tuple[int, str]:
        place = next(i for i, cell in enumerate(cells) if cell in words)
        return self.rows + 1 + place, cells[place]


def parse_numbers(cells: Texts) -> NDArray[np.float64] | None:
    """Turns cells into numbers, holes into nan; None where one is neither."""
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        pass
    try:
        return np.fromiter(map(_parse_cell, cells), np.float64, len(cells))
    except ValueError:
        return None


def _parse_cell(cell: str) -> float:
    try:
        return float(cell or NAN)
    except ValueError:
        if is_missing(cell):
            return NAN
        raise


@lru_cache(1024)  # words of a few columns, in every block
def parse_number(cell: str) -> float:
    """Turns a cell into a number, or nan if it is none."""
    try:
        return float(cell)
    except ValueError:
        return NAN
