"""The cells of a column: missing values, dates, spellings of names, words and numbers."""

import re
import reprlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from functools import lru_cache, partial
from itertools import count
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.errors import IsthmusError

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


ISO = "iso"
ISO_FORM = re.compile(r"\d{4}-\d\d-\d\d([T ].+)?")  # of what ISO 8601 allows, what people write
FORMATS = (  # as datetime.strptime reads them
    *("%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y"),
    *("%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y"),
)
EXAMPLES = {ISO: "2024-01-31"} | {
    form: datetime(2024, 1, 31).strftime(form) for form in FORMATS if "%B" not in form
}
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}  # in days
MONDAY = 4.0  # the first after the origin, which was a Thursday
DAYS = "days"


def parse_date(text: str, form: str = ISO) -> float:
    """Gives the days since 1970, UTC; a moment without a time zone counts as UTC.

    >>> parse_date("1970-01-02"), parse_date("1970-01-01T12:00"), parse_date("3.1.1970", "%d.%m.%Y")
    (1.0, 0.5, 2.0)
    """
    text = text.strip()
    if form == ISO and not ISO_FORM.fullmatch(text):
        raise ValueError(f"{text!r} is no date in ISO form")
    moment = datetime.fromisoformat(text) if form == ISO else datetime.strptime(text, form)
    apart = (moment.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()
    ahead = moment.utcoffset()
    return (apart - (ahead.total_seconds() if ahead else 0.0)) / 86_400


def find_formats(words: Sequence[str]) -> list[str]:
    """Lists the formats in which all words are dates, but for those that say the same.

    >>> find_formats(["31/01/2024", "01/02/2024"]), find_formats(["03/04/2024"])
    (['%d/%m/%Y'], ['%d/%m/%Y', '%m/%d/%Y'])
    """
    found: dict[tuple[float, ...], str] = {}
    for form in (ISO, *FORMATS):
        try:
            days = tuple(map(partial(parse_date, form=form), words))
        except ValueError:
            continue
        if days:
            found.setdefault(days, form)
    return list(found.values())


def make_part(days: NDArray[np.float64], part: str) -> NDArray[Any]:
    """Makes an input of days: these, or sine or cosine of their place in a year, week or day.

    >>> make_part(np.array([4.0, 11.0]), "cos week").tolist()  # two Mondays
    [1.0, 1.0]
    """
    if part == DAYS:
        return days
    curve, cycle = part.split()
    start = MONDAY if cycle == "week" else 0.0
    angle = 2 * np.pi * (((days - start) / CYCLES[cycle]) % 1)
    return np.sin(angle) if curve == "sin" else np.cos(angle)


def list_parts(cycles: Sequence[str]) -> tuple[str, ...]:
    """Names the inputs that a date becomes.

    >>> list_parts(["week"])
    ('days', 'sin week', 'cos week')
    """
    return (DAYS, *(f"{curve} {cycle}" for cycle in cycles for curve in ("sin", "cos")))


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
