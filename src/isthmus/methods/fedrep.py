"""FedRep: shared representations (Collins et al., ICML 2021).

    Server                                   Client k, own head hk
    for t = 0, 1, ...:                       local(b):
        S <- K clients, uniformly                hk <- head_epochs of SGD on F_k(b, hk), b frozen
        bk <- local(b) of each k in S            bk <- body_epochs of SGD on F_k(bk, hk), hk frozen
        b <- sum_k n_k bk / sum_k n_k            keep hk; return bk, n_k

Symbols: b shared body; bk client k's copy of it; hk the client's own head, which never leaves; n_k
training examples. A model is (body, head), cut where the experiment's `head` says. The experiment's
number of epochs is not used; momentum begins anew in each of the two phases.

A client deploys (b, hk). Its head begins as that of the common start; one that never took part
still has it. A newcomer fits the head to its own data, body frozen, for `head_epochs`.

Limiting case: with head_epochs = 0 it is FedBABU without tuning.

Departures: none; the paper's experiments use 10 epochs for the head and 1 to 5 for the body.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.client import Client
from isthmus.cohort import Clients
from isthmus.formulas.vector import mean
from isthmus.method import About, Method
from isthmus.ranges import Repeats, RepeatsOrNone
from isthmus.task import Task


class Server(NamedTuple):
    """The shared body."""

    b: Tensor


class Reply(NamedTuple):
    """The client's trained body and the number of its training examples."""

    b: Tensor
    n: Tensor


@dataclass(frozen=True)
class FedRep(Method):
    """Shares the body, and leaves every client its own head; first the head is fitted."""

    head_epochs: RepeatsOrNone = 10
    body_epochs: Repeats = 1

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

    def passes(self, task: Task) -> int:
        return self.head_epochs + self.body_epochs

    def round(self, server: Server, clients: Clients) -> Server:
        _, reply = clients.map(self.local, server)
        return Server(mean(reply.b, reply.n))

    def local(self, client: Client, hk: Tensor, server: Server) -> tuple[Tensor, Reply]:
        hk = self.fit(client, hk, server)

        def at(b: Tensor, u: Tensor) -> Tensor:
            return torch.cat([b, hk])

        bk = client.descend(server.b, at=at, epochs=self.body_epochs)
        return hk, Reply(bk, client.n)

    def fit(self, client: Client, hk: Tensor, server: Server) -> Tensor:
        def at(h: Tensor, u: Tensor) -> Tensor:
            return torch.cat([server.b, h])

        fitted: Tensor = client.descend(hk, at=at, epochs=self.head_epochs)
        return fitted

    def personal(self, client: Client, hk: Tensor, server: Server) -> Tensor:
        return torch.cat([server.b, hk])

    def join(self, client: Client, server: Server) -> Tensor:
        return self.fit(client, client.own, server)
