"""The schema of a table, as a file that a person reads and edits: what each of its columns is."""

import tomllib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import tomli_w
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

from isthmus.data.file_errors import reading
from isthmus.data.own.cells import ISO, Cells, find_formats, natural_order
from isthmus.data.own.columns import CATEGORY, DATE, NUMBER, ColumnRule, Missing, find_kind
from isthmus.data.own.reader import TableFile, read_columns
from isthmus.errors import IsthmusError

LABEL, CLIENT, SPLIT, WEIGHT, IGNORE = "label", "client", "split", "weight", "ignore"
NO_INPUTS = (LABEL, CLIENT, SPLIT, WEIGHT, IGNORE)
IDENTIFIERS = 1000  # different words from which on a column names its rows
HEAD = """\
# What isthmus reads from {name}. Change what is wrong, and use it with --set schema=FILE
# kind: number, category, date, boolean; label, client, split, weight; ignore
# missing, of an input: refuse, mean, median or indicator; left out: as --set missing says
# missing_values, of an input: what stands for no value, as [-999, "unknown"]
"""


def _check_different(words: list[str]) -> list[str]:
    if len(set(words)) < len(words):
        raise ValueError("words must be different")
    return words


def _check_format(form: str) -> str:
    moment = datetime(2023, 11, 28)
    if form != ISO and datetime.strptime(moment.strftime(form), form).date() != moment.date():
        raise ValueError("a format is iso, or has days, months and years, as %d.%m.%Y")
    return form


PLAIN = {  # for pydantic's names of errors
    "extra_forbidden": "a column of this kind has no such key",
    "union_tag_not_found": "it has no kind",
    "too_short": "it describes no column",
}

Words = Annotated[list[StrictStr], AfterValidator(_check_different)]


class Role(BaseModel):
    """A column that is no input."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["client", "split", "weight", "ignore"]


class Label(BaseModel):
    """The column of the classes."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["label"]
    categories: Words = []


class Number(BaseModel):
    """A number, or a truth value; what every input may have."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["number", "boolean"]
    missing: Missing | None = None
    missing_values: list[StrictStr | StrictInt | StrictFloat] | None = None


class Category(Number):
    """Words, each of which has an input."""

    kind: Literal["category"]  # type: ignore[assignment]
    categories: Words = []
    other: StrictBool = False


class Date(Number):
    """Days, and their places in cycles."""

    kind: Literal["date"]  # type: ignore[assignment]
    format: Annotated[str, AfterValidator(_check_format)] = ""
    cycles: list[Literal["year", "week", "day"]] | None = None


class TableSchema(BaseModel):
    """The columns of a table by name."""

    model_config = ConfigDict(extra="forbid")

    columns: dict[
        str, Annotated[Role | Label | Number | Category | Date, Field(discriminator="kind")]
    ] = Field(min_length=1)


class TableRoles(NamedTuple):
    """The columns of a schema that are no inputs."""

    label: str
    client: str | None
    split: str | None
    weight: str | None

    def names(self) -> list[str]:
        """List those that there are."""
        return [name for name in self if name]


def inline_schema(data: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Put the schema of a table in the place of its file's name, so that records have it."""
    given = data.get("schema")
    named = given and isinstance(given, str)
    return {**data, "schema": _read_file(str(given), root)} if named else {**data}


def read_rules(
    given: str | Mapping[str, Any], missing: str, root: Path, missing_values: Sequence[str] = ()
) -> dict[str, ColumnRule]:
    """Read what a schema says of each column; the rest holds where it says nothing of missing ones.

    >>> read_rules({"columns": {"age": {"kind": "number"}}}, "mean", Path())["age"].missing
    'mean'
    """
    table = _read_file(given, root) if isinstance(given, str) else given
    try:
        columns = TableSchema.model_validate(table).columns
    except ValidationError as error:
        first = error.errors()[0]
        name, *key = [str(part) for part in first["loc"][1:]] or [""]
        where = f"column {name!r}" if name else "its table [columns.NAME]"
        where += f", {key[1]}" if len(key) > 1 else ""  # key[0] is the kind
        reason = PLAIN.get(first["type"], first["msg"].removeprefix("Value error, "))
        shown = isinstance(first["input"], str | int | float) and first["type"] not in PLAIN
        found = f", not {first['input']!r}" if shown else ""
        raise IsthmusError(
            f"the schema is wrong in {where}: {reason}{found}; isthmus data schema FILE writes one"
        ) from None
    rules = {}
    for name, column in columns.items():
        fields = {"missing": missing, **column.model_dump(exclude_none=True)}
        values = fields.get("missing_values", missing_values)
        rules[name] = ColumnRule(
            fields["kind"],
            fields["missing"],
            tuple(fields.get("categories", ())),
            fields.get("other", False),
            fields.get("format", ""),
            tuple(fields["cycles"]) if "cycles" in fields else None,
            tuple(map(str, values)),
        )
    return rules


