"""FedALA: adaptive local aggregation (Zhang et al., AAAI 2023).

    Server                                   Client k, own model vk, weights mk = 1
    for t = 0, 1, ...:                       local(w):
        S <- K clients, uniformly                mk <- ala_epochs of projected SGD on
        wk <- local(w) of each k in S                F_k(vk + (w - vk) mk), mk in [0, 1], vk frozen
        w <- sum_k n_k wk / sum_k n_k            wk <- E epochs of SGD on F_k
                                                     from vk + (w - vk) mk
                                                 vk <- wk; keep mk; return wk, n_k

Symbols: w shared model; vk the client's model after its last participation; mk for each parameter
how much of the shared model is taken: learned in the last `layers` layers, 1 in those below; n_k
training examples.

A client deploys vk + (w - vk) mk, the model with which it would begin its next participation; one
that never took part deploys w. A newcomer has no model to keep anything of, and deploys w.

Limiting case: with ala_epochs = 0 it is FedAvg.

Departures: weights are learned from the second participation on, when there is something to keep,
and always for the same number of epochs; the paper learns to convergence the first time. They are
learned on all of the client's training examples; the paper takes a random share of them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.client import Batch, Client
from isthmus.cohort import Clients
from isthmus.formulas.vector import mean
from isthmus.method import About, Method
from isthmus.ranges import Positive, PositiveInt, RepeatsOrNone
from isthmus.task import Task


class Server(NamedTuple):
    """The shared model."""

    w: Tensor


class Own(NamedTuple):
    """The client's last model, how much of the shared one it takes, whether it ever took part."""

    v: Tensor
    m: Tensor
    seen: Tensor


class Reply(NamedTuple):
    """The client's trained copy and the number of its training examples."""

    w: Tensor
    n: Tensor


@dataclass(frozen=True)
class FedAla(Method):
    """Every client learns, per parameter, how much of the shared model it takes."""

    layers: PositiveInt = 1  # from the last one downwards
    ala_lr: Positive = 1.0
    ala_epochs: RepeatsOrNone = 1

    def about(self) -> About:
        return About(
            "own model near the shared one",
            down="w",
            up="w",
            home="its model and a weight per parameter",
            newcomer="at once with w",
        )

    def init(self, task: Task) -> Server:
        return Server(task.w0)

    def own(self, task: Task, i: int) -> Own:
        return Own(task.w0, torch.ones_like(task.w0), torch.tensor(False))

    def passes(self, task: Task) -> int:
        return task.epochs + self.ala_epochs

    def round(self, server: Server, clients: Clients) -> Server:
        _, reply = clients.map(self.local, server)
        return Server(mean(reply.w, reply.n))

    def local(self, client: Client, own: Own, server: Server) -> tuple[Own, Reply]:
        learned = client.model.layer >= client.model.layers - self.layers

        def step(m: Tensor, batch: Batch) -> Tensor:
            def objective(m: Tensor) -> Tensor:
                return client.loss(torch.lerp(own.v, server.w, m), batch)

            g = client.gradient(objective, m)
            return torch.where(learned, (m - self.ala_lr * g).clamp(0, 1), m)

        m = torch.where(own.seen, client.scan(step, own.m, self.ala_epochs), own.m)
        wk = client.descend(torch.lerp(own.v, server.w, m))
        return Own(wk, m, torch.tensor(True)), Reply(wk, client.n)

    def personal(self, client: Client, own: Own, server: Server) -> Tensor:
        return torch.lerp(own.v, server.w, own.m)  # w itself where m is 1

    def common(self, server: Server) -> Tensor:
        return server.w
