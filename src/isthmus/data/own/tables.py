"""The rows of a table: numbers stay numbers, words become a 0 or 1 for each that occurs."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import CLIENT as EACH_CLIENT
from isthmus.data.arrays import REFUSE, SUMS, TEST, Arrays, Column
from isthmus.data.own.arrays import MOST, number_labels, number_splits
from isthmus.data.own.cells import (
    Cells,
    Spellings,
    is_missing,
    merge_spellings,
    natural_order,
    parse_number,
)
from isthmus.data.own.columns import (
    CATEGORY,
    NUMBER,
    ColumnRule,
    Missing,
    complete_rule,
    find_scales,
    join_inputs,
    list_names,
    make_columns,
    read_cells,
)
from isthmus.data.own.own_files import find_own_files
from isthmus.data.own.reader import TableFile, check_memory, open_table, read_columns
from isthmus.data.own.schema import (
    CLIENT,
    LABEL,
    NO_INPUTS,
    SPLIT,
    WEIGHT,
    TableRoles,
    find_roles,
    read_rules,
)
from isthmus.errors import IsthmusError
from isthmus.ranges import PositiveInt

MANY = 20  # classes, if they are numbers with a fraction
NAMED_IN_NOTES = 5  # columns
# Options that a schema replaces, and their defaults.
ROLE_OPTIONS = {"label": "label", "client": "client"} | dict.fromkeys(
    ("split", "weight", "columns", "drop", "categorical"), ""
)

Rules = Mapping[str, ColumnRule]


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
    missing: Missing = "refuse"  # numbers that are missing: filled by what clients train on
    missing_values: str | int | float = ""  # that stand for none, with commas between: -999,unknown
    standardise: bool | Literal["sums", "client"] = True  # numbers to mean 0 and deviation 1
    weight: str = ""  # a column that says how much a row counts in training
    schema: str | Mapping[str, Any] = ""  # what each column is: a file of isthmus data schema
    delimiter: str = ""  # of a CSV file; empty: the one its first line has most of

    clients: ClassVar[int] = 0
    model: ClassVar[str] = "mlp"
    partition: ClassVar[str] = "natural"

    def load(self, root: Path, seed: int) -> Arrays:
        """Read the file."""
        table = open_table(find_own_files(self.path, root), self.delimiter)
        rules = self._follow_schema(table, root) if self.schema else self._follow_options(table)
        roles = find_roles(rules)
        inputs = [name for name, rule in rules.items() if rule.kind not in NO_INPUTS]
        if not inputs:
            raise IsthmusError(f"{table.path} has no column left to learn from; drop fewer")
        numbers = [name for name in inputs if rules[name].kind in ("", NUMBER)]
        words = [name for name in inputs if rules[name].kind not in ("", NUMBER)]
        missing_values = {name: rules[name].missing_values for name in inputs}
        words = [*roles.names(), *words]
        cells = read_columns(table, words, numbers, self.categories, missing_values)
        rows = cells[roles.label].rows
        _check_rows(table, rows)
        split = number_splits(cells[roles.split].texts()) if roles.split else None
        learned: Any = slice(None) if split is None else split != TEST
        columns: list[Column] = []
        lacking: list[str] = []
        for name in inputs:
            rule = complete_rule(rules[name], cells[name], self.categories)
            strict = rule.missing == REFUSE
            missing = np.zeros(rows, bool) if strict else cells[name].find_missing()
            columns += make_columns(name, rule, missing[learned], bool(self.standardise))
            if missing.any():
                lacking.append(f"{name} {int(missing.sum()):,}")
        notes = [f"of {rows:,} rows these miss a value: {_list_some(lacking)}"] if lacking else []
        left_out = [name for name in table.header if name and name not in rules]
        if self.schema and left_out:
            notes.append(f"columns that the schema lacks were left out: {_list_some(left_out)}")
        classes: Sequence[str] = rules[roles.label].categories
        if not classes:
            labels = cells[roles.label]
            classes = sorted(set(_name_words(labels).names.values()), key=natural_order)
            _check_classes(labels, classes)
        scaled_by = self._scaled_by(columns)
        scaled_now = bool(self.standardise) and not scaled_by
        return _read_arrays(
            table, roles, cells, columns, classes, scaled_by, scaled_now, learned, notes
        )

    def like(self, path: Path, other: Arrays | None) -> Arrays:
        """Read rows as those of other data were read: the same columns, classes and scales."""
        if other is None or not other.columns:
            raise IsthmusError(
                f"{path} is a table, and the run's data are none; give an .npz file of arrays x "
                "and y, as in the run"
            )
        table = open_table(path, self.delimiter)
        if self.schema:
            roles = find_roles(read_rules(self.schema, REFUSE, Path()))
        else:
            roles = TableRoles(self._label(table), self.client, self.split, self.weight)
        for option in (LABEL, SPLIT, WEIGHT):
            if name := getattr(roles, option):
                self._check_column(table, "the schema" if self.schema else option, name)
        if roles.client not in table.header:  # a table of one client need not say whose it is
            roles = roles._replace(client=None)
        cells = _read_like(table, roles.names(), other)
        _check_rows(table, cells[roles.label].rows)
        return _read_arrays(
            table, roles, cells, other.columns, other.labels, other.scaled_by, False, (), ()
        )

    def read_inputs(self, path: Path, other: Arrays) -> Arrays:
        """Read rows as inputs of a model that learned from other data; labels are not needed."""
        table = open_table(path, self.delimiter)
        cells = _read_like(table, (), other)
        rows = next(iter(cells.values())).rows
        _check_rows(table, rows)
        check_memory(table, rows, len(other.columns))
        raw = read_cells(other.columns, cells, rows)
        kind = np.float64 if other.scaled_by else np.float32
        x = join_inputs(other.columns, raw, path, kind)
        return other._replace(x=x, y=np.zeros(len(x), np.int64), notes=raw.notes)

    def _follow_options(self, table: TableFile) -> Rules:
        """Return what the columns are, as options say; what is left open is found out later."""
        given = {LABEL: self._label(table), CLIENT: self.client}
        given |= {SPLIT: self.split, WEIGHT: self.weight}
        roles = {kind: name for kind, name in given.items() if name}
        for kind, name in roles.items():
            self._check_column(table, kind, name)
        if len(set(roles.values())) < len(roles):
            listed = ", ".join(f"{kind}={name}" for kind, name in roles.items())
            raise IsthmusError(f"{listed}: these must be different columns")
        chosen = {option: _names(getattr(self, option)) for option in ("columns", "drop")}
        chosen["categorical"] = _names(self.categorical)
        for option, names in chosen.items():
            for name in names:
                self._check_column(table, option, name)
        left_out = {*roles.values(), *chosen["drop"], ""}
        kinds = {name: kind for kind, name in roles.items()}
        categorical = set(chosen["categorical"])
        for name in chosen["columns"] or table.header:
            if name not in left_out:
                kinds[name] = CATEGORY if name in categorical else ""
        values = self.list_missing_values()
        return {
            name: ColumnRule(kind, self.missing, missing_values=values)
            for name, kind in kinds.items()
        }

    def _follow_schema(self, table: TableFile, root: Path) -> Rules:
        rules = read_rules(self.schema, self.missing, root, self.list_missing_values())
        roles = find_roles(rules)
        for option, usual in ROLE_OPTIONS.items():
            given = getattr(self, option)
            if given not in (usual, getattr(roles, option, None)):
                raise IsthmusError(
                    f"{option}={given} contradicts the schema, which says what columns are; change "
                    "it there"
                )
        for name in rules:
            self._check_column(table, "the schema", name)
        return rules

    def list_missing_values(self) -> tuple[str, ...]:
        """List what stands for no value besides what always does."""
        return tuple(_names(str(self.missing_values)))

    def _label(self, table: TableFile) -> str:
        short = self.label == "label" and "label" not in table.header and "y" in table.header
        return "y" if short else self.label

    def _check_column(self, table: TableFile, option: str, name: str) -> None:
        if name in table.header:
            return
        columns = [column for column in table.header if column]
        listed = ", ".join(columns[:30]) + (", ..." if len(columns) > 30 else "")
        remedy = f"add --set {option}=COLUMN"
        if option == "the schema":
            remedy = "add the column, or correct the schema"
        if option == "client":
            remedy += ", or --set 'client=\"\"' and a partition"
        raise IsthmusError(
            f"{table.path} has no column {name!r} for {option}; its columns are {listed}; {remedy}"
        )

    def _scaled_by(self, columns: Sequence[Column]) -> str:
        """Return from whom scales are learned once the data are divided; empty: from no one."""
        if self.standardise in (SUMS, EACH_CLIENT):
            return str(self.standardise)
        return SUMS if any(column.missing != REFUSE for column in columns) else ""


def _read_arrays(
    table: TableFile,
    roles: TableRoles,
    cells: Mapping[str, Cells],
    columns: Sequence[Column],
    classes: Sequence[str],
    scaled_by: str,
    scaled_now: bool,
    learned: Any,
    notes: Sequence[str],
) -> Arrays:
    """Join the inputs, labels and owners of a table's rows; scales are of the `learned` rows."""
    labels = cells[roles.label]
    check_memory(table, labels.rows, len(columns))
    raw = read_cells(columns, cells, labels.rows)
    if scaled_now:
        columns = find_scales(columns, raw.values[learned])
    named = _name_words(labels, classes)
    nameless = ["a column without a name was left out"] if "" in table.header else []
    notes = [*nameless, *notes, *raw.notes, *named.notes]
    names: tuple[str, ...] = ()
    owner = None
    if roles.client:
        clients = cells[roles.client]
        owners = _name_words(clients)
        names = tuple(sorted(set(owners.names.values()), key=natural_order))
        owner = number_labels(owners.names.values(), names, table.path)[clients.codes]
        notes += owners.notes
    return Arrays(
        join_inputs(columns, raw, table.path, np.float64 if scaled_by else np.float32),
        number_labels(named.names.values(), classes, table.path)[labels.codes],
        np.zeros((0, len(columns)), np.float32),
        np.zeros(0, np.int64),
        classes=len(classes),
        owner=owner,
        names=names,
        split=number_splits(cells[roles.split].texts()) if roles.split else None,
        labels=tuple(classes),
        columns=tuple(columns),
        scaled_by=scaled_by,
        weight=_read_weights(cells[roles.weight]) if roles.weight else None,
        notes=tuple(notes),
    )


