"""FedAvg (McMahan et al. 2017), and FedAvg-LU: the same, updated locally at the end.

    Server                                   Client k
    for t = 0, 1, ...:                       local(w):
        S <- K clients, uniformly                wk <- E epochs of SGD on F_k from w
        wk <- local(w) of each k in S            return wk, n_k
        w <- sum_k n_k wk / sum_k n_k

Symbols: w shared model; wk client k's copy after training; n_k its training examples; F_k its mean
cross-entropy. With `tune` > 0 (FedAvg-LU, Hahn et al. 2021) a client deploys w after `tune` more
epochs on its own data.

Limiting case: with one client and K = 1 it is centralised SGD.

Departures: none in FedAvg. The LU paper says "small steps"; one epoch at 0.01 is what its code did,
here with the experiment's weight decay, and at every evaluation rather than after the last round.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from isthmus.client import Client
from isthmus.cohort import Clients
from isthmus.formulas.vector import mean
from isthmus.method import About, Method
from isthmus.ranges import Positive, RepeatsOrNone
from isthmus.task import Task


class Server(NamedTuple):
    """The shared model."""

    w: Tensor


class Reply(NamedTuple):
    """A client's trained copy and the number of its training examples."""

    w: Tensor
    n: Tensor


@dataclass(frozen=True)
class FedAvg(Method):
    """Averages what the clients make of the shared model."""

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
        wk = client.descend(server.w)
        return own, Reply(wk, client.n)

    def personal(self, client: Client, own: tuple[()], server: Server) -> Tensor:
        if not self.tune:
            return server.w
        tuned: Tensor = client.descend(server.w, epochs=self.tune, lr=self.tune_lr)
        return tuned

    def common(self, server: Server) -> Tensor:
        return server.w

    def passes(self, task: Task) -> int:
        return max(task.epochs, self.tune)
