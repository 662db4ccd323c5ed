"""pFedMe: personalization with Moreau envelopes (Dinh, Tran, Nguyen, NeurIPS 2020).

    Server                                   Client k, own model theta_k
    for t = 0, 1, ...:                       local(w), for each batch of E epochs, from wk = w:
        S <- K clients, uniformly                `inner` times on the same batch:
        wk <- local(w) of each k in S                theta <- theta - inner_lr (grad F_k(theta)
        w <- (1 - beta) w                                + lam (theta - wk))
            + beta sum_k n_k wk / sum_k n_k      wk <- wk - lr lam (wk - theta)
                                             keep theta; return wk, n_k

Symbols: w shared model; wk client k's copy of it; theta the client's own model, near the minimum of
F_k(theta) + lam/2 |theta - wk|^2; lam its pull towards wk; beta the server's step; n_k training
examples.

A client deploys theta; one that never took part deploys w. A newcomer begins with theta = w and
goes through one participation.

Limiting case: with lam = 0 the shared model stays where it was, and theta is trained alone.

Departures: steps are plain, without the experiment's momentum and weight decay; copies are weighted
by n_k; a client that never took part deploys w instead of the common start.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.client import Batch, Client
from isthmus.cohort import Clients
from isthmus.formulas.vector import mean
from isthmus.method import About, Method
from isthmus.ranges import NonNegative, Positive, Repeats
from isthmus.task import Task


class Server(NamedTuple):
    """The shared model."""

    w: Tensor


class Own(NamedTuple):
    """The client's own model, and whether it ever took part."""

    theta: Tensor
    seen: Tensor


class Reply(NamedTuple):
    """The client's trained copy and the number of its training examples."""

    w: Tensor
    n: Tensor


@dataclass(frozen=True)
class PFedMe(Method):
    """Trains a shared model by its distance to the clients' own models, which stay near it."""

    lam: NonNegative = 15.0  # pull between own and shared model
    inner: Repeats = 5  # steps of the own model on each batch
    inner_lr: Positive = 0.01
    beta: Positive = 1.0  # the server's step

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

    def round(self, server: Server, clients: Clients) -> Server:
        _, reply = clients.map(self.local, server)
        return Server((1 - self.beta) * server.w + self.beta * mean(reply.w, reply.n))

    def local(self, client: Client, own: Own, server: Server) -> tuple[Own, Reply]:
        def step(carry: tuple[Tensor, Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
            wk, theta = carry
            for _ in range(self.inner):
                g = client.gradient(lambda z: client.loss(z, batch), theta)
                theta = theta - self.inner_lr * (g + self.lam * (theta - wk))
            return wk - client.lr * self.lam * (wk - theta), theta

        wk, theta = map(client.reestimate_statistics, client.scan(step, (server.w, own.theta)))
        return Own(theta, torch.tensor(True)), Reply(wk, client.n)

    def personal(self, client: Client, own: Own, server: Server) -> Tensor:
        return torch.where(own.seen, own.theta, server.w)

    def join(self, client: Client, server: Server) -> Own:
        return self.local(client, client.own._replace(theta=server.w), server)[0]

    def common(self, server: Server) -> Tensor:
        return server.w
