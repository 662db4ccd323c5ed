"""FedBN: local normalisation (Li et al., ICLR 2021).

    Server                                   Client k, own normalisation gk
    for t = 0, 1, ...:                       local(w):
        S <- K clients, uniformly                wk, gk <- E epochs of SGD on F_k from (w, gk)
        wk <- local(w) of each k in S            keep gk; return wk, n_k
        w <- sum_k n_k wk / sum_k n_k

Symbols: w the shared parameters, all but those of normalisation layers; wk client k's copy of them;
gk the scales and shifts of the client's normalisation layers, which never leave; n_k training
examples.

A client deploys (w, gk). Its normalisation begins as that of the common start, and so does that of
a client that never took part. A newcomer fits it to its own data, all else frozen, for E epochs.

Limiting case: in a network without normalisation layers it is FedAvg.

Departures: networks here keep no running statistics, so scales and shifts are all that is kept
apart.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.client import Client
from isthmus.cohort import Clients
from isthmus.method import Method
from isthmus.task import Task
from isthmus.vector import mean


class Server(NamedTuple):
    """The shared parameters: all but those of normalisation layers."""

    w: Tensor


class Reply(NamedTuple):
    """The client's trained copy and the number of its training examples."""

    w: Tensor
    n: Tensor


@dataclass(frozen=True)
class FedBn(Method):
    """Shares all parameters but those of normalisation layers."""

    def init(self, task: Task) -> Server:
        return Server(task.w0[~task.model.normalises])

    def own(self, task: Task, i: int) -> Tensor:
        return task.w0[task.model.normalises]

    def round(self, server: Server, clients: Clients) -> Server:
        if clients.t == 0 and not clients.task.model.normalises.any():
            clients.note("the model has no normalisation layers: fedbn is fedavg here")
        _, reply = clients.map(self.local, server)
        return Server(mean(reply.w, reply.n))

    def local(self, client: Client, gk: Tensor, server: Server) -> tuple[Tensor, Reply]:
        wk, gk = client.descend((server.w, gk), at=lambda w, u: joined(client, *w))
        return gk, Reply(wk, client.n)

    def personal(self, client: Client, gk: Tensor, server: Server) -> Tensor:
        return joined(client, server.w, gk)

    def join(self, client: Client, server: Server) -> Tensor:
        gk: Tensor = client.descend(client.own, at=lambda g, u: joined(client, server.w, g))
        return gk


def joined(client: Client, w: Tensor, gk: Tensor) -> Tensor:
    """Puts shared parameters and those of normalisation layers back into their places."""
    normalises = client.model.normalises
    apart = torch.cat([torch.nonzero(~normalises)[:, 0], torch.nonzero(normalises)[:, 0]])
    return torch.cat([w, gk])[apart.argsort()]
