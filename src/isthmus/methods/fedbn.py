"""FedBN: local normalisation (Li et al., ICLR 2021).

    Server                                   Client k, own normalisation gk
    for t = 0, 1, ...:                       local(w):
        S <- K clients, uniformly                wk, gk <- E epochs of SGD on F_k from (w, gk)
        wk <- local(w) of each k in S            keep gk; return wk, n_k
        w <- sum_k n_k wk / sum_k n_k

Symbols: w the shared parameters, all but those of normalisation layers; wk client k's copy of them;
gk the scales and shifts of the client's normalisation layers and their running statistics, which
never leave; n_k training examples.

A client deploys (w, gk). Its normalisation begins as that of the common start, and so does that of
a client that never took part. A newcomer fits it to its own data, all else frozen, for E epochs.

Limiting case: in a network without normalisation layers it is FedAvg.

Departures: none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.client import Client
from isthmus.cohort import Clients
from isthmus.formulas.vector import mean
from isthmus.method import About, Method
from isthmus.task import Task

Stretches = Sequence[tuple[bool, int]]  # parameters that normalise, or do not, in turns


class Server(NamedTuple):
    """The shared parameters: all but those of normalisation layers."""

    w: Tensor


class Reply(NamedTuple):
    """The client's trained copy and the number of its training examples."""

    w: Tensor
    n: Tensor


@dataclass(frozen=True)
class FedBn(Method):
    """Shares all parameters but those of normalisation layers."""

    def about(self) -> About:
        return About(
            "shared and own layers",
            down="w without normalisation",
            up="w without normalisation",
            home="its normalisation",
            newcomer="after fitting its normalisation",
        )

    def init(self, task: Task) -> Server:
        return Server(apart(task.model.stretches, task.w0)[0])

    def own(self, task: Task, i: int) -> Tensor:
        return apart(task.model.stretches, task.w0)[1]

    def round(self, server: Server, clients: Clients) -> Server:
        if clients.t == 0 and not any(kept for kept, _ in clients.task.model.stretches):
            clients.note("the model has no normalisation layers: fedbn is fedavg here")
        _, reply = clients.map(self.local, server)
        return Server(mean(reply.w, reply.n))

    def local(self, client: Client, gk: Tensor, server: Server) -> tuple[Tensor, Reply]:
        wk, gk = client.descend(
            (server.w, gk), at=lambda w, u: put_together(client.model.stretches, *w)
        )
        return gk, Reply(wk, client.n)

    def personal(self, client: Client, gk: Tensor, server: Server) -> Tensor:
        return put_together(client.model.stretches, server.w, gk)

    def join(self, client: Client, server: Server) -> Tensor:
        gk: Tensor = client.descend(
            client.own, at=lambda g, u: put_together(client.model.stretches, server.w, g)
        )
        return gk


def apart(stretches: Stretches, w: Tensor) -> tuple[Tensor, Tensor]:
    """Take all parameters apart: into the shared ones, and those of normalisation layers."""
    parts = torch.split(w, [size for _, size in stretches])
    kinds = [kept for kept, _ in stretches]
    shared, own = (
        [part for part, kept in zip(parts, kinds, strict=True) if kept is wanted]
        for wanted in (False, True)
    )
    return torch.cat([w[:0], *shared]), torch.cat([w[:0], *own])


def put_together(stretches: Stretches, w: Tensor, gk: Tensor) -> Tensor:
    """Put shared parameters and those of normalisation layers back into their places."""
    shared, own = (
        iter(torch.split(vector, [size for kept, size in stretches if kept is wanted]))
        for wanted, vector in ((False, w), (True, gk))
    )
    return torch.cat([next(own if kept else shared) for kept, _ in stretches])
