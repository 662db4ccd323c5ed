"""FedPer: personalization layers (Arivazhagan et al. 2019).

    Server                                   Client k, own head hk
    for t = 0, 1, ...:                       local(b):
        S <- K clients, uniformly                bk, hk <- E epochs of SGD on F_k from (b, hk)
        bk <- local(b) of each k in S            keep hk; return bk, n_k
        b <- sum_k n_k bk / sum_k n_k

Symbols: b shared body; bk client k's copy of it; hk the client's own head, which never leaves; n_k
training examples. A model is (body, head), cut where the experiment's `head` says.

A client deploys (b, hk). Its head begins as that of the common start; one that never took part
still has it. A newcomer fits the head to its own data, body frozen, for E epochs.

Limiting case: with a head of no parameters, or with one client and K = 1, it is FedAvg.

Departures: none.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.client import Client
from isthmus.cohort import Clients
from isthmus.formulas.vector import mean
from isthmus.method import About, Method
from isthmus.task import Task


class Server(NamedTuple):
    """The shared body."""

    b: Tensor


class Reply(NamedTuple):
    """The client's trained body and the number of its training examples."""

    b: Tensor
    n: Tensor


@dataclass(frozen=True)
class FedPer(Method):
    """Shares the body, and leaves every client its own head; both are trained together."""

    def about(self) -> About:
        return About(
            "shared and own layers",
            down="body",
            up="body",
            home="its head",
            newcomer="after fitting a head",
        )

    def init(self, task: Task) -> Server:
        return Server(task.w0[task.model.body])

    def own(self, task: Task, i: int) -> Tensor:
        return task.w0[task.model.head]

    def round(self, server: Server, clients: Clients) -> Server:
        _, reply = clients.map(self.local, server)
        return Server(mean(reply.b, reply.n))

    def local(self, client: Client, hk: Tensor, server: Server) -> tuple[Tensor, Reply]:
        bk, hk = client.descend((server.b, hk), at=lambda w, u: torch.cat(w))
        return hk, Reply(bk, client.n)

    def personal(self, client: Client, hk: Tensor, server: Server) -> Tensor:
        return torch.cat([server.b, hk])

    def join(self, client: Client, server: Server) -> Tensor:
        def at(h: Tensor, u: Tensor) -> Tensor:
            return torch.cat([server.b, h])

        hk: Tensor = client.descend(client.own, at=at)
        return hk
