"""The schema of a table, as a file that a person reads and edits: what each of its columns is."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import tomli_w

from isthmus.data.arrays import BOOLEAN
from isthmus.data.own.arrays import natural_order
from isthmus.data.own.cells import CYCLES, ISO, Cells, find_formats
from isthmus.data.own.columns import CATEGORY, DATE, NUMBER, ColumnRule, Missing, find_kind
from isthmus.data.own.reader import TableFile, read_columns
from isthmus.errors import IsthmusError, nearest, quote
from isthmus.system.files import open_regular

LABEL, CLIENT, SPLIT, WEIGHT, IGNORE = "label", "client", "split", "weight", "ignore"
KINDS: Mapping[str, tuple[str, ...]] = {  # and what may be said of each
    NUMBER: ("missing", "missing_values"),
    CATEGORY: ("missing", "missing_values", "categories", "other"),
    DATE: ("missing", "missing_values", "format", "cycles"),
    BOOLEAN: ("missing", "missing_values"),
    LABEL: ("categories",),
    CLIENT: (),
    SPLIT: (),
    WEIGHT: (),
    IGNORE: (),
}
NO_INPUTS = (LABEL, CLIENT, SPLIT, WEIGHT, IGNORE)
LARGEST_FILE = 2**24  # bytes
IDENTIFIERS = 1000  # different words from which on a column names its rows
HEAD = """\
# What isthmus reads from {name}. Change what is wrong, and use it with --set schema=FILE
# kind: number, category, date, boolean; label, client, split, weight; ignore
# missing, of an input: refuse, mean, median or indicator; left out: as --set missing says
# missing_values, of an input: what stands for no value, as [-999, "unknown"]
"""


class TableRoles(NamedTuple):
    """The columns of a schema that are no inputs."""

    label: str
    client: str | None
    split: str | None
    weight: str | None


def inline_schema(data: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Puts the schema of a table in the place of its file's name, so that records have it."""
    given = data.get("schema")
    return (
        {**data, "schema": _read_file(given, root)}
        if given and isinstance(given, str)
        else {**data}
    )


def read_rules(
    given: str | Mapping[str, Any], missing: str, root: Path, missing_values: Sequence[str] = ()
) -> dict[str, ColumnRule]:
    """Reads what a schema says of each column; the rest counts where it says nothing of holes."""
    table = _read_file(given, root) if isinstance(given, str) else given
    where = f"schema {given}" if isinstance(given, str) else "the schema"
    unknown = next((key for key in table if key != "columns"), None)
    columns = table.get("columns")
    if unknown is not None or not isinstance(columns, Mapping) or not columns:
        raise IsthmusError(
            f"{where} has {quote(unknown) if unknown is not None else 'no columns'}; expected "
            "a table [columns.NAME] for each column; write one with isthmus data schema"
        )
    rules = {name: _read_rule(f"{where}: column {name!r}", each) for name, each in columns.items()}
    return {
        name: rule._replace(
            missing=rule.missing or missing,
            missing_values=tuple(missing_values)
            if rule.missing_values is None
            else rule.missing_values,
        )
        for name, rule in rules.items()
    }


def find_roles(rules: Mapping[str, ColumnRule]) -> TableRoles:
    """Finds the columns of the labels, of clients, of parts and of weights."""
    found: dict[str, str | None] = {}
    for kind in (LABEL, CLIENT, SPLIT, WEIGHT):
        names = [name for name, rule in rules.items() if rule.kind == kind]
        if len(names) > 1:
            raise IsthmusError(
                f"the schema has {len(names)} columns of kind {kind}, {names[0]!r} and "
                f"{names[1]!r}; expected one; change the other"
            )
        found[kind] = names[0] if names else None
    if found[LABEL] is None:
        raise IsthmusError(
            "the schema has no column of kind label; expected one that says the class of each row; "
            "set kind = 'label' there"
        )
    return TableRoles(**found)  # type: ignore[arg-type]  # the label is there


