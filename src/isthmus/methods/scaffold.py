"""SCAFFOLD: stochastic controlled averaging (Karimireddy et al., ICML 2020), option II.

    Server                                   Client k, own control ck
    c <- 0                                   ck <- 0
    for t = 0, 1, ...:                       local(w, c):
        S <- K clients, uniformly                y <- E epochs of y <- y - lr (grad F_k(y) - ck + c)
        dy, dc <- local(w, c) of each k in S     ck+ <- ck - c + (w - y) / (steps lr)
        w <- w + eta mean_k dy                   dy, dc <- y - w, ck+ - ck
        c <- c + sum_k dc / N                    ck <- ck+; return dy, dc

Symbols: w shared model; c, ck control variates of server and client: estimates of the gradients of
all clients and of client k; y the client's copy; eta the server's step; steps those of E epochs; N
all clients. Everybody deploys w, a newcomer too.

The estimate of ck+ is a mean of gradients only for plain SGD, which is what is run, whatever the
experiment's momentum. With `momentum` above 0 the correction enters before the momentum buffer, and
the estimate is multiplied by 1 - momentum, what it is inflated by over many steps.

Limiting case: in a first round with one client it is FedAvg with plain SGD.

Departures: none; weight decay, where the experiment has any, is part of F_k. The mean over S is
uniform, as in the paper, whatever the clients' sizes.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.client import Client
from isthmus.cohort import Clients
from isthmus.method import About, Method
from isthmus.ranges import Positive, Share
from isthmus.task import Task


class Server(NamedTuple):
    """The shared model and the server's control variate."""

    w: Tensor
    c: Tensor


class Reply(NamedTuple):
    """How far the client's copy and its control variate have moved."""

    dy: Tensor
    dc: Tensor


@dataclass(frozen=True)
class Scaffold(Method):
    """Corrects every client's drift by the difference of two control variates."""

    eta: Positive = 1.0  # the server's step
    momentum: Share = 0.0  # of the clients; the experiment's is not used

    def about(self) -> About:
        return About(
            "one model for all",
            down="w, control",
            up="changes of w and control",
            home="its control variate",
        )

    def init(self, task: Task) -> Server:
        return Server(task.w0, torch.zeros_like(task.w0))

    def own(self, task: Task, i: int) -> Tensor:
        return torch.zeros_like(task.w0)

    def round(self, server: Server, clients: Clients) -> Server:
        _, reply = clients.map(self.local, server)
        w = server.w + self.eta * reply.dy.mean(0)
        return Server(w, server.c + reply.dc.sum(0) / clients.total)

    def local(self, client: Client, ck: Tensor, server: Server) -> tuple[Tensor, Reply]:
        w, c = server
        y = client.descend(w, penalty=lambda y: (c - ck) @ y, momentum=self.momentum)
        moved = (w - y) * (1 - self.momentum)
        ck_new = ck - c + moved / (client.steps * client.lr)
        return ck_new, Reply(y - w, ck_new - ck)

    def personal(self, client: Client, ck: Tensor, server: Server) -> Tensor:
        return server.w

    def common(self, server: Server) -> Tensor:
        return server.w
