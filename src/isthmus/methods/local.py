"""Training alone: what every personal model has to beat.

    Server                                   Client k
    for t = 0, 1, ...:                       local():
        S <- all clients that still train        wk <- E epochs of SGD on F_k from its own wk
        local() of each k in S                   remember wk if its validation loss is clearly best

Symbols: wk client k's own model; F_k its mean cross-entropy. No model crosses the wire: a
client only says whether it goes on.

With `budget="full"` every client trains in every round and stops for good once `patience` rounds
have not lowered its validation loss by `least`; it deploys the best model it had. With
`budget="participation"` only the sampled clients train, as often as in a federated method, and
deploy the last model they had: the same work, but nothing shared.

A newcomer trains alone for one participation.

Limiting case: with one client, K = 1 and participation it is FedAvg.

Departures: none; the papers do not state the budget, so it is named here and in every record.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from isthmus.client import Client
from isthmus.cohort import Clients
from isthmus.method import About, Method
from isthmus.ranges import NonNegative, PositiveInt
from isthmus.task import Task


class Server(NamedTuple):
    """Who still trains: the only thing a bystander needs to know."""

    training: Tensor  # [N]


class Own(NamedTuple):
    """A client's model, the best it had, and how long ago that was."""

    w: Tensor
    best_w: Tensor
    best_loss: Tensor
    waited: Tensor  # rounds without a better validation loss


class Reply(NamedTuple):
    """Whether the client goes on."""

    training: Tensor


@dataclass(frozen=True)
class Local(Method):
    """Trains every client by itself."""

    budget: Literal["full", "participation"] = "full"
    patience: PositiveInt = 10  # rounds; with the full budget
    least: NonNegative = 1e-3  # what counts as a better validation loss

    def about(self) -> About:
        return About(
            "no sharing",
            down="nothing",
            up="whether it goes on",
            home="its model",
            newcomer="after training alone",
        )

    def init(self, task: Task) -> Server:
        return Server(torch.ones(task.clients, dtype=torch.bool))

    def own(self, task: Task, i: int) -> Own:
        worst = torch.tensor(torch.finfo(task.w0.dtype).max)
        return Own(task.w0, task.w0, worst, torch.tensor(0))

    def round(self, server: Server, clients: Clients) -> Server:
        if self.budget == "participation":
            clients.map(self.local)
            return server
        still = server.training.nonzero()[:, 0].tolist()
        if not still:
            return server
        ids, reply = clients.only(still).map(self.local)
        return Server(server.training.index_copy(0, ids, reply.training))

    def local(self, client: Client, own: Own) -> tuple[Own, Reply]:
        w = client.descend(own.w)
        if self.budget == "participation":
            return own._replace(w=w, best_w=w), Reply(torch.tensor(True))
        loss = client.validation_loss(w)
        better = loss < own.best_loss - self.least
        waited = torch.where(better, 0, own.waited + 1)
        new = Own(
            w,
            torch.where(better, w, own.best_w),
            torch.where(better, loss, own.best_loss),
            waited,
        )
        return new, Reply(waited < self.patience)

    def join(self, client: Client, server: Server) -> Own:
        return self.local(client, client.own)[0]

    def personal(self, client: Client, own: Own, server: Server) -> Tensor:
        return own.best_w