def _read_like(table: TableFile, words: Sequence[str], other: Arrays) -> Mapping[str, Cells]:
    """Read the columns of other data: their numbers as such, all else as words."""
    inputs = list_names(other.columns)
    lacking = next((name for name in inputs if name not in table.header), None)
    if lacking is not None:
        raise IsthmusError(
            f"{table.path} has no column {lacking!r}, which the run's data have; it needs "
            f"{', '.join(inputs)}"
        )
    numbers = {c.name for c in other.columns if c.category is None and not c.part}
    rest = [name for name in inputs if name not in numbers]
    named = {column.name: column.missing_values for column in other.columns}
    return read_columns(table, [*words, *rest], [n for n in inputs if n in numbers], 0, named)


def _read_weights(cells: Cells) -> NDArray[np.float64]:
    """Read how much each row counts; refuse a missing one."""

    def read(text: str) -> float:
        weight = float(text)
        if not 0 <= weight < MOST:
            raise ValueError
        return weight

    expected = "a number of 0 or more"
    empty = next((word for word in cells.words if is_missing(word)), None)
    if empty is not None:
        raise cells.refuse(empty, None, expected)
    return cells.convert(read, expected)


def _list_some(names: Sequence[str]) -> str:
    more = len(names) - NAMED_IN_NOTES
    return ", ".join(names[:NAMED_IN_NOTES]) + (f" and {more} more columns" if more > 0 else "")


def _check_rows(table: TableFile, rows: int) -> None:
    if not rows:
        raise IsthmusError(f"{table.path} has a header and no rows")


def _name_words(cells: Cells, known: Sequence[str] = ()) -> Spellings:
    """Return what each word of a column of names stands for; refuse a row without one."""
    empty = next((word for word in cells.words if is_missing(word)), None)
    if empty is not None:
        raise cells.refuse(empty, None, "a value; fill it, or delete the row")
    return merge_spellings(cells.words, f"column {cells.name!r}", known)


def _check_classes(labels: Cells, classes: Sequence[str]) -> None:
    numbers = np.array([parse_number(label) for label in classes])
    fractions = bool(np.isfinite(numbers).all() and (numbers % 1).any())
    measured = len(classes) > (MANY if fractions else max(labels.rows // 2, 2))
    if measured or len(classes) < 2:
        raise IsthmusError(
            f"{labels.path} has {len(classes)} different values in column {labels.name!r} in "
            f"{labels.rows} rows, such as {reprlib.repr(min(classes))}; classes are two or more, "
            "each of several rows: name another column with --set label=COLUMN"
        )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
