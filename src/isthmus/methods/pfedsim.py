"""pFedSim: similarity-aware model aggregation (Tan et al. 2023).

    Server                                   Client i
    t < L: FedAvg of w                       local(w):
    t >= L:                                      wi <- E epochs of SGD on F_i from w
        S <- K clients, uniformly                return wi, n_i
        wi <- local((b_i, h_i)) of each i in S,
            b_i = sum_j a_ij body of wj / sum_j a_ij over all clients j, h_i the head of wi
        phi_ij <- max(0, mean over rows of cos of the two heads' weights), i != j in S
        a_ij = -log(1 - phi_ij), a_ii = -log(1 - 0.9999)

Symbols: w shared model of the warm-up; wi client i's model, which the server keeps for it, w until
it takes part after the warm-up; phi similarity, 0 until two clients took part together; L =
floor(warmup * R); n_i training examples. A model is (body, head), cut where the experiment's `head`
says; phi compares the weight of the last layer, row by row.

A client deploys wi; before the warm-up ends, and if it never took part since, w. So does a
newcomer.

Limiting case: with warmup = 1 it is FedAvg.

Departures: none known; where the paper leaves phi open (pairs that never met), it is 0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from isthmus.client import Client
from isthmus.cohort import Clients
from isthmus.formulas.vector import mean
from isthmus.method import About, Delivery, Method, State
from isthmus.ranges import Share, count_share
from isthmus.task import Task

SELF = 0.9999  # a client's similarity to itself


class Server(NamedTuple):
    """The shared model of the warm-up; the clients' models and similarities are on the shelf."""

    w: Tensor


class Reply(NamedTuple):
    """The client's trained model and the number of its training examples."""

    w: Tensor
    n: Tensor


@dataclass(frozen=True)
class PFedSim(Method):
    """Warms a shared model up, then gives each client a body mixed by how alike heads are."""

    warmup: Share = 0.5  # L/R: the share of rounds before models part

    def about(self) -> About:
        return About(
            "own model near the shared one",
            down="w",
            up="w",
            newcomer="at once with the model of the warm-up",
        )

    def init(self, task: Task) -> Server:
        return Server(task.w0)

    def schedule(self, rounds: int) -> tuple[int]:
        return (count_share(self.warmup, rounds),)  # L

    def round(self, server: Server, clients: Clients) -> Server:
        if clients.t < self.schedule(clients.rounds)[0]:
            _, reply = clients.map(self.local, each=lambda i: server.w)
            return Server(mean(reply.w, reply.n))
        models = self.models(server, clients)
        body = clients.task.model.body.stop

        def mix(i: int) -> Tensor:
            phi = clients.shelf.get(f"phi/{i}", server.w.new_zeros(clients.total))
            a = -torch.log1p(-phi)
            a[i] = -log(1 - SELF)
            alike = torch.nonzero(a)[:, 0].tolist()
            b = server.w.new_zeros(body)
            for j in alike:  # one model at a time
                b += a[j] / a.sum() * models(j)[:body]
            return torch.cat([b, models(i)[body:]])

        ids, reply = clients.map(self.local, each=mix)
        phi = similarity(reply.w[:, clients.task.model.weight], clients.task.classes)
        for i, w, row in zip(ids.tolist(), reply.w, phi, strict=True):
            known = clients.shelf.get(f"phi/{i}", server.w.new_zeros(clients.total)).clone()
            known[ids] = row
            clients.shelf[f"model/{i}"], clients.shelf[f"phi/{i}"] = w, known
        return server

    def models(self, server: Server, clients: Clients) -> Callable[[int], Tensor]:
        return lambda i: clients.shelf.get(f"model/{i}", server.w)

    def local(self, client: Client, own: State, w: Tensor) -> tuple[State, Reply]:
        return own, Reply(client.descend(w), client.n)

    def deliver(self, server: Server, clients: Clients) -> Delivery:
        return Delivery(server.w, each=self.models(server, clients))

    def personal(self, client: Client, own: State, w: Tensor) -> Tensor:
        return w

    def common(self, server: Server) -> Tensor:
        return server.w


def similarity(weights: Tensor, rows: int) -> Tensor:
    """Return phi between K weights [K, rows * D] of last layers, [K, K]."""
    directions = normalize(weights.view(len(weights), rows, -1), dim=2)
    return torch.einsum("ird,jrd->ij", directions, directions).div(rows).clamp(min=0, max=SELF)
