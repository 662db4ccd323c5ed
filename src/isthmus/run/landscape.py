"""Models that nobody trained, measured: those of a plane through three models, and of a simplex.

The plane through models a, b and c consists of

    a + x e1 + y e2,   e1 = (b - a) / |b - a|,   e2 = r / |r|,   r = c - a - <c - a, e1> e1

(Gram and Schmidt), so that distances in the picture are distances between models: a lies at (0, 0),
b at (|b - a|, 0) and c at (<c - a, e1>, |r|). A model of a simplex is the mean of the models at its
vertices, weighted by its coordinates: all but the last layer is the same in these.

Running statistics are no coordinates of a plane. They belong to the point, as on a path: at a point
of the grid they are those of the training examples of the client on whose data it is measured.

What is measured goes into the run's directory, as landscape.csv and simplex.csv; docs/records.md
describes the columns. Nothing else there changes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isthmus import tree
from isthmus.data.federation import Split
from isthmus.engines.base import one_thread
from isthmus.errors import IsthmusError
from isthmus.formulas.barycentric import lattice
from isthmus.method import load_network
from isthmus.metrics.score import figures, tally
from isthmus.models.flat import split_evenly
from isthmus.run.open import SPLITS, Opened, Tell, ignore
from isthmus.run.writer import table_text
from isthmus.system.files import encode_text, overwrite

MARGIN = 0.3  # of the models' larger extent, on every side of them
SIMPLEX_POINTS = 91  # at most; in a triangle, 12 steps from corner to corner
SOME = 1000  # examples at a time
NUMBERS = 2_000_000  # parameters, or logits, of the models that are measured together
FLAT = 1e-4  # three models with a triangle of this height, relative to its base, are on a line

SERVER = "server"


class MarkedModel(NamedTuple):
    """A model to be marked: what it is, whose, its parameters."""

    kind: str  # "shared", "own" or "personal"
    of: str  # a client's number, or the name of another run; empty for this run's shared model
    w: Tensor

    def __str__(self) -> str:
        whose = f"client {self.of}" if self.kind != "shared" else self.of
        return f"{self.kind} model" + (f" of {whose}" if whose else "")


class Plane(NamedTuple):
    """A plane of models, with lengths as they are between models."""

    origin: Tensor  # [P]
    basis: Tensor  # [2, P], orthonormal

    def at(self, x: float, y: float) -> Tensor:
        """Return the model at a place."""
        place = self.basis.new_tensor([x, y])
        return (self.origin + place @ self.basis).to(torch.get_default_dtype())

    def where(self, w: Tensor) -> tuple[float, float]:
        """Find the place nearest to a model."""
        x, y = (self.basis @ (w.double() - self.origin)).tolist()
        return round(x, 9) + 0.0, round(y, 9) + 0.0


def plane_through(a: Tensor, b: Tensor, c: Tensor) -> Plane:
    """Find the plane through three models, the first of which is its origin.

    >>> plane = plane_through(torch.zeros(3), torch.tensor([2.0, 0, 0]), torch.tensor([1.0, 0, 5]))
    >>> plane.where(torch.tensor([1.0, 0, 5])), plane.at(0.5, 2)
    ((1.0, 5.0), tensor([0.5000, 0.0000, 2.0000]))
    """
    a, b, c = a.double(), b.double(), c.double()
    base = torch.linalg.vector_norm(b - a)
    first = (b - a) / base.clamp(min=1e-300)
    rest = c - a - ((c - a) @ first) * first
    height = torch.linalg.vector_norm(rest)
    if height <= FLAT * base or base <= FLAT * height:
        raise IsthmusError(
            "two of the three models are the same, or all lie on a line; name other clients, or a "
            "method whose clients have models of their own"
        )
    return Plane(a, torch.stack([first, rest / height]))


def survey(
    run: Path,
    opened: Opened,
    *,
    clients: Sequence[int] = (),
    third: tuple[str, Tensor] | None = None,
    on: Sequence[str] = (),
    split: str = "test",
    points: int = 21,
    tell: Tell = ignore,
) -> dict[Path, str]:
    """Measure a plane of models, and a simplex where there is one; return the files with titles.

    Where no clients are named they are the first ones that have models of their own; where no data
    are, those of the server and of the plane's clients, and for a simplex of all clients.
    """
    ids, known = list(clients) or default_clients(opened, third), with_data(opened, split)
    near = [name for name in known if name == SERVER or int(name) in ids]
    marked = models(opened, ids, third)
    rows = plane_rows(opened, marked, on or near, split, points, tell)
    description = f"the plane through {', '.join(map(str, marked[:3]))}"
    written = {_write(run, "landscape", opened, rows): description}
    if has_simplex(opened):
        rows = simplex_rows(opened, on or known, split, tell)
        written[_write(run, "simplex", opened, rows)] = "the simplex"
    return written


def models(
    opened: Opened, clients: Sequence[int], third: tuple[str, Tensor] | None
) -> list[MarkedModel]:
    """Return the three models of a plane, and then those of its clients that lie in it too.

    They are the shared one, unless three clients are named; another run's shared one, if given;
    and of each client the own end of its path or, where there is no such end, its personal model.
    """
    common = opened.common()
    three = [MarkedModel("shared", "", common)] if common is not None and len(clients) < 3 else []
    besides = []
    three += [MarkedModel("shared", *third)] if third else []
    for i in clients:
        own, personal = own_end(opened, i), MarkedModel("personal", str(i), opened.client(i).w)
        three.append(personal if own is None else MarkedModel("own", str(i), own))
        if own is not None and three[0].w is common:  # it is on the line between these two
            besides.append(personal)
    if len(three) != 3:
        raise IsthmusError(
            f"a plane needs three models, and these are {len(three)}: "
            f"{', '.join(map(str, three)) or 'none'}; name two clients beside the shared model, "
            "one if another run is given, or three where nothing is shared"
        )
    if len({len(model.w) for model in three}) > 1:
        sizes = ", ".join(f"{model}: {len(model.w):,}" for model in three)
        raise IsthmusError(
            f"the models have different sizes ({sizes}); name clients of one kind, or a run with "
            "the same model"
        )
    return [*three, *besides]


def has_simplex(opened: Opened) -> bool:
    """Whether the models of a method are a simplex."""
    path = opened.setting.method.path()
    return path is not None and path.name == "simplex"


def own_end(opened: Opened, i: int) -> Tensor | None:
    """Return client i's own model, where a path leads to it from the shared one."""
    path = opened.path(i)
    if path is None or path.at.shape[-1] != 1 or has_simplex(opened):
        return None
    return path.w[-1] if float(path.at[-1]) == 1 else None  # all at 0: it was never trained


