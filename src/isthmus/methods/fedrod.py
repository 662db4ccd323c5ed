"""FedRoD: a generic and a personal predictor on one body (Chen, Chao, ICLR 2022), linear version.

    Server                                   Client k, own head pk
    for t = 0, 1, ...:                       local(w), for each batch of E epochs, from wk = w:
        S <- K clients, uniformly                wk <- wk - lr grad of the balanced loss at wk
        wk <- local(w) of each k in S            pk <- pk - lr grad_p F_k(body of wk,
        w <- sum_k n_k wk / sum_k n_k                head of wk + pk), wk frozen
                                             keep pk; return wk, n_k

Symbols: w = (body, head) shared model; wk client k's copy of it; pk the client's own head, which
never leaves; n_k training examples. The balanced loss is the cross-entropy of logits + log(counts)
with the client's counts of each class, so that the shared head does not learn who has what.

Logits of the two heads are added: for a head that is one linear layer, this is the head whose
parameters are the sum. A client deploys (body, head + pk); one that never took part, and a
newcomer, have pk = 0 and deploy w.

Limiting case: where a client has as many examples of every class, its copy is FedAvg's.

Departures: the own head begins at 0, so that nothing random is deployed; the version that makes it
of the class counts by a hyper-network is not offered.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.client import Batch, Client
from isthmus.cohort import Clients
from isthmus.errors import IsthmusError
from isthmus.formulas.vector import mean
from isthmus.method import About, Method
from isthmus.task import Task


class Server(NamedTuple):
    """The shared model."""

    w: Tensor


class Reply(NamedTuple):
    """The client's trained copy and the number of its training examples."""

    w: Tensor
    n: Tensor


@dataclass(frozen=True)
class FedRod(Method):
    """Trains a shared model that ignores who has what, and beside its head one that does not."""

    def about(self) -> About:
        return About("shared and own layers", down="w", up="w", home="a head beside the shared one")

    def init(self, task: Task) -> Server:
        if task.model.head.start != task.model.weight.start:
            raise IsthmusError(
                "fedrod adds two heads, and the model's head has several layers instead "
                "of one linear layer; set head=last"
            )
        return Server(task.w0)

    def own(self, task: Task, i: int) -> Tensor:
        return torch.zeros_like(task.w0[task.model.head])

    def round(self, server: Server, clients: Clients) -> Server:
        _, reply = clients.map(self.local, server)
        return Server(mean(reply.w, reply.n))

    def local(self, client: Client, pk: Tensor, server: Server) -> tuple[Tensor, Reply]:
        prior = client.label_counts().to(pk.dtype).clamp(min=1e-9).log()

        def at(w: tuple[Tensor, Tensor], u: Tensor) -> tuple[Tensor, Tensor]:
            wk, pk = w
            return wk, with_head(client, wk.detach(), pk)

        def loss(z: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
            generic, personal = z
            balanced = self.logits(client, generic, batch.x) + prior
            return batch.cross_entropy(balanced) + client.loss(personal, batch)

        wk, pk = client.descend((server.w, pk), at=at, loss=loss)
        return pk, Reply(wk, client.n)

    def personal(self, client: Client, pk: Tensor, server: Server) -> Tensor:
        return with_head(client, server.w, pk)

    def common(self, server: Server) -> Tensor:
        return server.w


def with_head(client: Client, w: Tensor, pk: Tensor) -> Tensor:
    """Add the client's own head to that of a model."""
    return torch.cat([w[client.model.body], w[client.model.head] + pk])
