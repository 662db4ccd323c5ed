"""The cells of a column: missing values, dates, spellings of names, words and numbers."""

import re
import reprlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
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

Texts = Sequence[str]

NAN = float("nan")
MISSING_EXACTLY = ("NA", "NaT", "?")
MISSING_IN_ANY_CASE = ("", "nan", "+nan", "-nan", "null", "n/a", "#n/a", "#na", "<na>")
PLAIN_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]*)?")  # 007 and 1e5 may be codes
NAMED_IN_NOTES = 5  # spellings
ISO = "iso"
ISO_FORM = re.compile(r"\d{4}-\d\d-\d\d([T ].+)?")  # of what ISO 8601 allows, what people write
FORMATS = (  # as datetime.strptime reads them
    *("%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y"),
    *("%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y"),
)
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}  # in days
MONDAY = 4.0  # the first after the origin, which was a Thursday
DAYS = "days"


@lru_cache(1024)  # words of a few columns, in every block
def is_missing(word: str) -> bool:
    """Whether a word stands for no value: white space, or what programs write for none.

    >>> [word for word in (" ", "nan", "NA", "null", "?", "Na", "-") if is_missing(word)]
    [' ', 'nan', 'NA', 'null', '?']
    """
    word = word.strip()
    return word in MISSING_EXACTLY or word.lower() in MISSING_IN_ANY_CASE


def empty_named(cells: Texts, values: tuple[str, ...]) -> Texts:
    """Empty the cells that have one of the values which stand for none, as words or numbers.

    >>> empty_named(["41", "-999.0", "unknown", "known"], ("-999", "unknown"))
    ['41', '', '', 'known']
    """
    numbers = {parse_number(value) for value in values} - {NAN}
    named = {c for c in set(cells) if c.strip() in values or parse_number(c) in numbers}
    return ["" if cell in named else cell for cell in cells] if named else cells


@lru_cache(1024)
def parse_number(cell: str) -> float:
    """Return a cell as a number, or nan if it is none."""
    try:
        return float(cell)
    except ValueError:
        return NAN


def parse_date(text: str, form: str = ISO) -> float:
    """Return the days since 1970, UTC; a moment without a time zone counts as UTC.

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


def find_formats(words: Texts) -> list[str]:
    """List the formats in which all words are dates, but for those that say the same.

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
    """Return an input of days: these, or sine or cosine of their place in a year, week or day.

    >>> make_part(np.array([4.0, 11.0]), "cos week").tolist()  # two Mondays
    [1.0, 1.0]
    """
    if part == DAYS:
        return days
    curve, cycle = part.split()
    start = MONDAY if cycle == "week" else 0.0
    angle = 2 * np.pi * (((days - start) / CYCLES[cycle]) % 1)
    return np.sin(angle) if curve == "sin" else np.cos(angle)


def list_parts(cycles: Texts) -> tuple[str, ...]:
    """List the inputs that a date becomes.

    >>> list_parts(["week"])
    ('days', 'sin week', 'cos week')
    """
    return (DAYS, *(f"{curve} {cycle}" for cycle in cycles for curve in ("sin", "cos")))


def natural_order(text: str) -> tuple[bool, float, str]:
    """Order numbers by their size, and words after them.

    >>> sorted(["10", "9", "b", "a"], key=natural_order)
    ['9', '10', 'a', 'b']
    """
    number = parse_number(text)
    return (False, number, text) if isfinite(number) else (True, 0.0, text)


class Spellings(NamedTuple):
    """The name that each word stands for, and a note on words that stand for one together."""

    names: dict[str, str]
    notes: tuple[str, ...]


