"""APFL: adaptive personalized federated learning (Deng, Kamani, Mahdavi 2020).

    Server                                   Client k, own model vk, mixing coefficient ak
    for t = 0, 1, ...:                       local(w), for each batch of E epochs:
        S <- K clients, uniformly                u <- ak vk + (1 - ak) wk, from wk = w
        wk <- local(w) of each k in S            wk <- wk - lr grad F_k(wk)
        w <- sum_k n_k wk / sum_k n_k            vk <- vk - lr ak grad F_k(u)
                                             and, if adaptive, once at the end:
                                                 ak <- clip(ak - lr <vk - wk, grad F_k(ak vk
                                                     + (1 - ak) wk)>, 0, 1)
                                             keep vk, ak; return wk, n_k

Symbols: w shared model; wk client k's copy of it; vk the client's own model, which never leaves; u
the mixture of both before the batch moves either; ak the share of vk in what the client deploys,
ak vk + (1 - ak) w; n_k training examples. A client that never took part, and a newcomer, deploy w.

Limiting case: with alpha = 0 it is FedAvg; with alpha = 1 what a client deploys is Local, trained
when it takes part.

Departures: the share moves by the gradient on all training examples, once in a participation.
Weight decay and momentum act on wk and vk alike; SGD without them is what the paper analyses.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.client import Batch, Client, Point
from isthmus.cohort import Clients
from isthmus.formulas.vector import mean
from isthmus.method import About, Method, ModelPath
from isthmus.ranges import Share
from isthmus.task import Task


class Server(NamedTuple):
    """The shared model."""

    w: Tensor


class Own(NamedTuple):
    """The client's own model, its share in what is deployed, and whether it ever took part."""

    v: Tensor
    a: Tensor
    seen: Tensor


class Reply(NamedTuple):
    """The client's trained copy and the number of its training examples."""

    w: Tensor
    n: Tensor


@dataclass(frozen=True)
class Apfl(Method):
    """Trains the shared model, and beside it the own part of a mixture with it."""

    alpha: Share = 0.25  # the own model's share in the mixture, at the start
    adaptive: bool = False

    def about(self) -> About:
        return About(
            "own model near the shared one",
            down="w",
            up="w",
            home="its model and its share",
            newcomer="at once with w",
        )

    def init(self, task: Task) -> Server:
        return Server(task.w0)

    def own(self, task: Task, i: int) -> Own:
        return Own(task.w0, torch.tensor(self.alpha, dtype=task.w0.dtype), torch.tensor(False))

    def round(self, server: Server, clients: Clients) -> Server:
        _, reply = clients.map(self.local, server)
        return Server(mean(reply.w, reply.n))

    def local(self, client: Client, own: Own, server: Server) -> tuple[Own, Reply]:
        a = own.a

        def at(w: tuple[Tensor, Tensor], u: Tensor) -> tuple[Tensor, Tensor]:
            wk, vk = w
            return wk, a * vk + (1 - a) * wk.detach()

        def loss(z: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
            wk, mixture = z
            return client.loss(wk, batch) + client.loss(mixture, batch)

        wk, vk = client.descend((server.w, own.v), at=at, loss=loss)
        if self.adaptive:
            mixture = a * vk + (1 - a) * wk
            g = client.gradient(lambda z: client.loss(z, client.examples), mixture)
            a = (a - client.lr * ((vk - wk) @ g)).clamp(0, 1)
        return Own(vk, a, torch.tensor(True)), Reply(wk, client.n)

    def path(self) -> ModelPath:
        return ModelPath("line", self.mixtures, from_shared=True)

    def mixtures(self, client: Client, own: Own, server: Server) -> Point:
        a = torch.linspace(0, 1, 11)[:, None] * own.seen
        return Point(
            a, client.reestimate_statistics(a * own.v + (1 - a) * server.w, where=a[:, 0] > 0)
        )

    def personal(self, client: Client, own: Own, server: Server) -> Point:
        a = torch.where(own.seen, own.a, 0.0)
        return Point(
            a[None], client.reestimate_statistics(a * own.v + (1 - a) * server.w, where=a > 0)
        )

    def common(self, server: Server) -> Tensor:
        return server.w
