"""An exported model for those who have data as they came: a table or an array to probabilities."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import Column
from isthmus.data.own.cells import Cells
from isthmus.data.own.columns import join_inputs, list_names, read_cells
from isthmus.errors import IsthmusError
from isthmus.models.portable import Card, Program

THE_TABLE = Path("the table")  # what messages call it


class Predictor:
    """An exported model: call it on a table or an array to get probabilities [n, C]."""

    def __init__(self, card: Card, program: Program):
        self.card = card
        self._program = program

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the probabilities."""
        return tuple(self.card["labels"]) or tuple(map(str, range(self.card["classes"])))

    def __call__(self, table: Any) -> NDArray[np.float64]:
        """Return probabilities: of a dict of columns, a list of dicts, or an array of inputs."""
        return self._program(self._encode(table))

    def _encode(self, table: Any) -> NDArray[Any]:
        if hasattr(table, "to_dict"):  # a data frame
            table = table.to_dict("list")
        if isinstance(table, Sequence) and table and isinstance(table[0], Mapping):
            names = list(dict.fromkeys(name for row in table for name in row))
            table = {name: [row.get(name) for row in table] for name in names}
        if isinstance(table, Mapping):
            return self._encode_columns(table)
        x, shape = np.asarray(table), tuple(self.card["shape"])
        if x.shape[1:] != shape or x.ndim != len(shape) + 1:
            raise IsthmusError(
                f"inputs have shape {x.shape}, not {('n', *shape)}: one row per example, in the "
                "order of the card; reshape them"
            )
        return x.astype(self.card["input"]["type"])

    def _encode_columns(self, table: Mapping[str, Any]) -> NDArray[Any]:
        columns = [Column(**column) for column in self.card["columns"]]
        if not columns:
            raise IsthmusError(
                f"the model takes an array of inputs of shape {tuple(self.card['shape'])}, not "
                "a table"
            )
        names = list_names(columns)
        for name in names:
            if name not in table:
                raise IsthmusError(
                    f"the table has no column {name!r}; the model needs {', '.join(names)}"
                )
        rows = {len(table[name]) for name in names}
        if len(rows) > 1 or 0 in rows:
            counts = ", ".join(f"{name}: {len(table[name])}" for name in names)
            raise IsthmusError(
                f"columns have different lengths, or none ({counts}); all need the same "
                "number of cells"
            )
        numbers = {c.name for c in columns if c.category is None and not c.part}
        named = {column.name: column.missing_values for column in columns}
        cells = {}
        for name in names:
            count = 0 if name in numbers else None
            cells[name] = Cells(THE_TABLE, name, count, name in numbers, named[name])
            cells[name].add(tuple(_to_text(value) for value in table[name]))
        raw = read_cells(columns, cells, rows.pop())
        plain = [column._replace(mean=0.0, std=1.0, fill=None) for column in columns]
        return join_inputs(plain, raw, THE_TABLE, np.float64)


def _to_text(value: Any) -> str:
    """Write a cell as a table would have it; what is missing is an empty cell."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(value)
