"""What `isthmus landscape` measured of a run, read from its tables: simplices, planes of models.

Sizes: V vertices, L models, D data sets that they were measured on, X and Y points of a grid.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.errors import IsthmusError
from isthmus.run.columns import Floats, Integers, read_arrays
from isthmus.run.record import RecordedRun
from isthmus.run.schema import LANDSCAPE, SIMPLEX

MEASURED = ("top1", "loss")  # over a simplex, and in a plane
SERVER = "server"
EVERYONE = "everyone"  # the mean over clients, each on its own data
CHOICES_AT_MOST = 120  # clients whose simplices a reader may choose among


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
    """Return how good a run's simplex is: as it was measured, else at its last evaluation."""
    if not (run.clients.model == "simplex").any():
        return None
    file = run.path / "simplex.csv"
    if file.is_file():
        table: Mapping[str, NDArray[Any]] = read_arrays(file, SIMPLEX)
    else:
        rows = (run.clients.model == "simplex") & (run.clients.split == "test")
        rows &= (run.clients.round == run.last) & (run.clients.n > 0)
        kept = ("round", "client", "at", "split", "n", *MEASURED)
        table = {name: getattr(run.clients, name)[rows] for name in kept}
    if not len(table["client"]):
        return None
    on, where = _number_names(table["client"].astype(str).tolist())
    at, point = _number_names(table["at"].tolist())
    clients = [place for place, name in enumerate(on) if name != SERVER]
    # Each choice is a mean over rows, in most of them of one.
    choices = {SERVER: [on.index(SERVER)]} if SERVER in on else {}
    choices |= {EVERYONE: clients} if clients else {}
    choices |= {on[place]: [place] for place in clients[:CHOICES_AT_MOST]}
    n = _count_examples(table, where)
    values = _tabulate(table, slice(None), (where, point), (len(on), len(at)))
    if not all(np.isfinite(each).all() for each in values.values()):
        raise IsthmusError(
            f"{file if file.is_file() else run.path / 'clients.csv'} is incomplete: a model of the "
            f"simplex has no value on some data; run isthmus landscape {run.path} again"
        )
    return Surface(
        at=read_coordinates(at),
        on=tuple(choices),
        split=_find_split(table),
        n=np.array([n[places].sum() for places in choices.values()]),
        values={
            metric: np.stack([each[places].mean(0) for places in choices.values()])
            for metric, each in values.items()
        },
        measured=file.is_file(),
        round=int(table["round"].max()),
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
        """The name, in few words."""
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
    """Read the plane that `isthmus landscape` measured of a run, if it did."""
    file = run.path / "landscape.csv"
    if not file.is_file():
        return None
    table = read_arrays(file, LANDSCAPE)
    on, where = _number_names(table["client"].tolist())
    x, y = table["x"], table["y"]
    grid = table["model"] == ""
    if not grid.any():
        raise IsthmusError(f"{file} has no grid points; run isthmus landscape {run.path} again")
    across, column = np.unique(x[grid], return_inverse=True)
    up, row = np.unique(y[grid], return_inverse=True)
    shape = (len(on), len(up), len(across))
    return Landscape(
        x=across,
        y=up,
        on=tuple(on),
        split=_find_split(table),
        n=_count_examples(table, where),
        values=_tabulate(table, grid, (where[grid], row, column), shape),
        models=tuple(_list_models(table, where, len(on))),
        round=int(table["round"].max()),
    )


def list_names(found: Surface | Landscape) -> list[str]:
    """Name what models were measured on: whose data, and which part of a client's."""
    mean = f"mean over clients, each on its own {found.split} part"
    known = {SERVER: "the server's test set", EVERYONE: mean}
    return [known.get(name, f"the {found.split} part of client {name}") for name in found.on]


def describe_data(found: Surface | Landscape) -> list[str]:
    """Describe the data: whose, which part, how many examples, after which round."""
    size = len(found.at) if isinstance(found, Surface) else f"{len(found.x)} × {len(found.y)}"
    return [
        f"{name}: {n:,} examples, {size} models, after round {found.round}"
        for name, n in zip(list_names(found), found.n.tolist(), strict=True)
    ]


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
            _tabulate(table, rows, (where[rows],), (count,)),
        )
        for key, rows in places.items()
    ]


def _count_examples(table: Mapping[str, NDArray[Any]], where: Integers) -> Integers:
    n = np.zeros(where.max() + 1, dtype=np.int64)
    n[where] = table["n"]
    return n


def _find_split(table: Mapping[str, NDArray[Any]]) -> str:
    """Find which part of clients' data was taken."""
    of_clients = table["split"][table["client"].astype(str) != SERVER]
    return str(of_clients[0]) if len(of_clients) else "test"


def _number_names(names: Sequence[str]) -> tuple[list[str], Integers]:
    """Assign numbers to names in order of appearance."""
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return list(number), np.array([number[name] for name in names], dtype=np.int64)


def _tabulate(
    table: Mapping[str, NDArray[Any]],
    rows: Any,
    where: tuple[Integers, ...],
    shape: tuple[int, ...],
) -> dict[str, Floats]:
    """Return, for each metric, some rows of a table as an array that is nan elsewhere."""
    arrays = {metric: np.full(shape, np.nan) for metric in MEASURED}
    for metric, array in arrays.items():
        array[where] = table[metric][rows]
    return arrays


def read_coordinates(texts: Sequence[str]) -> Floats:
    """Read the coordinates of points, as records have them."""
    try:
        points = np.array([[float(number) for number in text.split()] for text in texts])
    except ValueError as error:
        raise IsthmusError(
            f"the coordinates in a simplex cannot be read ({error}); each point needs the same "
            "count of numbers; restore the tables, or run again"
        ) from None
    return points
