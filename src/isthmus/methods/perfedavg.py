"""Per-FedAvg: model-agnostic meta-learning (Fallah, Mokhtari, Ozdaglar, NeurIPS 2020).

    Server                                   Client k
    for t = 0, 1, ...:                       local(w), over the batches D1, D2, ... of E epochs:
        S <- K clients, uniformly            first order, two batches a step:
        wk <- local(w) of each k in S            w' <- wk - alpha grad F(wk; D1)
        w <- mean_k wk                           wk <- wk - lr grad F(w'; D2)
                                             Hessian-free, three batches a step:
                                                 d <- grad F(w'; D2)
                                                 wk <- wk - lr (d - alpha (grad F(wk + delta d; D3)
                                                     - grad F(wk - delta d; D3)) / (2 delta))
                                             return wk

Symbols: w the shared start; wk client k's copy of it; alpha the inner step, lr the outer one; delta
the length over which the Hessian's product with d is a difference quotient.

A client deploys w after `tune` epochs of steps alpha on its own data; a newcomer too.

Limiting case: with alpha = 0 and tune = 0 it is FedAvg of plain steps, each on every second batch.

Departures: steps are plain, without the experiment's momentum and weight decay. Batches left over
at the end of a participation, too few for a step, change nothing.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from isthmus.client import Batch, Client
from isthmus.cohort import Clients
from isthmus.method import About, Method
from isthmus.ranges import NonNegative, Positive, RepeatsOrNone
from isthmus.task import Task


class Model(NamedTuple):
    """A model, on the server and on its way."""

    w: Tensor


class MetaStep(NamedTuple):
    """A meta-step in progress."""

    w: Tensor
    ahead: Tensor  # w'
    d: Tensor
    phase: Tensor  # which of the step's batches comes next


@dataclass(frozen=True)
class PerFedAvg(Method):
    """Looks for a start from which one step on a client's own data goes far."""

    variant: Literal["first-order", "hessian-free"] = "first-order"
    alpha: NonNegative = 0.01  # the inner step, and the step of tuning
    delta: Positive = 1e-3
    tune: RepeatsOrNone = 1  # epochs before a client deploys

    def about(self) -> About:
        return About("one model, tuned at home", down="w", up="w", newcomer="after tuning")

    def init(self, task: Task) -> Model:
        return Model(task.w0)

    def passes(self, task: Task) -> int:
        return max(task.epochs, self.tune)

    def round(self, server: Model, clients: Clients) -> Model:
        _, reply = clients.map(self.local, server)
        return Model(reply.w.mean(0))

    def local(self, client: Client, own: tuple[()], server: Model) -> tuple[tuple[()], Model]:
        w = server.w
        take = self.first_order if self.variant == "first-order" else self.hessian_free
        start = MetaStep(w, w, torch.zeros_like(w), torch.tensor(0))
        end = client.scan(lambda step, batch: take(client, step, batch), start)
        return own, Model(client.reestimate_statistics(end.w))

    def first_order(self, client: Client, step: MetaStep, batch: Batch) -> MetaStep:
        w, ahead, d, phase = step
        inner = phase == 0
        g = client.gradient(lambda z: client.loss(z, batch), torch.where(inner, w, ahead))
        return MetaStep(
            torch.where(inner, w, w - client.lr * g),
            torch.where(inner, w - self.alpha * g, ahead),
            d,
            (phase + 1) % 2,
        )

    def hessian_free(self, client: Client, step: MetaStep, batch: Batch) -> MetaStep:
        w, ahead, d, phase = step
        inner, outer = phase == 0, phase == 1

        def grad(z: Tensor) -> Tensor:
            g: Tensor = client.gradient(lambda z: client.loss(z, batch), z)
            return g

        g = grad(torch.where(inner, w, torch.where(outer, ahead, w + self.delta * d)))
        product = (g - grad(w - self.delta * d)) / (2 * self.delta)
        return MetaStep(
            torch.where(phase == 2, w - client.lr * (d - self.alpha * product), w),
            torch.where(inner, w - self.alpha * g, ahead),
            torch.where(outer, g, d),
            (phase + 1) % 3,
        )

    def personal(self, client: Client, own: tuple[()], server: Model) -> Tensor:
        tuned: Tensor = client.scan(
            lambda w, batch: w - self.alpha * client.gradient(lambda z: client.loss(z, batch), w),
            server.w,
            self.tune,
        )
        return client.reestimate_statistics(tuned)

    def common(self, server: Model) -> Tensor:
        return server.w
