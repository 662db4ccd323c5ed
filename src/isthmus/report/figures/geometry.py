"""What a run's geometry looks like, in numbers only: paths, simplices, landscapes, similarities.

The page and static figures draw these; nothing here knows how. Sizes: N clients, M of them, V
vertices, L places, D data sets that models were measured on.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.errors import IsthmusError
from isthmus.records.columns import Floats, Integers, columns, floats, integers
from isthmus.records.reader import Along, Run

METRICS = ("top1", "loss", "ece")  # measured along a path
MEASURED = ("top1", "loss")  # over a simplex, and in a plane
SERVER = "server"
EVERYONE = "everyone"  # the mean over clients, each on its own data
CHOICES_AT_MOST = 120  # clients whose simplices a reader may choose among
BRANCHES = ("1 0", "1 1", "0 1")  # weights of a shared and an own network, whose logits are added


class Path(NamedTuple):
    """What was measured along the paths of the M clients that have an end of their own."""

    client: Integers  # [M]
    lam: Floats  # [L]
    chosen: Floats  # [M]: where the client's personal model lies
    values: Mapping[str, Floats]  # of each metric, [M, L]
    personal: Mapping[str, Floats]  # of each metric, [M]

    def mean(self, metric: str) -> Floats:
        """Averages a metric over the clients, at each place."""
        mean: Floats = np.mean(self.values[metric], axis=0)
        return mean


class Places(NamedTuple):
    """Where the models of a kind lie in a simplex, and whose they are."""

    client: Integers  # [M]
    at: Floats  # [M, V]
    values: Floats  # [M]

    @property
    def placed(self) -> NDArray[np.bool_]:
        """Tells which are away from the centre, where everybody is before there are places."""
        away: NDArray[np.bool_] = np.abs(self.at - 1 / self.at.shape[1]).max(1) > 1e-5
        return away


class Projection(NamedTuple):
    """How a simplex is drawn: where its corners are; what lies between them lies between them."""

    corners: Floats  # [V, 2], at most 1 from the origin
    said: str

    def __call__(self, at: Floats) -> Floats:
        """Finds where points [..., V] are drawn, [..., 2]."""
        return at @ self.corners


class Surface(NamedTuple):
    """How good the models of a simplex are on several data sets."""

    at: Floats  # [L, V]
    on: tuple[str, ...]  # SERVER, EVERYONE, or a client's number: D of them
    split: str  # of clients' data
    n: Integers  # [D]: examples
    values: Mapping[str, Floats]  # of each metric, [D, L]
    measured: bool  # by `isthmus landscape`; else it is the coarse lattice of every evaluation
    round: int


class Marked(NamedTuple):
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
    models: tuple[Marked, ...]  # the first three span the plane
    round: int


class Similarity(NamedTuple):
    """How alike clients' labels are, and what each of their two networks adds to the other.

    Clients come in an order in which those that are alike are near each other.
    """

    client: Integers  # [N]
    matrix: Floats  # [N, N]: cosines of label counts
    own_adds: Floats  # [N]: top-1 of the sum, less that of the shared network alone; nan if unknown
    shared_adds: Floats  # [N]: top-1 of the sum, less that of the own network alone


def walked(run: Run) -> Path | None:
    """Collects what a run recorded along its paths at the last evaluated round, if it has paths."""
    along = {metric: run.along(metric) for metric in METRICS}
    first = along["top1"]
    if first is None:
        return None
    places = np.searchsorted(run.federation.client, first.client)
    return Path(
        first.client,
        first.lam,
        first.chosen,
        {metric: found.values for metric, found in along.items() if found is not None},
        {metric: run.values(metric)[places] for metric in METRICS},
    )


def places(run: Run, model: str, metric: str) -> Places:
    """Finds the places of a kind of model, and a metric there, on the clients' own test parts."""
    rows = (run.clients.model == model) & (run.clients.split == "test") & (run.clients.n > 0)
    rows &= (run.clients.round == run.last) & (run.clients.client >= 0)
    return Places(
        run.clients.client[rows],
        _coordinates(run.clients.at[rows].tolist()),
        getattr(run.clients, metric)[rows],
    )


