"""Who gets which examples: each partition is a frozen setting whose `cut` gives index arrays.

Every partition is disjoint, gives every client at least one example, and is a pure function of the
labels, the number of clients and the random stream.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from isthmus.errors import IsthmusError
from isthmus.ranges import PositiveInt

Labels = NDArray[np.int64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Iid:
    """Shuffles and cuts into equal parts; sizes differ by one at most."""

    def cut(self, y: Labels, clients: int, rng: np.random.Generator) -> list[Indices]:
        """Gives each client its indices into y."""
        _enough(len(y), clients, "clients", "lower clients")
        return list(np.array_split(rng.permutation(len(y)), clients))


@dataclass(frozen=True)
class Pathological:
    """Sorts by label, cuts into shards * clients equal shards, gives each client `shards` of them.

    `random` assignment is McMahan's; `strided` gives shard j to client j mod K, as the SuPerFed
    code does, so that with ten balanced classes only the pairs (c, c + 5) occur. A shard may
    straddle two classes where classes are unequal.
    """

    shards: PositiveInt = 2
    assignment: Literal["random", "strided"] = "random"

    def cut(self, y: Labels, clients: int, rng: np.random.Generator) -> list[Indices]:
        """Gives each client its indices into y."""
        count = self.shards * clients
        _enough(len(y), count, f"shards ({self.shards} x {clients} clients)", "lower clients")
        shuffled = rng.permutation(len(y))
        by_label = shuffled[np.argsort(y[shuffled], kind="stable")]
        pieces = np.array_split(by_label, count)
        order = rng.permutation(count) if self.assignment == "random" else np.arange(count)
        taken = order.reshape(self.shards, clients).T  # [clients, shards]
        return [np.concatenate([pieces[piece] for piece in row]) for row in taken]


def _enough(examples: int, wanted: int, what: str, remedy: str) -> None:
    if wanted > examples:
        raise IsthmusError(
            f"{wanted} {what} asked for, but there are only {examples} examples; expected at least "
            f"one example each; {remedy}"
        )


PARTITIONS: dict[str, type[Iid] | type[Pathological]] = {
    "iid": Iid,
    "pathological": Pathological,
}