def shared_model(opened: Opened, name: str) -> tuple[str, Tensor]:
    """Return the name of a run and its shared model."""
    common = opened.common()
    if common is None:
        method = opened.experiment.method["name"]
        raise IsthmusError(f"{name}: {method} has no shared model; choose another run")
    return name, common


def default_clients(opened: Opened, third: tuple[str, Tensor] | None) -> list[int]:
    """Find as many clients as a plane wants: the first, with own ends where there are such."""
    common = opened.common()
    count = 3 - (common is not None) - (third is not None)
    ends = (i for i in range(len(opened)) if own_end(opened, i) is not None)
    clients = list(islice(ends, count))
    return clients if len(clients) == count else list(range(min(count, len(opened))))


def plane_rows(
    opened: Opened,
    marked: Sequence[MarkedModel],
    on: Sequence[str],
    split: str,
    points: int,
    tell: Tell,
) -> Iterator[tuple[Any, ...]]:
    """Measure the marked models, of which the first three span the plane, and a grid there."""
    network = opened.setting.task.model
    statistics = network.statistics if len(marked[0].w) == network.size else None
    parameters = torch.ones(1) if statistics is None else torch.where(statistics, 0.0, 1.0)
    plane = plane_through(*(model.w * parameters for model in marked[:3]))
    places = np.array([plane.where(model.w * parameters) for model in marked])
    margin = MARGIN * np.ptp(places, axis=0).max()
    low, high = places.min(0) - margin, places.max(0) + margin
    parts = {name: _part(opened, name, split) for name in on}
    kind = next(
        (opened.setting.kind(int(model.of)) for model in marked if model.kind != "shared"), 0
    )
    scored = _scores(opened, (model.w for model in marked), kind, split, parts)
    for model, (x, y), rows in zip(marked, places.tolist(), scored, strict=True):
        for row in rows:
            yield opened.progress.t, model.kind, model.of, x, y, *row
    seen = {} if statistics is None else _training_inputs(opened, marked, on)
    across = np.linspace(low[0], high[0], points).tolist()
    for k, y in enumerate(np.linspace(low[1], high[1], points).tolist(), start=1):
        scored = _scores(opened, (plane.at(x, y) for x in across), kind, split, parts, seen)
        for x, rows in zip(across, scored, strict=True):
            for row in rows:
                yield opened.progress.t, "", "", x, y, *row
        tell("landscape", k * points, points * points)


