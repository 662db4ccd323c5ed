"""Three partitions that are all called Dirichlet, and differ in what is drawn for which client."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from isthmus.data.partitions.division import (
    Counts,
    Division,
    Labels,
    Partition,
    Proportions,
    check_enough,
    check_least,
    deal,
    dirichlet,
    draw_with_least,
    equal_sizes,
    fill_slots,
    proportional,
    slots,
)
from isthmus.errors import IsthmusError
from isthmus.ranges import NonNegativeInt, Positive, PositiveInt


@dataclass(frozen=True)
class DirichletClasswise(Partition):
    """Each class divided by Dirichlet(alpha) over the clients that are below the mean size.

    For each class c, in their order:

        q ~ Dirichlet(alpha 1) over the clients; q_k <- 0 where k has n / N examples or more;
        q <- q / sum q; the shuffled class is cut by the cumulated q

    as in the SuPerFed code. Sizes are unequal; every example is used once. `redraw` draws all again
    where a client gets fewer than `least` examples, and moves examples where that does not help.
    `drop` leaves such clients out, as that code does: then there are fewer clients, and not all
    examples are used.
    """

    alpha: Positive = 1.0
    least: PositiveInt = 11  # examples that every client has; the SuPerFed code: more than 10
    short: Literal["redraw", "drop"] = "redraw"
    drawn: NonNegativeInt = 0  # clients before any are dropped; 0: as many as the experiment says

    def cut(self, y: Labels, clients: int, rng: np.random.Generator) -> Division:
        """Return the indices into y of each client."""
        clients = self.drawn or clients
        _, y = np.unique(y, return_inverse=True)
        if self.short == "drop":
            check_enough(len(y), clients, "clients")
            counts, notes = self._drop_short(self._draw(y, clients, rng))
        else:
            check_least(len(y), clients, self.least)
            counts, notes = draw_with_least(lambda: self._draw(y, clients, rng), self.least)
        return Division(deal(y, *slots(counts), len(counts), rng), notes)

    def _draw(self, y: Labels, clients: int, rng: np.random.Generator) -> Counts:
        room = np.bincount(y)
        counts = np.zeros((clients, len(room)), np.int64)
        held = np.zeros(clients, np.int64)
        for c, n in enumerate(room):
            below = np.flatnonzero(held < len(y) / clients)
            # q without some entries, divided by the sum of the rest, is Dirichlet over the rest.
            q = dirichlet(self.alpha, len(below), 1, rng)[0]
            counts[below, c] = proportional(q, n)
            held += counts[:, c]
        return counts

    def _drop_short(self, counts: Counts) -> tuple[Counts, tuple[str, ...]]:
        enough = counts.sum(axis=1) >= self.least
        if enough.all():
            return counts, ()
        if not enough.any():
            raise IsthmusError(
                f"dirichlet-classwise(alpha={self.alpha:g}) left each of {len(counts)} clients "
                f"with fewer than least={self.least} examples; lower clients or least"
            )
        note = (
            f"{(~enough).sum():,} of {len(counts):,} clients with fewer than {self.least} examples "
            f"were dropped, and with them {counts[~enough].sum():,} of {counts.sum():,} examples"
        )
        return counts[enough], (note,)


@dataclass(frozen=True)
class DirichletClientwise(Partition):
    """Equal sizes; each client draws classes by phi_k ~ Dirichlet(beta), as FLOCO's releases do.

        repeat: k <- a client that is not full yet, uniformly; c <- a class by phi_k;
                client k takes an unused example of class c

    (after FedDyn and FedDC). Where class c is used up, one release draws c again, the other sets
    phi_kc to 0 and divides by the sum: both give an open class in the proportions of phi_k, so that
    there is one rule here. All examples are used.
    """

    beta: Positive = 0.5

    def cut(self, y: Labels, clients: int, rng: np.random.Generator) -> Division:
        """Return the indices into y of each client."""
        check_enough(len(y), clients, "clients")
        _, y = np.unique(y, return_inverse=True)
        phi = dirichlet(self.beta, int(y.max()) + 1, clients, rng)
        return _fill_equal(y, phi, rng)


@dataclass(frozen=True)
class DirichletHsu(Partition):
    """Equal sizes; phi_k ~ Dirichlet(alpha p) around the class shares p, after Hsu et al. (2019).

    alpha is the sum of the concentrations: with ten balanced classes alpha = 1 is as uneven as
    beta = 0.1 of `dirichlet-clientwise`. Clients take examples as they do there.
    """

    alpha: Positive = 1.0

    def cut(self, y: Labels, clients: int, rng: np.random.Generator) -> Division:
        """Return the indices into y of each client."""
        check_enough(len(y), clients, "clients")
        _, y = np.unique(y, return_inverse=True)
        p = np.bincount(y) / len(y)
        return _fill_equal(y, dirichlet(self.alpha * p, len(p), clients, rng), rng)


def _fill_equal(y: Labels, phi: Proportions, rng: np.random.Generator) -> Division:
    """Fill clients of equal sizes in turns at random, each drawing classes by its phi [N, C]."""
    clients = len(phi)
    sizes = equal_sizes(len(y), clients)
    owner = np.repeat(np.arange(clients), sizes)
    # Clients that act at exponential intervals take turns uniformly, until each is full.
    times = np.cumsum(rng.exponential(size=(clients, int(sizes.max()))), axis=1)
    moments = times[np.arange(sizes.max()) < sizes[:, None]]
    owner = owner[np.argsort(moments)]
    filled = fill_slots(np.bincount(y), None, phi, owner, rng)
    note = (
        f"{filled.late:,} of {len(y):,} draws fell on classes that were used up, and were made "
        "again among the others"
    )
    if filled.astray:
        note += f"; {filled.astray:,} of them among classes of which the client wants none"
    shares = deal(y, owner, filled.classes, clients, rng)
    return Division(shares, (note,) if filled.late else ())
