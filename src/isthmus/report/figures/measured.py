"""What `isthmus landscape` measured of a run, read from its tables: simplices, planes of models.

Sizes: V vertices, L models, D data sets that they were measured on, X and Y points of a grid.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.errors import IsthmusError
from isthmus.records.columns import Floats, Integers, read_arrays
from isthmus.records.reader import RecordedRun
from isthmus.records.schema import LANDSCAPE, SIMPLEX

MEASURED = ("top1", "loss")  # over a simplex, and in a plane
SERVER = "server"
EVERYONE = "everyone"  # the mean over clients, each on its own data
CHOICES_AT_MOST = 120  # clients whose simplices a reader may choose among
SERVER_TEST = "the server's test set"


class Surface(NamedTuple):
    """How good the models of a simplex are on several data sets."""

    at: Floats  # [L, V]
    on: tuple[str, ...]  # SERVER, EVERYONE, or a client's number: D of them
    split: str  # of clients' data
    n: Integers  # [D]: examples
    values: Mapping[str, Floats]  # of each metric, [D, L]
    measured: bool  # by `isthmus landscape`; else it is the coarse lattice of every evaluation
    round: int


def collect_surface(run: RecordedRun) -> Surface | None:
    """Collects how good a run's simplex is: as it was measured, else from its last evaluation."""
    file = run.path / "simplex.csv"
    if file.is_file():
        table = read_arrays(file, SIMPLEX)
        whose, texts, splits = (table[name].tolist() for name in ("client", "at", "split"))
        n = table["n"]
        columns_of = {metric: table[metric] for metric in MEASURED}
        last = int(table["round"].max(initial=0))
    else:
        rows = (run.clients.model == "simplex") & (run.clients.split == "test")
        rows &= (run.clients.round == run.last) & (run.clients.n > 0)
        whose = [str(client) for client in run.clients.client[rows].tolist()]
        texts, splits = run.clients.at[rows].tolist(), run.clients.split[rows].tolist()
        n = run.clients.n[rows]
        columns_of = {metric: getattr(run.clients, metric)[rows] for metric in MEASURED}
        last = run.last
    if not whose:
        return None
    on, where = _number_names(whose)
    at, point = _number_names(texts)
    values = {
        metric: _fill_table(column, (where, point), (len(on), len(at)))
        for metric, column in columns_of.items()
    }
    sizes = np.zeros(len(on), dtype=np.int64)
    sizes[where] = n
    clients = [place for place, name in enumerate(on) if name != SERVER]
    order = [place for place, name in enumerate(on) if name == SERVER]
    rows_shown = [*order, *clients[:CHOICES_AT_MOST]]
    names, counts = [on[place] for place in rows_shown], sizes[rows_shown].tolist()
    chosen = {metric: table[rows_shown] for metric, table in values.items()}
    if clients:
        names.insert(len(order), EVERYONE)
        counts.insert(len(order), int(sizes[clients].sum()))
        chosen = {
            metric: np.insert(table, len(order), values[metric][clients].mean(0), axis=0)
            for metric, table in chosen.items()
        }
    split = next((s for s, name in zip(splits, whose, strict=True) if name != SERVER), "test")
    return Surface(
        read_coordinates(at), tuple(names), split, np.array(counts), chosen, file.is_file(), last
    )


class LandscapeModel(NamedTuple):
    """A model in a plane."""

    kind: str  # "shared", "own" or "personal"
    of: str  # a client's number, or another run's name
    x: float
    y: float
    values: Mapping[str, Floats]  # of each metric, [D]

    @property
    def name(self) -> str:
        """Names it in few words."""
        whose = f"of {self.of}" if self.kind == "shared" and self.of else self.of
        return f"{self.kind} {whose}".strip()


class Landscape(NamedTuple):
    """How good the models of a plane are on several data sets."""

    x: Floats  # [X]
    y: Floats  # [Y]
    on: tuple[str, ...]  # D
    split: str  # of clients' data
    n: Integers  # [D]
    values: Mapping[str, Floats]  # of each metric, [D, Y, X]
    models: tuple[LandscapeModel, ...]  # the first three span the plane
    round: int


def read_landscape(run: RecordedRun) -> Landscape | None:
    """Reads the plane that `isthmus landscape` measured of a run, if it did."""
    file = run.path / "landscape.csv"
    if not file.is_file():
        return None
    table = read_arrays(file, LANDSCAPE)
    clients = table["client"].tolist()
    on, where = _number_names(clients)
    x, y = table["x"], table["y"]
    grid = table["model"] == ""
    if not grid.any():
        raise IsthmusError(f"{file} has no grid; expected one; measure it again")
    across, column = np.unique(x[grid], return_inverse=True)
    up, row = np.unique(y[grid], return_inverse=True)
    shape = (len(on), len(up), len(across))
    measured = {metric: table[metric] for metric in MEASURED}
    values = {
        metric: _fill_table(numbers[grid], (where[grid], row, column), shape)
        for metric, numbers in measured.items()
    }
    sizes = np.zeros(len(on), dtype=np.int64)
    sizes[where] = table["n"]
    splits = zip(table["split"].tolist(), clients, strict=True)
    return Landscape(
        across,
        up,
        tuple(on),
        next((split for split, name in splits if name != SERVER), "test"),
        sizes,
        values,
        tuple(_list_models(table, where, len(on))),
        int(table["round"].max()),
    )


def name_data(name: str, split: str) -> str:
    """Names what models were measured on: whose data, and which part of a client's."""
    known = {SERVER: SERVER_TEST, EVERYONE: f"mean over clients, each on its own {split} part"}
    return known.get(name, f"the {split} part of client {name}")


def _list_models(
    table: Mapping[str, NDArray[Any]], where: Integers, count: int
) -> Sequence[LandscapeModel]:
    places: dict[tuple[str, str], list[int]] = {}
    for place, key in enumerate(zip(table["model"].tolist(), table["of"].tolist(), strict=True)):
        if key[0]:
            places.setdefault(key, []).append(place)
    return [
        LandscapeModel(
            *key,
            float(table["x"][rows[0]]),
            float(table["y"][rows[0]]),
            {
                metric: _fill_table(table[metric][rows], (where[rows],), (count,))
                for metric in MEASURED
            },
        )
        for key, rows in places.items()
    ]


def _number_names(names: Sequence[str]) -> tuple[list[str], Integers]:
    """Numbers different names in order of appearance."""
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return list(number), np.array([number[name] for name in names], dtype=np.int64)


def _fill_table(values: Floats, where: tuple[Integers, ...], shape: tuple[int, ...]) -> Floats:
    """Puts values into a table that is nan elsewhere."""
    table = np.full(shape, np.nan)
    table[where] = values
    return table


def read_coordinates(texts: Sequence[str]) -> Floats:
    """Reads the coordinates of points, as records have them."""
    return np.array([[float(number) for number in text.split()] for text in texts])