def projected(at: Floats) -> Projection:
    """Finds how to draw a simplex with points [M, V] in it.

    Up to three vertices it is drawn as it is. With more, along the two principal components of the
    points; where these do not differ in two directions, on a regular polygon.
    """
    vertices = at.shape[1]
    angles = np.pi / 2 + 2 * np.pi * np.arange(vertices) / vertices
    polygon = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    if vertices <= 3:
        shape = ("point", "line", "triangle")[vertices - 1]
        return Projection(polygon, f"the simplex is a {shape}, drawn as it is")
    mean = at.mean(0)
    _, s, components = np.linalg.svd(at - mean, full_matrices=False)
    if len(s) < 2 or s[1] < 1e-6:
        return Projection(
            polygon,
            f"the {vertices} vertices are drawn as a regular polygon, and a point at their mean "
            "with its coordinates as weights: different points may coincide",
        )
    seen = components[:2].T * np.sign(components[:2].sum(1) + 1e-12)  # [V, 2]
    corners = seen - mean @ seen  # coordinates sum to 1: this subtracts the mean
    share = float((s[:2] ** 2).sum() / (s**2).sum())
    return Projection(
        corners / np.linalg.norm(corners, axis=1).max(),
        f"{vertices} vertices are projected to the two directions in which the clients' points "
        f"differ most ({100 * share:.0f} % of their variance): different points may coincide",
    )


def outline(alpha: Floats, rho: float, corners: Floats, directions: int = 48) -> Floats:
    """Finds how far a region goes in all directions: mass rho / 2 goes to the best corner."""
    reached = []
    for angle in np.linspace(0, 2 * np.pi, directions, endpoint=False):
        order = np.argsort(corners @ [np.cos(angle), np.sin(angle)])
        left = np.minimum(np.cumsum(alpha[order[:-1]]), rho / 2)
        moved = alpha.copy()
        moved[order[:-1]] -= np.diff(left, prepend=0)
        moved[order[-1]] += left[-1] if len(left) else 0
        reached.append(moved @ corners)
    return np.array([*reached, reached[0]])


def surface(run: Run) -> Surface | None:
    """Collects how good a run's simplex is: as it was measured, else from its last evaluation."""
    file = run.path / "simplex.csv"
    if file.is_file():
        table = columns(file, ("round", "client", "at", "split", "n", *MEASURED))
        whose, texts, splits = table["client"], table["at"], table["split"]
        n = integers(file, table, "n")
        found = {metric: floats(file, table, metric) for metric in MEASURED}
        last = int(integers(file, table, "round").max(initial=0))
    else:
        rows = (run.clients.model == "simplex") & (run.clients.split == "test")
        rows &= (run.clients.round == run.last) & (run.clients.n > 0)
        whose = [str(client) for client in run.clients.client[rows].tolist()]
        texts, splits = run.clients.at[rows].tolist(), run.clients.split[rows].tolist()
        n = run.clients.n[rows]
        found = {metric: getattr(run.clients, metric)[rows] for metric in MEASURED}
        last = run.last
    if not whose:
        return None
    on, where = _numbered(whose)
    at, point = _numbered(texts)
    values = {
        metric: _spread(found[metric], (where, point), (len(on), len(at))) for metric in found
    }
    sizes = np.zeros(len(on), dtype=np.int64)
    sizes[where] = n
    clients = [place for place, name in enumerate(on) if name != SERVER]
    order = [place for place, name in enumerate(on) if name == SERVER]
    kept = [*order, *clients[:CHOICES_AT_MOST]]
    names, counts = [on[place] for place in kept], sizes[kept].tolist()
    chosen = {metric: table[kept] for metric, table in values.items()}
    if clients:
        names.insert(len(order), EVERYONE)
        counts.insert(len(order), int(sizes[clients].sum()))
        chosen = {
            metric: np.insert(table, len(order), values[metric][clients].mean(0), axis=0)
            for metric, table in chosen.items()
        }
    split = next((s for s, name in zip(splits, whose, strict=True) if name != SERVER), "test")
    return Surface(
        _coordinates(at), tuple(names), split, np.array(counts), chosen, file.is_file(), last
    )


