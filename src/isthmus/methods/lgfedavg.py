"""LG-FedAvg: local and global representations (Liang et al. 2020).

    Server                                   Client k, own body bk
    for t = 0, 1, ...:                       local(h):
        S <- K clients, uniformly                bk, hk <- E epochs of SGD on F_k from (bk, h)
        hk <- local(h) of each k in S            keep bk; return hk, n_k
        h <- sum_k n_k hk / sum_k n_k

Symbols: h shared head; hk client k's copy of it; bk the client's own body, which never leaves; n_k
training examples. A model is (body, head), cut where the experiment's `head` says.

A client deploys (bk, h). Its body begins as that of the common start; one that never took part
still has it. A newcomer trains a body of its own from there, as in one participation.

Limiting case: with one client and K = 1 it is FedAvg.

Departures: bodies begin at the common start, not at a model trained by FedAvg before.
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
    """The shared head."""

    h: Tensor


class Reply(NamedTuple):
    """The client's trained head and the number of its training examples."""

    h: Tensor
    n: Tensor


@dataclass(frozen=True)
class LgFedAvg(Method):
    """Shares the head, and leaves every client its own body."""

    def about(self) -> About:
        return About(
            "shared and own layers",
            down="head",
            up="head",
            home="its body",
            newcomer="after training a body",
        )

    def init(self, task: Task) -> Server:
        return Server(task.w0[task.model.head])

    def own(self, task: Task, i: int) -> Tensor:
        return task.w0[task.model.body]

    def round(self, server: Server, clients: Clients) -> Server:
        _, reply = clients.map(self.local, server)
        return Server(mean(reply.h, reply.n))

    def local(self, client: Client, bk: Tensor, server: Server) -> tuple[Tensor, Reply]:
        bk, hk = client.descend((bk, server.h), at=lambda w, u: torch.cat(w))
        return bk, Reply(hk, client.n)

    def personal(self, client: Client, bk: Tensor, server: Server) -> Tensor:
        return torch.cat([bk, server.h])

    def join(self, client: Client, server: Server) -> Tensor:
        return self.local(client, client.own, server)[0]
