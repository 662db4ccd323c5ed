"""The rows that a round adds to the tables, as bytes: values, not text.

Columns of numbers are packed in eight bytes each, all others written as JSON, and the whole is
compressed. A column that a later version has in addition is empty in the rows of an earlier one.
"""

import csv
import io
import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.errors import IsthmusError, quote
from isthmus.run.columns import columns
from isthmus.run.schema import TABLES, RecordColumn, names
from isthmus.run.writer import TableRows, split_rows

OLDER = ("rounds", "clients", "notes", "reliability")  # the order of texts in "isthmus vault 2"


def pack_rows(rows: TableRows) -> bytes:
    """Writes the rows of a round as bytes, some of them at a time: there may be millions."""
    tables: list[str] = []
    numbers: list[bytes] = []
    for table, lines in rows.items():
        columns = TABLES[table]
        pieces: list[list[Any]] = [[] for _ in columns]
        for block in split_rows(lines):
            for column, piece, values in zip(
                columns, pieces, zip(*block, strict=True), strict=True
            ):
                packed = (
                    np.asarray(values, "<f8").tobytes() if _is_packed(column) else _json(values)
                )
                piece.append(packed)
        texts = []
        for column, piece in zip(columns, pieces, strict=True):
            numbers += piece if _is_packed(column) else []
            text = "null" if _is_packed(column) else f"[{','.join(piece)}]"
            texts.append(f'"{column.name}":{text}')
        tables.append(f'"{table}":{{{",".join(texts)}}}')
    packer = zlib.compressobj(1)
    head = f"{{{','.join(tables)}}}\n".encode()
    return b"".join([*map(packer.compress, (head, *numbers)), packer.flush()])


def _is_packed(column: RecordColumn) -> bool:
    return column.type is float and not column.may_be_empty


def _json(values: Sequence[Any]) -> str:
    """Writes values as the entries of a list in JSON, without its brackets."""
    return json.dumps(values, separators=(",", ":"))[1:-1]


def unpack_rows(data: bytes) -> TableRows:
    """Reads what `pack_rows` wrote, or what an earlier version did."""
    whole = zlib.decompress(data)
    if whole.startswith(b"["):
        return _from_text(json.loads(whole))
    start = whole.index(b"\n") + 1
    head = json.loads(whole[:start])
    rows: dict[str, Sequence[Sequence[Any]]] = {}
    for table, stored in head.items():
        count = next(len(values) for values in stored.values() if values is not None)
        for name, values in stored.items():
            if values is None:
                stored[name] = np.frombuffer(whole, "<f8", count, start).tolist()
                start += 8 * count
        nothing = [None] * count
        columns = [stored.get(column.name, nothing) for column in TABLES[table]]
        rows[table] = list(zip(*columns, strict=True))
    return rows


def read_rows(path: Path, table: str, per_batch: bool = False) -> TableRows:
    """Reads the rows of a table that an earlier version wrote to a file alone."""
    given = dict(zip(names(TABLES[table], per_batch), TABLES[table], strict=True))
    there = columns(path, [name for name, column in given.items() if not column.may_be_missing])
    count = max(map(len, there.values()))
    try:
        cells = [
            [_reader(column)(text) for text in there[name]] if name in there else [None] * count
            for name, column in given.items()
        ]
    except ValueError as error:
        raise IsthmusError(
            f"{path} cannot be read ({quote(str(error))}); expected numbers, as the run wrote "
            "them; restore it, or move it elsewhere"
        ) from None
    return {table: list(zip(*cells, strict=True))}


def _from_text(texts: Sequence[str]) -> TableRows:
    """Reads the rows of "isthmus vault 2", which kept a text of CSV per table."""
    rows: dict[str, Sequence[Sequence[Any]]] = {}
    for table, text in zip(OLDER, texts, strict=True):
        readers = [_reader(column) for column in TABLES[table]]
        lines = csv.reader(io.StringIO(text, newline=""))
        rows[table] = [
            [read(cell) for read, cell in zip(readers, line, strict=False)]
            + [None] * (len(readers) - len(line))
            for line in lines
        ]
    return rows


def _reader(column: RecordColumn) -> Callable[[str], Any]:
    if column.type is tuple:
        return lambda text: [float(number) for number in text.split()]
    if column.type in (int, float):
        return lambda text: column.type(text) if text else None
    return str