def find_roles(rules: Mapping[str, ColumnRule]) -> TableRoles:
    """Return the columns of the labels, of clients, of splits and of weights."""
    found: dict[str, str | None] = {}
    for kind in TableRoles._fields:
        names = [name for name, rule in rules.items() if rule.kind == kind]
        if len(names) > 1 or (kind == LABEL and not names):
            raise IsthmusError(
                f"the schema has {len(names)} columns of kind {kind}; it "
                f"needs {'one' if kind == LABEL else 'one at most'}"
            )
        found[kind] = names[0] if names else None
    return TableRoles(**found)  # type: ignore[arg-type]  # the label is there


def _read_file(name: str, root: Path) -> dict[str, Any]:
    place = next((p for p in (Path(name), root / name) if p.is_file()), Path(name))
    with reading(place, "write a schema with isthmus data schema, or check the path"):
        return tomllib.loads(place.read_text("utf-8"))


def write_schema(
    table: TableFile,
    roles: Mapping[str, str],
    categorical: Sequence[str],
    most: int,
    missing: str,
    missing_values: Sequence[str] = (),
) -> str:
    """Describe the columns of a table as a schema, as far as their cells show.

    `roles` are the columns that are known: by name, label, client, split or weight.
    """
    names = [name for name in table.header if name]
    words = [name for name in names if name in roles or name in set(categorical)]
    others = [name for name in names if name not in set(words)]
    named = {name: missing_values for name in names if name not in roles}
    cells = read_columns(table, words, others, IDENTIFIERS, named)
    parts = [HEAD.format(name=table.path.name)]
    if LABEL not in roles.values():
        parts.append("# No column is the label yet: set kind = 'label' where the classes are\n")
    for name in names:
        if name in roles:
            described: dict[str, Any] = {"kind": roles[name]}
            classes = len(cells[name].list_words())
            note = f"{classes:,} classes" if roles[name] == LABEL else ""
        else:
            described, note = _describe(cells[name], name in categorical, most, missing)
        text = tomli_w.dumps({"columns": {name: described}})
        parts.append(f"# {note}\n{text}" if note else text)
    return "\n".join(parts)


def _describe(
    cells: Cells, categorical: bool, most: int, missing: str
) -> tuple[dict[str, Any], str]:
    """Return what an input's cells are, and what a person may want to know of them."""
    kind = CATEGORY if categorical else find_kind(cells)
    described: dict[str, Any] = {"kind": kind}
    notes = []
    if kind == NUMBER:
        values = cells.numbers()
        known = values[~np.isnan(values)]
        if len(known):
            notes.append(f"{known.min():g} to {known.max():g}")
        if set(np.unique(known).tolist()) == {0.0, 1.0}:
            notes.append("boolean would leave 0 and 1 as they are")
        if len(known) == cells.rows > 2 and (np.diff(known) == 1).all():
            return {"kind": IGNORE}, "counts the rows"
    elif kind == DATE:
        formats = find_formats(cells.list_words())
        if len(formats) == 1:
            described["format"] = formats[0]
        else:
            notes.append(f"choose one: format = {' or '.join(map(repr, formats))}")
    elif kind == CATEGORY:
        words = cells.list_words()
        if len(words) > IDENTIFIERS:
            return {"kind": IGNORE}, f"more than {IDENTIFIERS:,} different words"
        if len(words) > most:
            counts = np.bincount(cells.codes)
            words = sorted(words, key=lambda word: -counts[cells.words[word]])[:most]
            notes.append(f"the {most} most frequent of {len(cells.words):,} words")
            described["other"] = True
        described["categories"] = sorted(words, key=natural_order)
    empty = int(cells.find_missing().sum())
    if empty:
        notes.append(f"{empty:,} of {cells.rows:,} cells have no value")
        described |= {"missing": missing} if missing else {}
        if cells.missing_values:
            described["missing_values"] = list(cells.missing_values)
    return described, "; ".join(notes)