def merge_spellings(words: Iterable[str], what: str, known: Texts = ()) -> Spellings:
    """Strip white space, and take numbers that are equal for one name, the shortest or `known`.

    >>> merge_spellings(["yes", "1.0", "1", "yes "], "the labels").notes
    ("in the labels '1.0' counts as '1', 'yes ' counts as 'yes'",)
    """

    def meaning(word: str) -> str | Decimal:
        word = word.strip()
        return Decimal(word) if PLAIN_NUMBER.fullmatch(word) else word

    words = list(words)
    shortest_first = sorted((word.strip() for word in words), key=lambda word: (len(word), word))
    found: dict[str | Decimal, str] = {}
    for name in (*known, *shortest_first):
        found.setdefault(meaning(name), name)
    names = {word: found[meaning(word)] for word in words}
    if len(set(names.values())) == len(names):
        return Spellings(names, ())
    merged = [
        f"{reprlib.repr(word)} counts as {reprlib.repr(names[word])}"
        for word in sorted(words)
        if word != names[word]
    ]
    more = f" and {len(merged) - NAMED_IN_NOTES:,} more" if len(merged) > NAMED_IN_NOTES else ""
    return Spellings(names, (f"in {what} {', '.join(merged[:NAMED_IN_NOTES])}{more}",))


def decode_texts(values: NDArray[Any]) -> NDArray[Any]:
    """Return texts, of whatever kind, as such, and other values as they are."""
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8", "backslashreplace")
    if values.dtype.kind == "O" and all(isinstance(value, str) for value in values.tolist()):
        return values.astype(str)
    return values


def refuse_missing_values(values: NDArray[Any], where: str, what: str) -> None:
    """Refuse an array with a row that has no value."""
    if values.dtype.kind == "U":
        words, numbers = np.unique(values, return_inverse=True)
        missing = np.array([is_missing(word) for word in words.tolist()], bool)[numbers]
    elif values.dtype.kind == "O":
        missing = np.array([value is None or value != value for value in values.tolist()], bool)
    else:
        missing = values != values  # nan is the one number that is not itself
    if missing.any():
        row = int(np.argmax(missing)) + 1
        raise IsthmusError(f"{where} has no {what} in row {row}; fill it, or delete the row")


class NumberedNames(NamedTuple):
    """Names in their order, and the number of the one that each row has."""

    names: tuple[str, ...]
    numbers: NDArray[np.int64]
    notes: tuple[str, ...]


def number_owners(values: NDArray[Any], where: str) -> NumberedNames:
    """Assign numbers to owners, in their order; refuse a row without one."""
    values = decode_texts(values)
    refuse_missing_values(values, where, "client")
    try:
        known, numbers = np.unique(values, return_inverse=True)
        if known.dtype.kind in "Vc":
            raise TypeError
    except TypeError:  # of objects that cannot be compared
        raise IsthmusError(
            f"{where} has clients of type {values.dtype}, which have no order; use numbers or names"
        ) from None
    if known.dtype.kind != "U":
        return NumberedNames(tuple(str(name) for name in known), numbers, ())
    spelled = merge_spellings(known.tolist(), "the clients")
    names, of_word = np.unique([*spelled.names.values()], return_inverse=True)
    return NumberedNames(tuple(names.tolist()), of_word[numbers], spelled.notes)


