"""FedBABU: body aggregation and body update (Oh, Kim, Yun, ICLR 2022).

    Server                                   Client k
    for t = 0, 1, ...:                       local(b):
        S <- K clients, uniformly                bk <- E epochs of SGD on F_k(bk, h0), h0 frozen
        bk <- local(b) of each k in S            return bk, n_k
        b <- sum_k n_k bk / sum_k n_k

Symbols: b shared body; bk client k's copy of it; h0 the common head, which stays as it was drawn;
n_k training examples. A model is (body, head), cut where the experiment's `head` says.

The shared model is (b, h0). A client deploys it after `tune` epochs on its own data, body and head
together; a newcomer too.

Limiting case: with tune = 0 it is FedRep without epochs for the head.

Departures: none; the paper tunes for 5 epochs, and reports 1 to 20.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.client import Client
from isthmus.cohort import Clients
from isthmus.formulas.vector import mean
from isthmus.method import About, Method
from isthmus.ranges import RepeatsOrNone
from isthmus.task import Task


class Server(NamedTuple):
    """The shared body, and the head that nobody trains."""

    b: Tensor
    h0: Tensor


class Body(NamedTuple):
    """The shared body, on its way to a client that has the head already."""

    b: Tensor


class Reply(NamedTuple):
    """The client's trained body and the number of its training examples."""

    b: Tensor
    n: Tensor


@dataclass(frozen=True)
class FedBabu(Method):
    """Trains the body under a head that stays as it was drawn; tunes both in the end."""

    tune: RepeatsOrNone = 5  # epochs before a client deploys

    def about(self) -> About:
        return About("one model, tuned at home", down="body", up="body", newcomer="after tuning")

    def init(self, task: Task) -> Server:
        return Server(task.w0[task.model.body], task.w0[task.model.head])

    def passes(self, task: Task) -> int:
        return max(task.epochs, self.tune)

    def round(self, server: Server, clients: Clients) -> Server:
        _, reply = clients.map(self.local, Body(server.b))
        return server._replace(b=mean(reply.b, reply.n))

    def local(self, client: Client, own: tuple[()], body: Body) -> tuple[tuple[()], Reply]:
        h0 = client.task.w0[client.model.head]

        def at(b: Tensor, u: Tensor) -> Tensor:
            return torch.cat([b, h0])

        return own, Reply(client.descend(body.b, at=at), client.n)

    def personal(self, client: Client, own: tuple[()], server: Server) -> Tensor:
        tuned: Tensor = client.descend(self.common(server), epochs=self.tune)
        return tuned

    def common(self, server: Server) -> Tensor:
        return torch.cat([server.b, server.h0])
