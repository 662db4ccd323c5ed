"""FedProx (Li et al. 2020), and FedProx-LU: the same, updated locally at the end.

    Server                                   Client k
    for t = 0, 1, ...:                       local(w):
        S <- K clients, uniformly                wk <- E epochs of SGD on F_k(wk) + mu/2 |wk - w|^2
        wk <- local(w) of each k in S            return wk, n_k
        w <- sum_k n_k wk / sum_k n_k

Symbols: w shared model; wk client k's copy; mu the pull towards w; n_k training examples; F_k mean
cross-entropy. With `tune` > 0 (FedProx-LU, Hahn et al. 2021) a client deploys w after `tune` more
epochs on the same objective.

Limiting case: with mu = 0 it is FedAvg.

Departures: local problems are solved by E epochs of SGD, as in the papers that compare with it,
not to a gamma-inexact solution.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from isthmus.client import Client
from isthmus.cohort import Clients
from isthmus.formulas.vector import mean, squared_distance
from isthmus.method import About, Method
from isthmus.ranges import NonNegative, Positive, RepeatsOrNone
from isthmus.task import Task


class Server(NamedTuple):
    """The shared model."""

    w: Tensor


class Reply(NamedTuple):
    """A client's trained copy and the number of its training examples."""

    w: Tensor
    n: Tensor


@dataclass(frozen=True)
class FedProx(Method):
    """Averages what the clients make of the shared model while held near it."""

    mu: NonNegative = 0.01  # pull towards the received model
    tune: RepeatsOrNone = 0  # epochs of local update before a client deploys
    tune_lr: Positive = 0.01

    def about(self) -> About:
        if self.tune:
            return About("one model, tuned at home", down="w", up="w", newcomer="after tuning")
        return About("one model for all", down="w", up="w")

    def init(self, task: Task) -> Server:
        return Server(task.w0)

    def round(self, server: Server, clients: Clients) -> Server:
        _, reply = clients.map(self.local, server)
        return Server(mean(reply.w, reply.n))

    def local(self, client: Client, own: tuple[()], server: Server) -> tuple[tuple[()], Reply]:
        wk = client.descend(server.w, penalty=lambda w: self.near(w, server.w))
        return own, Reply(wk, client.n)

    def near(self, wk: Tensor, w: Tensor) -> Tensor:
        return self.mu / 2 * squared_distance(wk, w)

    def personal(self, client: Client, own: tuple[()], server: Server) -> Tensor:
        if not self.tune:
            return server.w
        tuned: Tensor = client.descend(
            server.w,
            penalty=lambda w: self.near(w, server.w),
            epochs=self.tune,
            lr=self.tune_lr,
        )
        return tuned

    def common(self, server: Server) -> Tensor:
        return server.w

    def passes(self, task: Task) -> int:
        return max(task.epochs, self.tune)
