"""The rows of a table: numbers stay numbers, words become a 0 or 1 for each that occurs."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import CLIENT, REFUSE, SUMS, TEST, Arrays, Column
from isthmus.data.own.arrays import MOST, natural_order, number_labels, number_parts
from isthmus.data.own.cells import Cells, Spellings, is_missing, merge_spellings, parse_number
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
from isthmus.data.own.schema import NO_INPUTS, find_roles, read_rules
from isthmus.errors import IsthmusError
from isthmus.ranges import PositiveInt

MANY = 20  # classes, if they are numbers with a fraction
TOLD = 5  # columns in a note
# Options that a schema replaces, and what they are if nobody sets them.
ROLE_OPTIONS = {"label": "label", "client": "client"} | dict.fromkeys(
    ("split", "weight", "columns", "drop", "categorical"), ""
)


class Roles(NamedTuple):
    """What the columns of a table are for."""

    label: str
    client: str | None
    split: str | None
    weight: str | None
    inputs: tuple[str, ...]

    def words(self) -> list[str]:
        """Lists the columns that are words whatever is in them."""
        return [name for name in self[:4] if name]


class TableContents(NamedTuple):
    """What the inputs and the classes of a table are."""

    columns: tuple[Column, ...]
    labels: tuple[str, ...]
    notes: tuple[str, ...] = ()


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
        """Reads the file."""
        table = open_table(find_own_files(self.path, root), self.delimiter)
        roles, rules = self._follow_schema(table, root) if self.schema else self._plan(table)
        others = [name for name in roles.inputs if rules[name].kind in ("", NUMBER)]
        words = [name for name in roles.inputs if rules[name].kind not in ("", NUMBER)]
        named = {name: rules[name].missing_values or () for name in roles.inputs}
        cells = read_columns(table, [*roles.words(), *words], others, self.categories, named)
        contents = self._survey(table, roles, cells, rules)
        return self._build_arrays(table, roles, cells, contents, None)

    def like(self, path: Path, other: Arrays | None) -> Arrays:
        """Reads rows as those of other data were read: the same columns, classes and scales."""
        if other is None or not other.columns:
            raise IsthmusError(
                f"{path} is a table, and the run's data are none; expected inputs as in the run; "
                "give an .npz file of arrays x and y"
            )
        table = open_table(path, self.delimiter)
        roles = self._like_roles(table)._replace(inputs=_list_inputs(table, other))
        cells = _read_like(table, roles.words(), other)
        return self._build_arrays(
            table, roles, cells, TableContents(other.columns, other.labels), other
        )

    def read_inputs(self, path: Path, other: Arrays) -> Arrays:
        """Reads rows as inputs of a model that learned from other data; labels are not needed."""
        table = open_table(path, self.delimiter)
        inputs = _list_inputs(table, other)
        cells = _read_like(table, (), other)
        rows = cells[inputs[0]].rows
        _check_rows(table, rows)
        check_memory(table, rows, len(other.columns))
        raw = read_cells(other.columns, cells, rows)
        kind = np.float64 if other.scaled_by else np.float32
        x = join_inputs(other.columns, raw, path, kind)
        return other._replace(x=x, y=np.zeros(len(x), np.int64), notes=raw.notes)

    def _plan(self, table: TableFile) -> tuple[Roles, dict[str, ColumnRule]]:
        """Says what the columns are for, as options tell; what they are is found out later."""
        roles = self._like_roles(table)
        client = self._check_column(table, "client", self.client) if self.client else None
        roles = roles._replace(client=client)
        taken = roles.words()
        if len(set(taken)) < len(taken):
            named = zip(Roles._fields, roles[:4], strict=False)
            raise IsthmusError(
                f"{', '.join(f'{role}={name}' for role, name in named if name)}; expected "
                "different columns; name others"
            )
        dropped = {self._check_column(table, "drop", name) for name in _names(self.drop)}
        wanted = [self._check_column(table, "columns", name) for name in _names(self.columns)]
        left_out = {*taken, *dropped, ""}
        inputs = [name for name in wanted or table.header if name not in left_out]
        categorical = {
            self._check_column(table, "categorical", n) for n in _names(self.categorical)
        }
        if not inputs:
            raise IsthmusError(
                f"{table.path} has no column left to learn from; expected at least one besides "
                f"{', '.join(sorted(taken))}; drop fewer"
            )
        kinds = {name: CATEGORY if name in categorical else "" for name in inputs}
        rule = ColumnRule("", self.missing, missing_values=self.list_missing_values())
        rules = {name: rule._replace(kind=kind) for name, kind in kinds.items()}
        return roles._replace(inputs=tuple(inputs)), rules

    def _follow_schema(self, table: TableFile, root: Path) -> tuple[Roles, dict[str, ColumnRule]]:
        """Says what the columns are, as the schema tells."""
        rules = read_rules(self.schema, self.missing, root, self.list_missing_values())
        roles = find_roles(rules)
        for option, usual in ROLE_OPTIONS.items():
            given = getattr(self, option)
            if given not in (usual, getattr(roles, option, None)):
                raise IsthmusError(
                    f"{option}={given} beside a schema; expected the schema to say what columns "
                    "are; change it there"
                )
        for name in rules:
            self._check_column(table, "the schema", name)
        inputs = tuple(name for name, rule in rules.items() if rule.kind not in NO_INPUTS)
        if not inputs:
            raise IsthmusError(
                "the schema leaves no column to learn from; expected at least one number, "
                "category, date or boolean; change a kind"
            )
        return Roles(*roles, inputs), rules

    def list_missing_values(self) -> tuple[str, ...]:
        """Lists what stands for no value besides what always does."""
        return tuple(_names(str(self.missing_values)))

    def _like_roles(self, table: TableFile) -> Roles:
        """Finds the columns that are no inputs; a table of one client need not say whose it is."""
        if self.schema:
            label, client, split, weight = find_roles(read_rules(self.schema, REFUSE, Path()))
            for name in filter(None, (label, split, weight)):
                self._check_column(table, "the schema", name)
        else:
            label, client = self._label(table), self.client
            split, weight = (
                self._check_column(table, option, name) if name else None
                for option, name in (("split", self.split), ("weight", self.weight))
            )
        return Roles(label, client if client in table.header else None, split, weight, ())

    def _label(self, table: TableFile) -> str:
        short = self.label == "label" and "label" not in table.header and "y" in table.header
        return "y" if short else self._check_column(table, "label", self.label)

    def _check_column(self, table: TableFile, option: str, name: str) -> str:
        if name in table.header:
            return name
        columns = [column for column in table.header if column]
        listed = ", ".join(columns[:30]) + (", ..." if len(columns) > 30 else "")
        remedy = f"add --set {option}=COLUMN"
        if option == "the schema":
            remedy = "add the column, or mend the schema"
        if option == "client":
            remedy += ", or --set 'client=\"\"' and a partition"
        raise IsthmusError(
            f"{table.path} has no column {name!r} for {option}; its columns are {listed}; {remedy}"
        )

    def _survey(
        self,
        table: TableFile,
        roles: Roles,
        cells: Mapping[str, Cells],
        rules: Mapping[str, ColumnRule],
    ) -> TableContents:
        labels = cells[roles.label]
        _check_rows(table, labels.rows)
        split = number_parts(cells[roles.split].texts()) if roles.split else None
        learned = slice(None) if split is None else split != TEST
        columns: list[Column] = []
        holed: list[str] = []
        for name in roles.inputs:
            rule = complete_rule(rules[name], cells[name], self.categories)
            strict = rule.missing == REFUSE
            holes = np.zeros(labels.rows, bool) if strict else cells[name].find_holes()
            columns += make_columns(name, rule, holes[learned], bool(self.standardise))
            if holes.any():
                holed.append(f"{name} {int(holes.sum()):,}")
        classes: Sequence[str] = rules[roles.label].categories if self.schema else ()
        if not classes:
            classes = sorted(set(_name_words(labels).names.values()), key=natural_order)
            _check_classes(labels, classes)
        notes = (
            [f"of {labels.rows:,} rows these miss a value: {_list_some(holed)}"] if holed else []
        )
        unsaid = (
            [name for name in table.header if name and name not in rules] if self.schema else []
        )
        if unsaid:
            notes.append(f"columns that the schema lacks were left out: {_list_some(unsaid)}")
        return TableContents(tuple(columns), tuple(classes), tuple(notes))

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
        raw = read_cells(columns, cells, labels.rows)
        later = self._learned_from(columns) if other is None else other.scaled_by
        if other is None and self.standardise and not later:
            learned = raw.values if split is None else raw.values[split != TEST]
            columns = find_scales(columns, learned)
        named = _name_words(labels, contents.labels)
        y = number_labels(named.names.values(), contents.labels, table.path)[labels.codes]
        notes = (*contents.notes, *raw.notes, *named.notes)
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
            join_inputs(columns, raw, table.path, np.float64 if later else np.float32),
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
            weight=_read_weights(cells[roles.weight]) if roles.weight else None,
            notes=notes,
        )

    def _learned_from(self, columns: Sequence[Column]) -> str:
        """Says from whom scales are learned once the data are divided; empty: they need not be."""
        if self.standardise in (SUMS, CLIENT):
            return str(self.standardise)
        return SUMS if any(column.missing != REFUSE for column in columns) else ""


def _read_like(table: TableFile, words: Sequence[str], other: Arrays) -> Mapping[str, Cells]:
    """Reads the columns of other data: their numbers as such, all else as words."""
    columns = other.columns
    numbers = [c.name for c in columns if c.category is None and not c.part]
    rest = [name for name in list_names(columns) if name not in set(numbers)]
    named = {column.name: column.missing_values for column in columns}
    return read_columns(table, [*words, *rest], numbers, 0, named)


def _read_weights(cells: Cells) -> NDArray[np.float64]:
    """Reads how much each row counts; refuses a hole."""
    weights = cells.convert(_read_weight, "a number of 0 or more")
    if np.isnan(weights).any():
        row = int(np.argmax(np.isnan(weights))) + 1
        raise IsthmusError(
            f"{cells.path} has nothing in column {cells.name!r}, row {row}; expected how much the "
            "row counts; fill it, or delete the row"
        )
    return weights


def _read_weight(text: str) -> float:
    weight = float(text)
    if not 0 <= weight < MOST:
        raise ValueError(f"{text} is no weight")
    return weight


def _list_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - TOLD} more columns" if len(names) > TOLD else ""
    return f"{', '.join(names[:TOLD])}{more}"


def _check_rows(table: TableFile, rows: int) -> None:
    if not rows:
        raise IsthmusError(f"{table.path} has a header and no rows; expected at least one; fill it")


def _list_inputs(table: TableFile, other: Arrays) -> tuple[str, ...]:
    """Names the columns of other data, all of which a table has to have."""
    inputs = list_names(other.columns)
    for name in inputs:
        if name not in table.header:
            raise IsthmusError(
                f"{table.path} has no column {name!r}, which the run's data have; expected "
                f"{', '.join(inputs)}; add it"
            )
    return inputs


def _name_words(cells: Cells, known: Sequence[str] = ()) -> Spellings:
    """Finds what each word of a column of names stands for; refuses a row without one."""
    hole = next((word for word in cells.words if is_missing(word)), None)
    if hole is not None:
        what = reprlib.repr(hole) if hole.strip() else "nothing"
        raise IsthmusError(
            f"{cells.path} has {what} in column {cells.name!r}, row {cells.find_row(hole)}; "
            "expected a value; fill it, or delete the row"
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
