"""Equal parts, shards, and parts that are unequal in size alone."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from isthmus.data.partitions.division import (
    Counts,
    Division,
    Indices,
    Labels,
    Partition,
    check_enough,
    check_least,
    dirichlet,
    draw_with_least,
    proportional,
)
from isthmus.ranges import Positive, PositiveInt


@dataclass(frozen=True)
class Iid(Partition):
    """Equal parts of the shuffled examples; sizes differ by one at most."""

    def cut(self, y: Labels, clients: int, rng: np.random.Generator) -> Division:
        """Return the indices into y of each client."""
        check_enough(len(y), clients, "clients")
        return Division(list(np.array_split(rng.permutation(len(y)), clients)))


@dataclass(frozen=True)
class Pathological(Partition):
    """Examples sorted by label and cut into equal shards, `shards` of which each client gets.

    `random` assignment is McMahan's. `strided` gives shard j to client j mod N, as the SuPerFed
    code does, so that with ten balanced classes only the pairs (c, c + 5) occur. `neighbours` is
    that of the code at the time of its first version: the first shard of every class, then the
    second of every class, and so on; a client gets neighbours, so that with ten balanced classes
    only the pairs (0, 1), (2, 3), ... occur. A shard may straddle two classes where classes are
    unequal.
    """

    shards: PositiveInt = 2
    assignment: Literal["random", "strided", "neighbours"] = "random"

    def cut(self, y: Labels, clients: int, rng: np.random.Generator) -> Division:
        """Return the indices into y of each client."""
        count = self.shards * clients
        check_enough(len(y), count, f"shards ({self.shards} x {clients} clients)")
        shuffled = rng.permutation(len(y))
        by_label = shuffled[np.argsort(y[shuffled], kind="stable")]
        pieces = np.array_split(by_label, count)
        if self.assignment == "neighbours":
            firsts = y[np.array([piece[0] for piece in pieces])]
            taken = _round_robin(firsts).reshape(clients, self.shards)
        else:
            order = rng.permutation(count) if self.assignment == "random" else np.arange(count)
            taken = order.reshape(self.shards, clients).T  # [clients, shards]
        return Division([np.concatenate([pieces[piece] for piece in row]) for row in taken])


def _round_robin(kinds: Labels) -> Indices:
    """Order sorted things so that the first of every kind come first, then the second."""
    counts = np.unique(kinds, return_counts=True)[1]
    rank = np.arange(len(kinds)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.argsort(rank, kind="stable")


@dataclass(frozen=True)
class Quantity(Partition):
    """Labels as they come, sizes in Dirichlet(alpha) proportions over the clients."""

    alpha: Positive = 0.5
    least: PositiveInt = 10  # examples that every client has

    def cut(self, y: Labels, clients: int, rng: np.random.Generator) -> Division:
        """Return the indices into y of each client."""
        check_least(len(y), clients, self.least)

        def draw() -> Counts:
            proportions = dirichlet(self.alpha, clients, 1, rng)[0]
            return proportional(proportions, len(y))[:, None]

        counts, notes = draw_with_least(draw, self.least)
        ends = np.cumsum(counts[:, 0])[:-1]
        return Division(np.split(rng.permutation(len(y)), ends), notes)
