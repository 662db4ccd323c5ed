"""How different the clients' data are: sizes, classes, label distributions."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isthmus.metrics.spread import differences, gini

Numbers = NDArray[np.float64]


class Spread(NamedTuple):
    """The least, the middle and the most of a number over clients."""

    least: int
    median: float
    most: int


class Heterogeneity(NamedTuple):
    """The figures of a table of label counts [N, C]; a client counts once, whatever its size."""

    clients: int
    examples: int
    classes: int
    sizes: Spread
    gini: float  # of the sizes: 0 all equal, towards 1 one client has all
    classes_per_client: Spread
    entropy: float  # of a client's labels, in nats, mean over clients
    pooled_entropy: float  # of all labels together, in nats
    distance: float  # total variation of two clients' label distributions, mean over all pairs


def measure_heterogeneity(counts: ArrayLike) -> Heterogeneity:
    """Measure label counts, a row per client.

    >>> measured = measure_heterogeneity([[4, 0], [0, 4], [2, 2]])
    >>> measured.classes_per_client, round(measured.distance, 3), measured.gini
    (Spread(least=1, median=1.0, most=2), 0.667, 0.0)
    """
    table = np.asarray(counts, dtype=np.int64)
    sizes = table.sum(axis=1)
    shares = table / sizes[:, None]  # [N, C]
    pairs = len(table) * (len(table) - 1) / 2
    return Heterogeneity(
        clients=len(table),
        examples=int(sizes.sum()),
        classes=table.shape[1],
        sizes=_spread(sizes),
        gini=gini(sizes),
        classes_per_client=_spread((table > 0).sum(axis=1)),
        entropy=float(entropy(shares).mean()),
        pooled_entropy=float(entropy(table.sum(axis=0) / sizes.sum())),
        # TV(p, q) = sum_c |p_c - q_c| / 2, and classes add up: no pair is looked at by itself.
        distance=float(differences(shares).sum() / 2 / pairs) if pairs else 0.0,
    )


def entropy(shares: Numbers) -> Numbers:
    """Return -sum_c p_c ln p_c over the last axis, in nats.

    >>> entropy(np.array([[1.0, 0.0], [0.5, 0.5]])).round(4).tolist()
    [0.0, 0.6931]
    """
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    terms: Numbers = np.abs(shares * logs)  # all have one sign; no minus zero
    return np.asarray(terms.sum(axis=-1))


def _spread(values: NDArray[np.int64]) -> Spread:
    return Spread(int(values.min()), float(np.median(values)), int(values.max()))
