"""The rows of a table: numbers stay numbers, words become a 0 or 1 for each that occurs.

The file is read twice: once to see what its columns hold, once to make inputs of them.
"""

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.own_files import found
from isthmus.data.sources.array_files import natural, numbered, part_numbers
from isthmus.data.sources.arrays import TEST, Arrays, Column
from isthmus.data.table_reader import Cells, Sheet, floats, is_number, numbers, opened, words
from isthmus.errors import IsthmusError
from isthmus.ranges import PositiveInt
from isthmus.system.machine import free_memory

MANY = 20  # classes, if they are numbers with a fraction


class Roles(NamedTuple):
    """What the columns of a table are for."""

    label: str
    client: str | None
    split: str | None
    inputs: tuple[str, ...]


class Seen(NamedTuple):
    """What a first look at a table's rows found."""

    rows: int
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
    standardise: bool = True  # numbers to mean 0 and deviation 1 over all rows but test rows
    delimiter: str = ""  # of a CSV file; empty: the one its first line has most of

    clients: ClassVar[int] = 0
    model: ClassVar[str] = "mlp"
    partition: ClassVar[str] = "natural"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the file."""
        sheet = opened(found(self.path, root), self.delimiter)
        roles = self._roles(sheet)
        return self._arrays(sheet, roles, self._survey(sheet, roles), None)

    def like(self, path: Path, other: Arrays | None) -> Arrays:
        """Reads rows as those of other data were read: the same columns, classes and scales."""
        if other is None or not other.columns:
            raise IsthmusError(
                f"{path} is a table, and the run's data are none; expected inputs as in the run; "
                "give an .npz file of arrays x and y"
            )
        sheet = opened(path, self.delimiter)
        inputs = tuple(dict.fromkeys(column.name for column in other.columns))
        label = self._label(sheet)
        client = self.client if self.client in sheet.header else None  # one newcomer needs none
        split = self._known(sheet, "split", self.split) if self.split else None
        for name in inputs:
            if name not in sheet.header:
                raise IsthmusError(
                    f"{path} has no column {name!r}, which the run's data have; expected "
                    f"{', '.join(inputs)}; add it"
                )
        rows = sum(len(cells[0]) for _, cells in sheet.blocks([label]))
        roles = Roles(label, client, split, inputs)
        return self._arrays(sheet, roles, Seen(rows, other.columns, other.labels), other)

    def _roles(self, sheet: Sheet) -> Roles:
        label = self._label(sheet)
        client = self._known(sheet, "client", self.client) if self.client else None
        split = self._known(sheet, "split", self.split) if self.split else None
        taken = {label, client, split}
        if len(taken - {None}) < sum(name is not None for name in (label, client, split)):
            raise IsthmusError(
                f"label={label}, client={client}, split={split}; expected three different columns; "
                "name others"
            )
        dropped = {self._known(sheet, "drop", name) for name in _names(self.drop)}
        wanted = [self._known(sheet, "columns", name) for name in _names(self.columns)]
        inputs = [n for n in wanted or sheet.header if n and n not in taken and n not in dropped]
        for name in _names(self.categorical):
            self._known(sheet, "categorical", name)
        if not inputs:
            raise IsthmusError(
                f"{sheet.path} has no column left to learn from; expected at least one besides "
                f"{', '.join(sorted(name for name in taken if name))}; drop fewer"
            )
        return Roles(label, client, split, tuple(inputs))

    def _label(self, sheet: Sheet) -> str:
        short = self.label == "label" and "label" not in sheet.header and "y" in sheet.header
        return "y" if short else self._known(sheet, "label", self.label)

    def _known(self, sheet: Sheet, option: str, name: str) -> str:
        if name in sheet.header:
            return name
        columns = [column for column in sheet.header if column]
        listed = ", ".join(columns[:30]) + (", ..." if len(columns) > 30 else "")
        remedy = f"add --set {option}=COLUMN"
        if option == "client":
            remedy += ", or --set client= and a partition"
        raise IsthmusError(
            f"{sheet.path} has no column {name!r} for {option}; its columns are {listed}; {remedy}"
        )

    def _survey(self, sheet: Sheet, roles: Roles) -> Seen:
        rows, labels, count = 0, set[str](), dict.fromkeys(roles.inputs, 0)
        seen: dict[str, set[str]] = {name: set() for name in roles.inputs}
        for first, (label, *cells) in sheet.blocks([roles.label, *roles.inputs]):
            rows += len(label)
            labels.update(words(sheet, roles.label, first, label))
            for name, column in zip(roles.inputs, cells, strict=True):
                words(sheet, name, first, column)
                count[name] += len(column) if floats(column) is not None else _count(column)
                if len(seen[name]) <= self.categories:
                    seen[name].update(column)
        if not rows:
            raise IsthmusError(
                f"{sheet.path} has a header and no rows; expected at least one; fill it"
            )
        columns: list[Column] = []
        for name in roles.inputs:
            if name not in _names(self.categorical) and 2 * count[name] >= rows:
                columns.append(Column(name, None))
            else:
                self._few(sheet, name, seen[name])
                columns += [Column(name, word) for word in sorted(seen[name], key=natural)]
        _check_classes(sheet, roles.label, labels, rows)
        return Seen(rows, tuple(columns), tuple(sorted(labels, key=natural)))

    def _few(self, sheet: Sheet, name: str, seen: set[str]) -> None:
        if len(seen) > self.categories:
            raise IsthmusError(
                f"{sheet.path} has more than {self.categories} different words in column {name!r}, "
                f"such as {reprlib.repr(min(seen))}; expected numbers or a few categories; leave "
                f"it out with --set drop={name}, or raise categories"
            )

    def _arrays(self, sheet: Sheet, roles: Roles, seen: Seen, other: Arrays | None) -> Arrays:
        needed, free = 12 * seen.rows * len(seen.columns), free_memory()
        if free is not None and needed > free:
            raise IsthmusError(
                f"{sheet.path} needs {needed / 1e6:,.0f} MB, {free / 1e6:,.0f} MB are free; "
                "expected it to fit; lower categories, or drop columns"
            )
        x = np.empty((seen.rows, len(seen.columns)))
        labels: Cells = []
        clients: Cells = []
        parts: list[NDArray[np.int8]] = []
        others = [name for name in (roles.client, roles.split) if name]
        for first, (label, *cells) in sheet.blocks([roles.label, *others, *roles.inputs]):
            labels += words(sheet, roles.label, first, label)
            if roles.client:
                clients += words(sheet, roles.client, first, cells.pop(0))
            if roles.split:
                parts.append(part_numbers(words(sheet, roles.split, first, cells.pop(0)), first))
            by_name = dict(zip(roles.inputs, cells, strict=True))
            _fill(x[first - 1 : first - 1 + len(label)], sheet, seen.columns, first, by_name)
        split = np.concatenate(parts) if parts else None
        columns = seen.columns
        if other is None and self.standardise:
            columns = _scales(columns, x if split is None else x[split != TEST])
        names = tuple(sorted(set(clients), key=natural))
        return Arrays(
            _scaled(x, columns, sheet),
            numbered(labels, seen.labels, sheet.path),
            np.zeros((0, len(columns)), np.float32),
            np.zeros(0, np.int64),
            classes=len(seen.labels),
            owner=numbered(clients, names, sheet.path) if roles.client else None,
            names=names,
            split=split,
            labels=seen.labels,
            columns=columns,
            notes=("a column without a name was left out",) if "" in sheet.header else (),
        )


def _fill(
    x: NDArray[np.float64],
    sheet: Sheet,
    columns: Sequence[Column],
    first: int,
    cells: dict[str, Cells],
) -> None:
    known: dict[str, set[str]] = {}
    for column in columns:
        if column.category is not None:
            known.setdefault(column.name, set()).add(column.category)
    for name, words_known in known.items():
        for row, cell in enumerate(words(sheet, name, first, cells[name])):
            if cell not in words_known:
                raise IsthmusError(
                    f"{sheet.path} has {reprlib.repr(cell)} in column {name!r}, row {first + row}; "
                    f"expected one of {reprlib.repr(sorted(words_known))}, as before; correct it"
                )
    for place, column in enumerate(columns):
        if column.category is None:
            x[:, place] = numbers(sheet, column.name, first, cells[column.name])
        else:
            x[:, place] = [cell == column.category for cell in cells[column.name]]


def _scales(columns: Sequence[Column], x: NDArray[np.float64]) -> tuple[Column, ...]:
    with np.errstate(over="ignore", invalid="ignore"):
        means, stds = x.mean(axis=0), x.std(axis=0)
    return tuple(
        column
        if column.category is not None
        else column._replace(mean=float(mean), std=float(std) if std > 0 else 1.0)
        for column, mean, std in zip(columns, means, stds, strict=True)
    )


def _scaled(x: NDArray[np.float64], columns: Sequence[Column], sheet: Sheet) -> NDArray[np.float32]:
    with np.errstate(over="ignore", invalid="ignore"):
        for place, column in enumerate(columns):
            x[:, place] = (x[:, place] - column.mean) / column.std
        result = x.astype(np.float32)
    scaled = np.isfinite([column.std for column in columns])  # else all would become 0
    wrong = np.flatnonzero(~(np.isfinite(result).all(axis=0) & scaled))
    if len(wrong):
        name = columns[wrong[0]].name
        raise IsthmusError(
            f"{sheet.path} has numbers in column {name!r} that are too large; expected them below "
            f"1e38; divide them, or leave the column out with --set drop={name}"
        )
    return result


def _check_classes(sheet: Sheet, name: str, labels: set[str], rows: int) -> None:
    fractions = all(is_number(label) for label in labels) and any(
        float(label) % 1 for label in labels
    )
    measured = len(labels) > (MANY if fractions else max(rows // 2, 2))
    if measured or len(labels) < 2:
        raise IsthmusError(
            f"{sheet.path} has {len(labels)} different values in column {name!r} in {rows} rows, "
            f"such as {reprlib.repr(min(labels))}; expected two classes or more, each of several "
            "rows; name another column with --set label=COLUMN"
        )


def _count(cells: Cells) -> int:
    return sum(is_number(cell) for cell in cells)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