def _read_file(name: str, root: Path) -> dict[str, Any]:
    place = next((p for p in (Path(name), root / name) if p.is_file()), Path(name))
    try:
        with open_regular(place) as file:
            return tomllib.loads(file.read(LARGEST_FILE).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:160]
        raise IsthmusError(
            f"schema {name} cannot be read ({reason}); expected a file as isthmus data schema "
            "writes it; mend it, or check the path"
        ) from None


def _read_rule(where: str, given: Any) -> ColumnRule:
    if not isinstance(given, Mapping):
        raise IsthmusError(f"{where} is {quote(given)}; expected a table; write kind = 'number'")
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise IsthmusError(
            f"{where} has {'no kind' if kind is None else f'kind = {quote(kind)}'}; expected "
            f"{', '.join(KINDS)}; {nearest(str(kind), list(KINDS))}"
        )
    for key in given:
        if key != "kind" and key not in KINDS[kind]:
            known = ["kind", *KINDS[kind]]
            raise IsthmusError(
                f"{where}, a {kind}, has {quote(key)}; expected {', '.join(known)}; "
                f"{nearest(key, known)}"
            )
    checks: Mapping[str, tuple[Callable[[Any], bool], str]] = {
        "missing": (lambda v: v in get_args(Missing), "refuse, mean, median or indicator"),
        "missing_values": (_are_values, "a list of words and numbers"),
        "categories": (_are_words, "a list of different words"),
        "other": (lambda v: isinstance(v, bool), "true or false"),
        "format": (_is_format, "iso, or days, months and years as in %d.%m.%Y"),
        "cycles": (lambda v: _are_words(v) and set(v) <= set(CYCLES), f"some of {[*CYCLES]}"),
    }
    for key, value in given.items():
        if key != "kind" and not checks[key][0](value):
            raise IsthmusError(
                f"{where} has {key} = {quote(value)}; expected {checks[key][1]}; correct it"
            )
    return ColumnRule(
        kind,
        given.get("missing", ""),
        tuple(given.get("categories", ())),
        given.get("other", False),
        given.get("format", ""),
        tuple(given["cycles"]) if "cycles" in given else None,
        tuple(map(str, given["missing_values"])) if "missing_values" in given else None,
    )


def _are_words(value: Any) -> bool:
    words = isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)
    return words and len(set(value)) == len(value)


def _are_values(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, str | int | float) for v in value)


def _is_format(value: Any) -> bool:
    if value == ISO:
        return True
    try:
        moment = datetime(2023, 11, 28)
        return datetime.strptime(moment.strftime(value), value).date() == moment.date()
    except (TypeError, ValueError):
        return False


def write_schema(
    table: TableFile,
    roles: Mapping[str, str],
    categorical: Sequence[str],
    most: int,
    missing: str,
    missing_values: Sequence[str] = (),
) -> str:
    """Writes down what the columns of a table are, as far as their cells tell.

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
        described = {"kind": roles[name]} if name in roles else None
        note = ""
        if described is None:
            described, note = _describe(cells[name], name in categorical, most, missing)
        elif described["kind"] == LABEL:
            classes = len(cells[name].list_words())
            note = f"{classes:,} classes"
        text = tomli_w.dumps({"columns": {name: described}})
        parts.append(f"# {note}\n{text}" if note else text)
    return "\n".join(parts)


def _describe(
    cells: Cells, categorical: bool, most: int, missing: str
) -> tuple[dict[str, Any], str]:
    """Says what an input's cells are, and what a person may want to know of them."""
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
            described, notes = {"kind": IGNORE}, ["counts the rows"]
    elif kind == DATE:
        formats = find_formats(cells.list_words())
        if len(formats) == 1:
            described["format"] = formats[0]
        else:
            notes.append(f"say which: format = {' or '.join(map(repr, formats))}")
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
    holes = int(cells.find_holes().sum())
    if holes and described["kind"] != IGNORE:
        notes.append(f"{holes:,} of {cells.rows:,} cells have no value")
        described |= {"missing": missing} if missing else {}
        if cells.missing_values:
            described["missing_values"] = list(cells.missing_values)
    return described, "; ".join(notes)
