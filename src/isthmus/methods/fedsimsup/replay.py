"""One model per client on the server, none of which is kept: each is made when it is looked at.

A client that takes part in round t has the model that it sent. In every round without it the server
changes its model by what the round's participants sent,

    theta_i <- keep * theta_i + sum_j share_j * theta_j

but nobody looks at theta_i before the client is next asked for something. So the shelf keeps the
uploads, and the changes that a client missed are made then, in the order of the rounds. Each is
made for one client at a time, entry by entry: the bits are those of a server that never waited.
"""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from isthmus.cohort import Clients, NobodyAnswered
from isthmus.formulas.vector import cosines

REPLAYED_MODELS_BYTES = 2**26  # bytes of models that are made in one reading of the uploads
NEVER = 2**62

Similarity = Literal["labels", "sizes", "none"]


class Server(NamedTuple):
    """Rounds, for each client: of its last upload, and since when its label counts are known."""

    last: Tensor  # [N]; -1: it sent none
    since: Tensor  # [N]; NEVER: they are not


class Change(NamedTuple):
    """What one round does to one absentee's model."""

    keep: float
    shares: list[float]  # of the participants, in ascending order of their ids

    def __call__(self, theta: Tensor, uploads: Tensor) -> Tensor:
        """Return the model after the round."""
        changed = theta * self.keep
        for share, upload in zip(self.shares, uploads, strict=True):
            changed.add_(upload, alpha=share)
        return changed


@dataclass(frozen=True)
class Absentees:
    """The rule by which FedSimSup's server moves the models of clients that are absent."""

    start: Tensor  # [P]: what all models began as
    similarity: Similarity
    c_beta: float
    gamma: float
    starts: Callable[[int], Tensor] | None = None  # what each client's began as, where they differ

    def begin(self, clients: int) -> Server:
        """Return the state before the first round."""
        known = 0 if self.similarity == "none" else NEVER
        return Server(torch.full((clients,), -1), torch.full((clients,), known))

    def beta(self, t: int, rounds: int) -> float:
        """Return how much absentees move in round t, counted from 0, of so many."""
        return min(1.0, turn(rounds, self.c_beta, self.gamma) / (t + 1)) ** 2

    def alike(self, p: Tensor, others: Tensor) -> Tensor:
        """Return the similarity of counts p [A, C] to those of others [B, C], to [A, B]."""
        if self.similarity == "labels":
            return cosines(p, others)
        return others.sum(1).double().expand(len(p), -1)

    def changes(
        self, server: Server, p: Tensor, t: int, rounds: int, ids: Tensor, absent: list[int]
    ) -> Iterator[Change | None]:
        """Yield what round t's participants do to each absentee's model (eq. 7); None: nothing.

        A client whose counts p [N, C] were unknown then was similar to nobody.
        """
        known = server.since <= t
        sim = self.alike(p[absent], p[ids]) * known[ids] * known[absent, None]  # [A, K]
        examples, participants = (p[ids].sum(1) * known[ids]).sum().double(), known[ids].sum()
        lam = examples / (examples + participants * p[absent].sum(1))
        a = torch.ones_like(lam) if self.similarity == "none" else lam * self.beta(t, rounds)
        for a_i, row in zip(a.tolist(), sim.tolist(), strict=True):
            total = sum(row)
            yield Change(1 - a_i, [a_i * s / total for s in row]) if total > 0 else None

    def models(
        self, server: Server, clients: Clients, order: Sequence[int] | None = None
    ) -> Callable[[int], Tensor]:
        """Return the clients' models as they are now, as a function of the client.

        Models are made some at a time, in the order in which they will be asked for, by default the
        cohort's, so that the uploads need not be read again for each.
        """
        order = clients.ids if order is None else order
        shelf, t, rounds = clients.shelf, clients.t, clients.task.rounds
        p = _counts(shelf, clients.total)
        place = {i: k for k, i in enumerate(order)}
        some = max(1, REPLAYED_MODELS_BYTES // self.start.nbytes)
        made: dict[int, Tensor] = {}

        def replay(who: list[int]) -> Iterator[tuple[int, Tensor]]:
            last = server.last[who].tolist()
            theta = {i: self.starts(i) if self.starts else self.start for i in who}
            for s in range(max(0, min(last)), t + 1):
                if f"ids/{s}" not in shelf:
                    continue  # nobody answered
                ids = shelf[f"ids/{s}"]
                present = [i for i, own in zip(who, last, strict=True) if own == s]
                absent = [i for i, own in zip(who, last, strict=True) if own < s]
                each = self.changes(server, p, s, rounds, ids, absent)
                changes = {i: c for i, c in zip(absent, each, strict=True) if c is not None}
                if present or changes:
                    uploads = shelf[f"uploads/{s}"]
                theta |= {i: uploads[int(torch.searchsorted(ids, i))].clone() for i in present}
                theta |= {i: change(theta[i], uploads) for i, change in changes.items()}
            yield from theta.items()

        def model(i: int) -> Tensor:
            if i not in made:
                made.clear()
                made.update(replay(list(order[place[i] : place[i] + some])))
            return made[i]

        return model

    def follow(self, server: Server, clients: Clients, ids: Tensor, theta: Tensor) -> Server:
        """Keep what the participants of a round sent, and forget what no model needs any more."""
        shelf, t = clients.shelf, clients.t
        shelf[f"ids/{t}"], shelf[f"uploads/{t}"] = ids, theta
        last = server.last.index_fill(0, ids, t)
        for s in range(int(server.last.min()), int(last.min())):
            if f"ids/{s}" in shelf:
                del shelf[f"ids/{s}"], shelf[f"uploads/{s}"]
        return server._replace(last=last)

    def count(self, server: Server, clients: Clients, census: Callable[..., Any]) -> Server:
        """Ask all clients for their counts, once; who did not answer is asked when it takes part.

        It comes after the round's training, so that this draws the batches that it always draws.
        """
        unknown = clients.ids if "counts" in clients.shelf else range(clients.total)
        since = server.since.tolist()
        asked = [i for i in unknown if since[i] == NEVER]
        if not asked:
            return server
        try:
            ids, p = clients.only(asked).map(census)
        except NobodyAnswered:
            return server
        before = clients.shelf.get("counts", p.new_zeros(clients.total, p.shape[1]))
        clients.shelf["counts"] = before.index_copy(0, ids, p)
        return server._replace(since=server.since.index_fill(0, ids, clients.t))

    def for_newcomers(self, server: Server, clients: Clients, census: Callable[..., Any]) -> Tensor:
        """Average all clients' models for each newcomer by its similarity to them, to [A, P].

        A newcomer that is similar to nobody gets their plain average.
        """
        everyone = range(clients.total)
        _, p = clients.map(census)  # [A, C]
        known = server.since < NEVER
        sim = self.alike(p, _counts(clients.shelf, clients.total)) * known  # [A, N]
        sim = torch.where(sim.sum(1, keepdim=True) > 0, sim, 1.0)
        shares = (sim / sim.sum(1, keepdim=True)).to(self.start.dtype)
        theta = self.start.new_zeros(len(p), len(self.start))
        model = self.models(server, clients, everyone)
        for i in everyone:
            theta.addr_(shares[:, i], model(i))
        return theta


def turn(rounds: int, c_beta: float, gamma: float) -> float:
    """Return the round, counted from 1, after which beta falls."""
    return float(c_beta * rounds**gamma)


def _counts(shelf: MutableMapping[str, Tensor], clients: int) -> Tensor:
    return shelf["counts"] if "counts" in shelf else torch.ones(clients, 1)