class Cells:
    """The cells of one column: as words while these are few, and as numbers if they may be any.

    Words are remembered beyond the limit where those up to it are dates.
    """

    def __init__(
        self, path: Path, name: str, most: int | None, may_be_numbers: bool, missing: Texts = ()
    ):
        self.path = path
        self.name = name
        self.most = most  # different words to remember; None: all of them
        self.may_be_numbers = may_be_numbers
        self.missing_values = tuple(missing)  # that stand for none besides the usual ones
        self.rows = 0
        # numbered in the order of their first rows: a new word gets the next number
        self.words: dict[str, int] = defaultdict(count().__next__)
        self._codes: list[NDArray[np.int32]] = []
        self._values: list[NDArray[np.float64]] = []  # as long as all cells are numbers or missing
        self._finite = 0
        self._missing = 0
        self._first_missing: tuple[int, str] | None = None  # a row, and how it is spelled
        self._first_word: tuple[int, str] | None = None  # a row that has no number, and its cell

    def add(self, cells: Texts) -> None:
        """Append the next rows."""
        if self.missing_values:
            cells = empty_named(cells, self.missing_values)
        if self.may_be_numbers:
            self._add_numbers(cells)
        if self.has_all_words:
            codes = map(self.words.__getitem__, cells)
            self._codes.append(np.fromiter(codes, np.int32, len(cells)))
            if not self.has_all_words and find_formats(self.list_words()):
                self.most = None
        self.rows += len(cells)

    def _add_numbers(self, cells: Texts) -> None:
        values = None
        if self._first_word is None:
            with suppress(ValueError):
                values = np.fromiter(map(float, cells), np.float64, len(cells))
        if values is not None and np.isfinite(values).all():
            self._finite += len(cells)
            self._values.append(values)
            return
        known = {word: parse_number(word) for word in set(cells)}
        words = {word for word, value in known.items() if not isfinite(value)}
        if len(words) < len(known):
            self._finite += sum(cell not in words for cell in cells)
        missing = {word for word in words if is_missing(word)}
        if missing:
            self._missing += sum(cell in missing for cell in cells)
            self._first_missing = self._first_missing or self._find(cells, missing)
        if words - missing:
            self._first_word = self._first_word or self._find(cells, words - missing)
        if self._first_word is None:
            self._values.append(np.fromiter(map(known.__getitem__, cells), np.float64, len(cells)))

    def _find(self, cells: Texts, words: set[str]) -> tuple[int, str]:
        place = next(i for i, cell in enumerate(cells) if cell in words)
        return self.rows + 1 + place, cells[place]

    @property
    def has_all_words(self) -> bool:
        """Whether there are few enough different words for all of them to be remembered."""
        return self.most is None or len(self.words) <= self.most

    @property
    def codes(self) -> NDArray[np.int32]:
        """The number of each row's word, up to the block with one word too many."""
        return np.concatenate(self._codes) if self._codes else np.empty(0, np.int32)

    def texts(self) -> list[str]:
        """List the cells."""
        words = list(self.words)
        return [words[code] for code in self.codes.tolist()]

    def are_numbers(self) -> bool:
        """Whether at least half of the cells that have a value are numbers."""
        return self._first_word is None or 2 * self._finite >= self.rows - self._missing

    def numbers(self) -> NDArray[np.float64]:
        """Return the cells as numbers, nan where one is missing; refuse what is neither."""
        if self._first_word is not None:
            row, cell = self._first_word
            raise self.refuse(
                cell,
                row,
                f"a number; correct it, or leave the column out with --set drop={self.name}",
            )
        return np.concatenate(self._values)

    def convert(self, read: Callable[[str], float], expected: str) -> NDArray[np.float64]:
        """Return what words are read as, nan where one is missing; `read` raises ValueError."""
        values = np.full(len(self.words), NAN)
        for word, place in self.words.items():
            if not is_missing(word):
                try:
                    values[place] = read(word)
                except ValueError:
                    raise self.refuse(word, None, expected) from None
        return values[self.codes]

    def refuse(self, word: str, row: int | None, expected: str) -> IsthmusError:
        """Return the error that names a cell by its column and row, and what it should be."""
        row = int(np.argmax(self.codes == self.words[word])) + 1 if row is None else row
        given = reprlib.repr(word) if word.strip() else "nothing"
        wanted, separator, advice = expected.partition("; ")
        return IsthmusError(
            f"{self.path} has {given} in column {self.name!r}, row {row}, where {wanted} is needed"
            f"{separator}{advice}"
        )

    def list_words(self, with_missing: bool = False) -> list[str]:
        """List the different words, those for no value only where these count as words."""
        return [word for word in self.words if with_missing or not is_missing(word)]

    def refuse_missing(self, blank: bool = False) -> None:
        """Refuse a column in which a value is missing; with `blank`, one with an empty cell."""
        row, word = self._first_missing or (None, None)
        if word is None:
            lacks: Callable[[str], bool] = (lambda word: not word.strip()) if blank else is_missing
            word = next((word for word in self.words if lacks(word)), None)
        if word is not None:
            raise self.refuse(
                word,
                row,
                f"a value; fill it, delete the row, leave the column out with --set "
                f"drop={self.name}, or fill all such cells with --set missing=mean",
            )

    def find_missing(self) -> NDArray[np.bool_]:
        """Return for each row whether its value is missing."""
        if self.may_be_numbers and self._first_word is None:
            return np.isnan(np.concatenate(self._values))
        return np.array([is_missing(word) for word in self.words], bool)[self.codes]
