"""Training on all data in one place: an upper bound, and NOT federated.

    In one place
    for t = 0, 1, ...:
        S <- K clients, uniformly
        D <- sum_{k in S} n_k examples of all clients' training data, without replacement
        w <- E epochs of SGD on D from w

Symbols: w the one model; n_k the training examples of client k; D what a round trains on. The
cohort S only says how much a round may do: the data are everybody's. A round computes as many
gradients, of as many examples, as one of FedAvg does, in one sequence instead of K short ones.

Data leave their owners, so it is no choice for real sites: it says what sharing could bring at
most. Nothing is counted as sent.

Limiting case: with one client and K = 1 it is FedAvg.

Departures: none; there is no paper. Momentum starts at zero in every round, as in all methods.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from isthmus.client import Client
from isthmus.cohort import Clients
from isthmus.method import About, Method
from isthmus.task import Task


class Server(NamedTuple):
    """The one model."""

    w: Tensor


class Reply(NamedTuple):
    """The model after a round's epochs."""

    w: Tensor


@dataclass(frozen=True)
class PooledTraining(Method):
    """Trains one model on everybody's data in one place."""

    def about(self) -> About:
        return About(
            "not federated: an upper bound",
            down="nothing",
            up="its training data, beforehand",
            federated=False,
        )

    def init(self, task: Task) -> Server:
        return Server(task.w0)

    def round(self, server: Server, clients: Clients) -> Server:
        return Server(clients.pool(self.local, server).w)

    def local(self, client: Client, own: tuple[()], server: Server) -> tuple[tuple[()], Reply]:
        return own, Reply(client.descend(server.w))

    def personal(self, client: Client, own: tuple[()], server: Server) -> Tensor:
        return server.w

    def common(self, server: Server) -> Tensor:
        return server.w