def simplex_rows(
    opened: Opened, on: Sequence[str], split: str, tell: Tell
) -> Iterator[tuple[Any, ...]]:
    """Measure a lattice of models: on clients' data, of private simplices where there are such."""
    shared = opened.fresh_path()
    assert shared is not None
    grid = lattice(shared.at.shape[1], SIMPLEX_POINTS)
    for k, name in enumerate(on, start=1):
        part = {name: _part(opened, name, split)}
        path = shared if name == SERVER else opened.path(int(name)) or shared
        corners = path.w[path.at.argmax(0)]  # [V, P]: where each coordinate is 1
        scored = _scores(opened, (at @ corners for at in grid), 0, split, part)
        for at, ((client, *row),) in zip(grid.tolist(), scored, strict=True):
            yield opened.progress.t, client, at, *row
        tell("simplex", k, len(on))


def with_data(opened: Opened, split: str) -> list[str]:
    """Return who has data to measure on: the server, and clients by number."""
    federation, place = opened.setting.federation, SPLITS.index(split)
    clients = [str(i) for i in range(len(opened)) if federation.sizes(i)[place]]
    return [SERVER, *clients] if len(federation.server_test().y) else clients


def _write(run: Path, table: str, opened: Opened, rows: Iterator[tuple[Any, ...]]) -> Path:
    path = run / f"{table}.csv"
    with overwrite(path) as file:  # opened first: what cannot be written need not be measured
        file.write(encode_text(table_text(opened.experiment.toml(), table, rows)))
    return path


def _part(opened: Opened, name: str, split: str) -> Split:
    federation = opened.setting.federation
    return federation.server_test() if name == SERVER else federation.split(int(name), split)


def _training_inputs(
    opened: Opened, marked: Sequence[MarkedModel], on: Sequence[str]
) -> dict[str, Tensor]:
    """Return inputs for statistics by owner; the server has those of the plane's clients."""
    clients = [name for name in on if name != SERVER]
    owners = [model.of for model in marked[:3] if model.kind != "shared"]
    inputs = {name: _part(opened, name, "train").x for name in {*clients, *owners}}
    return inputs | {SERVER: torch.cat([inputs[name] for name in owners])}


def _scores(
    opened: Opened,
    models: Iterator[Tensor],
    kind: int,
    split: str,
    parts: Mapping[str, Split],
    seen: Mapping[str, Tensor] = MappingProxyType({}),
) -> Iterator[list[tuple[Any, ...]]]:
    """Measure models on parts of data: for each part whose, which split, n, top-1, loss.

    Where it is said what each part's owner has `seen`, models get running statistics of that.
    """
    task = opened.setting.task
    together = max(1, NUMBERS // max(task.model.size, SOME * task.classes))
    while given := list(islice(models, together)):
        networks = [_network(opened, kind, w) for w in given]
        columns = []
        for name, (x, y) in parts.items():
            if seen:
                networks = [_reestimate(opened, kind, w, seen[name]) for w in given]
            with one_thread(), torch.no_grad():
                pieces = zip(torch.split(x, SOME), torch.split(y, SOME), strict=True)
                tallies = [
                    tally(torch.stack([network(inputs) for network in networks]), labels)
                    for inputs, labels in pieces
                ]
            scored = figures(tree.map(lambda rows: rows.sum(0), tree.stack(tallies)))
            part = "test" if name == SERVER else split
            numbers = zip(
                *map(np.ndarray.tolist, (scored.n, scored.top1, scored.loss)), strict=True
            )
            columns.append([(name, part, *each) for each in numbers])
        yield from ([column[k] for column in columns] for k in range(len(networks)))


def _reestimate(opened: Opened, kind: int, w: Tensor, x: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the network with parameters w and the statistics that it has on some examples."""
    with one_thread(), torch.no_grad():
        settled = opened.setting.task.model.reestimate_statistics(w, split_evenly(x))
    return _network(opened, kind, settled)


def _network(opened: Opened, kind: int, w: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the network with parameters w; as a module, which is slower, only where it must be."""
    task, module = opened.setting.task, opened.setting.method.networks().module
    if module is load_network and len(w) == task.model.size:
        return partial(task.model.logits, w)
    return module(task, kind, w)
