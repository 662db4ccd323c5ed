"""Ditto: fair and robust federated learning through personalization (Li et al., ICML 2021).

    Server                                   Client k, own model vk
    for t = 0, 1, ...:                       local(w):
        S <- K clients, uniformly                wk <- E epochs of SGD on F_k from w
        wk <- local(w) of each k in S            vk <- own_epochs of SGD from vk on
        w <- sum_k n_k wk / sum_k n_k                F_k(vk) + lam/2 |vk - w|^2
                                                 keep vk; return wk, n_k

Symbols: w shared model, as received; wk client k's copy of it; vk the client's own model, which
never leaves; lam its pull towards w; n_k training examples.

A client deploys vk; one that never took part deploys w. A newcomer trains vk from w as in one
participation.

Limiting case: its shared model is that of FedAvg.

Departures: a client that never took part deploys w instead of the common start.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from isthmus.client import Client
from isthmus.cohort import Clients
from isthmus.formulas.vector import mean, squared_distance, sum_of_norms
from isthmus.method import About, Method
from isthmus.ranges import NonNegative, Repeats
from isthmus.task import Task


class Server(NamedTuple):
    """The shared model."""

    w: Tensor


class Own(NamedTuple):
    """The client's own model, and whether it ever took part."""

    v: Tensor
    seen: Tensor


class Reply(NamedTuple):
    """The client's trained copy and the number of its training examples."""

    w: Tensor
    n: Tensor


@dataclass(frozen=True)
class Ditto(Method):
    """Trains a shared model, and for every client a model of its own that stays near it."""

    lam: NonNegative = 1.0  # pull of the own model towards the shared one
    own_epochs: Repeats = 5
    proximity: Literal["squared", "sum_of_norms"] = "squared"  # as published; as SuPerFed's code

    def about(self) -> About:
        return About(
            "own model near the shared one",
            down="w",
            up="w",
            home="its model",
            newcomer="at once with w; its own after training",
        )

    def init(self, task: Task) -> Server:
        return Server(task.w0)

    def own(self, task: Task, i: int) -> Own:
        return Own(task.w0, torch.tensor(False))

    def passes(self, task: Task) -> int:
        return task.epochs + self.own_epochs

    def round(self, server: Server, clients: Clients) -> Server:
        _, reply = clients.map(self.local, server)
        return Server(mean(reply.w, reply.n))

    def local(self, client: Client, own: Own, server: Server) -> tuple[Own, Reply]:
        wk = client.descend(server.w)
        return self.nearby(client, own.v, server), Reply(wk, client.n)

    def nearby(self, client: Client, v: Tensor, server: Server) -> Own:
        def near(v: Tensor) -> Tensor:
            if self.proximity == "sum_of_norms":
                return self.lam * sum_of_norms(client.model.tensors(v - server.w))
            return self.lam / 2 * squared_distance(v, server.w)

        vk = client.descend(v, penalty=near, epochs=self.own_epochs)
        return Own(vk, torch.tensor(True))

    def personal(self, client: Client, own: Own, server: Server) -> Tensor:
        return torch.where(own.seen, own.v, server.w)

    def join(self, client: Client, server: Server) -> Own:
        return self.nearby(client, server.w, server)

    def common(self, server: Server) -> Tensor:
        return server.w
