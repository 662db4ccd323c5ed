"""FedDyn: federated learning with dynamic regularisation (Acar et al., ICLR 2021).

    Server                                   Client k, own dual gk
    h <- 0                                   gk <- 0
    for t = 0, 1, ...:                       local(w):
        S <- K clients, uniformly                wk <- E epochs of SGD from w on
        wk <- local(w) of each k in S                F_k(wk) - <gk, wk> + a/2 |wk - w|^2
        h <- h - a sum_k (wk - w) / N            gk <- gk - a (wk - w)
        w <- mean_k wk - h / a                   return wk

Symbols: w shared model; wk client k's copy; gk its dual vector, an estimate of its gradient at the
optimum; h the mean of all gk; a the strength of the regularisation; N all clients. Everybody
deploys w, a newcomer too.

Limiting case: in a first round the clients' copies are those of FedProx(mu = a).

Departures: gradients are not clipped; the original code clips their norm at 10, a bound that a run
that does not diverge seldom meets. The experiment's weight decay is part of F_k; the original code
uses it for the quadratic term.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.client import Client
from isthmus.cohort import Clients
from isthmus.formulas.vector import squared_distance
from isthmus.method import About, Method
from isthmus.ranges import Positive
from isthmus.task import Task


class Server(NamedTuple):
    """The shared model and the mean of the clients' duals."""

    w: Tensor
    h: Tensor


class Model(NamedTuple):
    """A model on its way between server and client."""

    w: Tensor


@dataclass(frozen=True)
class FedDyn(Method):
    """Bends every client's objective so that all of them agree at the optimum."""

    a: Positive = 0.1  # strength of the regularisation

    def about(self) -> About:
        return About("one model for all", down="w", up="w", home="its dual vector")

    def init(self, task: Task) -> Server:
        return Server(task.w0, torch.zeros_like(task.w0))

    def own(self, task: Task, i: int) -> Tensor:
        return torch.zeros_like(task.w0)

    def round(self, server: Server, clients: Clients) -> Server:
        w, h = server
        _, reply = clients.map(self.local, Model(w))
        h = h - self.a * (reply.w - w).sum(0) / clients.total
        ahead = reply.w.mean(0) - h / self.a
        statistics = clients.task.model.statistics  # which are averaged, and no more
        if statistics is not None:
            ahead = torch.where(statistics, reply.w.mean(0), ahead)
        return Server(ahead, h)

    def local(self, client: Client, gk: Tensor, model: Model) -> tuple[Tensor, Model]:
        w = model.w

        def bent(wk: Tensor) -> Tensor:
            return self.a / 2 * squared_distance(wk, w) - gk @ wk

        wk = client.descend(w, penalty=bent)
        return gk - self.a * (wk - w), Model(wk)

    def personal(self, client: Client, gk: Tensor, server: Server) -> Tensor:
        return server.w

    def common(self, server: Server) -> Tensor:
        return server.w
