"""The rows of a table: numbers stay numbers, words become a 0 or 1 for each that occurs."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.own_files import find_own_files
from isthmus.data.sources.array_files import natural_order, number_labels, number_parts
from isthmus.data.sources.arrays import CLIENT, SUMS, TEST, Arrays, Column
from isthmus.data.sources.spellings import Spellings, is_missing, merge_spellings
from isthmus.data.table_reader import (
    Cells,
    TableFile,
    check_memory,
    open_table,
    parse_number,
    read_columns,
)
from isthmus.errors import IsthmusError
from isthmus.ranges import PositiveInt

MANY = 20  # classes, if they are numbers with a fraction


class Roles(NamedTuple):
    """What the columns of a table are for."""

    label: str
    client: str | None
    split: str | None
    inputs: tuple[str, ...]

    def words(self) -> list[str]:
        """Lists the columns that are words whatever is in them."""
        return [name for name in (self.label, self.client, self.split) if name]


class TableContents(NamedTuple):
    """What the inputs and the classes of a table are."""

    columns: tuple[Column, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Own rows of a CSV or Parquet file: a label, whose the row is, and columns to learn from."""

    path: str = ""
    label: str = "label"  # the column of the classes; without one of this name, `y`
    client: str = "client"  # the column that says whose a row is; empty: there is none
    split: str = ""  # a column that says train, validation or test
    columns: str = ""  # names with commas between: learn from these; empty: from all others
    drop: str = ""  # not from these
    categorical: str = ""  # numbers that are names: postcodes, codes of wards
    categories: PositiveInt = 50  # different words that a column may have
    standardise: bool | Literal["sums", "client"] = True  # numbers to mean 0 and deviation 1
    delimiter: str = ""  # of a CSV file; empty: the one its first line has most of

    clients: ClassVar[int] = 0
    model: ClassVar[str] = "mlp"
    partition: ClassVar[str] = "natural"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the file."""
        table = open_table(find_own_files(self.path, root), self.delimiter)
        roles = self._roles(table)
        cells = read_columns(table, roles.words(), roles.inputs, self.categories)
        return self._build_arrays(table, roles, cells, self._survey(table, roles, cells), None)

    def like(self, path: Path, other: Arrays | None) -> Arrays:
        """Reads rows as those of other data were read: the same columns, classes and scales."""
        if other is None or not other.columns:
            raise IsthmusError(
                f"{path} is a table, and the run's data are none; expected inputs as in the run; "
                "give an .npz file of arrays x and y"
            )
        table = open_table(path, self.delimiter)
        inputs = _list_inputs(table, other)
        label = self._label(table)
        client = self.client if self.client in table.header else None  # one newcomer needs none
        split = self._check_column(table, "split", self.split) if self.split else None
        roles = Roles(label, client, split, inputs)
        most = max(self.categories, len(other.columns))
        cells = read_columns(table, roles.words(), inputs, most)
        return self._build_arrays(
            table, roles, cells, TableContents(other.columns, other.labels), other
        )

    def read_inputs(self, path: Path, other: Arrays) -> NDArray[Any]:
        """Reads rows as inputs of a model that learned from other data; labels are not needed."""
        table = open_table(path, self.delimiter)
        inputs = _list_inputs(table, other)
        cells = read_columns(table, (), inputs, max(self.categories, len(other.columns)))
        rows = cells[inputs[0]].rows
        check_memory(table, rows, len(other.columns))
        values = _read_numbers(other.columns, cells, rows)
        kind = np.float64 if other.scaled_by else np.float32
        return _join(other.columns, values, _place_words(other.columns, cells), table, kind)

    def _roles(self, table: TableFile) -> Roles:
        label = self._label(table)
        client = self._check_column(table, "client", self.client) if self.client else None
        split = self._check_column(table, "split", self.split) if self.split else None
        taken = {label, client, split}
        if len(taken - {None}) < sum(name is not None for name in (label, client, split)):
            raise IsthmusError(
                f"label={label}, client={client}, split={split}; expected three different columns; "
                "name others"
            )
        dropped = {self._check_column(table, "drop", name) for name in _names(self.drop)}
        wanted = [self._check_column(table, "columns", name) for name in _names(self.columns)]
        inputs = [n for n in wanted or table.header if n and n not in taken and n not in dropped]
        for name in _names(self.categorical):
            self._check_column(table, "categorical", name)
        if not inputs:
            raise IsthmusError(
                f"{table.path} has no column left to learn from; expected at least one besides "
                f"{', '.join(sorted(name for name in taken if name))}; drop fewer"
            )
        return Roles(label, client, split, tuple(inputs))

    def _label(self, table: TableFile) -> str:
        short = self.label == "label" and "label" not in table.header and "y" in table.header
        return "y" if short else self._check_column(table, "label", self.label)

    def _check_column(self, table: TableFile, option: str, name: str) -> str:
        if name in table.header:
            return name
        columns = [column for column in table.header if column]
        listed = ", ".join(columns[:30]) + (", ..." if len(columns) > 30 else "")
        remedy = f"add --set {option}=COLUMN"
        if option == "client":
            remedy += ", or --set 'client=\"\"' and a partition"
        raise IsthmusError(
            f"{table.path} has no column {name!r} for {option}; its columns are {listed}; {remedy}"
        )

    def _survey(self, table: TableFile, roles: Roles, cells: Mapping[str, Cells]) -> TableContents:
        labels = cells[roles.label]
        if not labels.rows:
            raise IsthmusError(
                f"{table.path} has a header and no rows; expected at least one; fill it"
            )
        columns: list[Column] = []
        categorical = set(_names(self.categorical))
        for name in roles.inputs:
            if name not in categorical and cells[name].are_numbers():
                columns.append(Column(name, None))
            else:
                self._check_categories(cells[name])
                columns += [
                    Column(name, word) for word in sorted(cells[name].words, key=natural_order)
                ]
        classes = sorted(set(_name_words(labels).names.values()), key=natural_order)
        _check_classes(labels, classes)
        return TableContents(tuple(columns), tuple(classes))

    def _check_categories(self, cells: Cells) -> None:
        if len(cells.words) > self.categories:
            raise IsthmusError(
                f"{cells.path} has more than {self.categories} different words in column "
                f"{cells.name!r}, such as {reprlib.repr(min(cells.words))}; expected numbers or a "
                f"few categories; leave it out with --set drop={cells.name}, or raise categories"
            )

    def _build_arrays(
        self,
        table: TableFile,
        roles: Roles,
        cells: Mapping[str, Cells],
        contents: TableContents,
        other: Arrays | None,
    ) -> Arrays:
        columns = contents.columns
        labels = cells[roles.label]
        check_memory(table, labels.rows, len(columns))
        split = number_parts(cells[roles.split].texts()) if roles.split else None
        places = _place_words(columns, cells)
        values = _read_numbers(columns, cells, labels.rows)
        later = other.scaled_by if other is not None else str(self.standardise).lower()
        later = later if later in (SUMS, CLIENT) else ""
        if other is None and self.standardise and not later:
            columns = _find_scales(columns, values if split is None else values[split != TEST])
        named = _name_words(labels, contents.labels)
        y = number_labels(named.names.values(), contents.labels, table.path)[labels.codes]
        notes = named.notes
        if "" in table.header:
            notes = ("a column without a name was left out", *notes)
        names: tuple[str, ...] = ()
        owner = None
        if roles.client:
            clients = cells[roles.client]
            named = _name_words(clients)
            names = tuple(sorted(set(named.names.values()), key=natural_order))
            owner = number_labels(named.names.values(), names, table.path)[clients.codes]
            notes += named.notes
        return Arrays(
            _join(columns, values, places, table, np.float64 if later else np.float32),
            y,
            np.zeros((0, len(columns)), np.float32),
            np.zeros(0, np.int64),
            classes=len(contents.labels),
            owner=owner,
            names=names,
            split=split,
            labels=contents.labels,
            columns=columns,
            scaled_by=later,
            notes=notes,
        )


def _list_inputs(table: TableFile, other: Arrays) -> tuple[str, ...]:
    """Names the columns of other data, all of which a table has to have."""
    inputs = tuple(dict.fromkeys(column.name for column in other.columns))
    for name in inputs:
        if name not in table.header:
            raise IsthmusError(
                f"{table.path} has no column {name!r}, which the run's data have; expected "
                f"{', '.join(inputs)}; add it"
            )
    return inputs


def _read_numbers(
    columns: Sequence[Column], cells: Mapping[str, Cells], rows: int
) -> NDArray[np.float64]:
    """Gives the columns of numbers side by side."""
    numbers = [column.name for column in columns if column.category is None]
    # Numbers in two columns or more are added up row by row, in one alone by pairs: means would
    # differ in their last bits with the columns of words beside it.
    values = np.zeros((rows, max(len(numbers), min(len(columns), 2))))
    for place, name in enumerate(numbers):
        values[:, place] = cells[name].numbers()
    return values


def _place_words(
    columns: Sequence[Column], cells: Mapping[str, Cells]
) -> dict[str, NDArray[np.int64]]:
    """Finds for each column of words at which input its rows have a 1."""
    places: dict[str, dict[str, int]] = {}
    for place, column in enumerate(columns):
        if column.category is not None:
            places.setdefault(column.name, {})[column.category] = place
    for name, known in places.items():
        word = next((word for word in cells[name].words if word not in known), None)
        if word is not None:
            raise IsthmusError(
                f"{cells[name].path} has {reprlib.repr(word)} in column {name!r}, row "
                f"{cells[name].find_row(word)}; expected one of {reprlib.repr(sorted(known))}, as "
                "before; correct it"
            )
    return {
        name: np.array([known[word] for word in cells[name].words])[cells[name].codes]
        for name, known in places.items()
    }


def _find_scales(columns: Sequence[Column], values: NDArray[np.float64]) -> tuple[Column, ...]:
    with np.errstate(over="ignore", invalid="ignore"):
        scales = zip(values.mean(axis=0).tolist(), values.std(axis=0).tolist(), strict=True)
    result = []
    for column in columns:
        if column.category is None:
            mean, std = next(scales)
            column = column._replace(mean=mean, std=std if std > 0 else 1.0)
        result.append(column)
    return tuple(result)


def _join(
    columns: Sequence[Column],
    values: NDArray[np.float64],
    words: Mapping[str, NDArray[np.int64]],
    table: TableFile,
    kind: type[np.floating[Any]] = np.float32,
) -> NDArray[Any]:
    """Makes an input of each row: numbers scaled, and 1 at the place of each word."""
    places = [place for place, column in enumerate(columns) if column.category is None]
    scales = np.array([columns[place][2:] for place in places]).reshape(-1, 2)
    values = values[:, : len(places)]
    with np.errstate(over="ignore", invalid="ignore"):
        values -= scales[:, 0]
        values /= scales[:, 1]
        numbers = values.astype(np.float32)
    usable = np.isfinite(scales[:, 1])  # else all would become 0
    wrong = np.flatnonzero(~(np.isfinite(numbers).all(axis=0) & usable))
    if len(wrong):
        name = columns[places[wrong[0]]].name
        raise IsthmusError(
            f"{table.path} has numbers in column {name!r} that are too large; expected them below "
            f"1e38; divide them, or leave the column out with --set drop={name}"
        )
    result = np.zeros((len(values), len(columns)), kind)
    result[:, places] = numbers if kind is np.float32 else values
    every = np.arange(len(values))
    for row_places in words.values():
        result[every, row_places] = 1
    return result


def _name_words(cells: Cells, known: Sequence[str] = ()) -> Spellings:
    """Finds what each word of a column of names stands for; refuses a row without one."""
    missing = next((word for word in cells.words if is_missing(word)), None)
    if missing is not None:
        raise IsthmusError(
            f"{cells.path} has {reprlib.repr(missing)} in column {cells.name!r}, row "
            f"{cells.find_row(missing)}; expected a value; fill it, or delete the row"
        )
    return merge_spellings(cells.words, f"column {cells.name!r}", known)


def _check_classes(labels: Cells, classes: Sequence[str]) -> None:
    numbers = np.array([parse_number(label) for label in classes])
    fractions = bool(np.isfinite(numbers).all() and (numbers % 1).any())
    measured = len(classes) > (MANY if fractions else max(labels.rows // 2, 2))
    if measured or len(classes) < 2:
        raise IsthmusError(
            f"{labels.path} has {len(classes)} different values in column {labels.name!r} in "
            f"{labels.rows} rows, such as {reprlib.repr(min(classes))}; expected two classes "
            "or more, each of several rows; name another column with --set label=COLUMN"
        )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