def landscape(run: Run) -> Landscape | None:
    """Reads the plane that `isthmus landscape` measured of a run, if it did."""
    file = run.path / "landscape.csv"
    if not file.is_file():
        return None
    table = columns(file, ("round", "model", "of", "x", "y", "client", "split", "n", *MEASURED))
    on, where = _numbered(table["client"])
    x, y = floats(file, table, "x"), floats(file, table, "y")
    kind = np.asarray(table["model"])
    grid = kind == ""
    if not grid.any():
        raise IsthmusError(f"{file} has no grid; expected one; measure it again")
    across, column = np.unique(x[grid], return_inverse=True)
    up, row = np.unique(y[grid], return_inverse=True)
    shape = (len(on), len(up), len(across))
    measured = {metric: floats(file, table, metric) for metric in MEASURED}
    values = {
        metric: _spread(found[grid], (where[grid], row, column), shape)
        for metric, found in measured.items()
    }
    sizes = np.zeros(len(on), dtype=np.int64)
    sizes[where] = integers(file, table, "n")
    splits = zip(table["split"], table["client"], strict=True)
    return Landscape(
        across,
        up,
        tuple(on),
        next((split for split, name in splits if name != SERVER), "test"),
        sizes,
        values,
        tuple(_marked(table, kind, where, x, y, measured, len(on))),
        int(integers(file, table, "round").max()),
    )


def side_by_side(run: Run, metric: str) -> Along | None:
    """Returns a metric of the shared network, of its sum with the own one, and of the own one.

    They lie at 0, 1/2 and 1. Clients whose own network is not trained yet are left out.
    """
    values = np.stack([run.values(metric, "path", at=at) for at in BRANCHES], axis=1)
    owner = ~np.isnan(values).any(axis=1)
    if not owner.any():
        return None
    client = run.federation.client[owner]
    return Along(client, np.array([0, 0.5, 1]), values[owner], np.full(len(client), np.nan))


def similarity(run: Run, most: int) -> Similarity:
    """Finds how alike the labels of the first clients are, and what their networks add."""
    counts = run.federation.labels[:most].astype(np.float64)
    unit = counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-300)
    matrix = unit @ unit.T
    order = np.array(neighbours(matrix), dtype=np.int64)
    shared, both, own = (run.values("top1", "path", at=at)[:most][order] for at in BRANCHES)
    return Similarity(
        run.federation.client[:most][order],
        matrix[np.ix_(order, order)],
        both - shared,
        both - own,
    )


def neighbours(matrix: Floats) -> list[int]:
    """Orders rows so that similar ones are near each other.

    The two groups of highest mean similarity are joined, again and again, first of single rows;
    each is turned so that the more similar of its ends meet.

    >>> neighbours(np.array([[1, 0, 0.9], [0, 1, 0.1], [0.9, 0.1, 1]]))
    [0, 2, 1]
    """
    groups = [[i] for i in range(len(matrix))]
    means = np.array(matrix, dtype=np.float64)
    np.fill_diagonal(means, -np.inf)
    while len(groups) > 1:
        a, b = sorted(divmod(int(means.argmax()), len(groups)))
        turned = [(first, second) for first in _ways(groups[a]) for second in _ways(groups[b])]
        first, second = max(turned, key=lambda pair: matrix[pair[0][-1], pair[1][0]])
        sizes = len(first), len(second)
        joined = (sizes[0] * means[a] + sizes[1] * means[b]) / sum(sizes)
        means[a], means[:, a], means[a, a] = joined, joined, -np.inf
        means = np.delete(np.delete(means, b, 0), b, 1)
        groups[a] = first + second
        del groups[b]
    return groups[0] if groups else []


def _ways(group: list[int]) -> list[list[int]]:
    return [group, group[::-1]]


def _marked(
    table: Mapping[str, list[str]],
    kind: NDArray[Any],
    where: Integers,
    x: Floats,
    y: Floats,
    measured: Mapping[str, Floats],
    count: int,
) -> Sequence[Marked]:
    found: dict[tuple[str, str], list[int]] = {}
    for place in np.flatnonzero(kind != "").tolist():
        found.setdefault((str(kind[place]), table["of"][place]), []).append(place)
    return [
        Marked(
            *key,
            float(x[rows[0]]),
            float(y[rows[0]]),
            {
                name: _spread(column[rows], (where[rows],), (count,))
                for name, column in measured.items()
            },
        )
        for key, rows in found.items()
    ]


def _numbered(names: Sequence[str]) -> tuple[list[str], Integers]:
    """Numbers different names in order of appearance."""
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return list(number), np.array([number[name] for name in names], dtype=np.int64)


def _spread(values: Floats, where: tuple[Integers, ...], shape: tuple[int, ...]) -> Floats:
    table = np.full(shape, np.nan)
    table[where] = values
    return table


def _coordinates(texts: Sequence[str]) -> Floats:
    return np.array([[float(number) for number in text.split()] for text in texts])
