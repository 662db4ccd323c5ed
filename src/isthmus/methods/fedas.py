"""FedAS (Yang, Huang, Ye 2024): bring the shared body home first, and trust clients that learn.

    Server                                   Client k, own model w = (body, head)
    for t = 0, 1, ...:                       local(v):
        S <- K clients, uniformly                m_c <- mean of the features of w over class c
        w_k, f_k <- local(v), k in S             v <- one epoch of SGD from v, head fixed, on
        v <- sum_k f_k body(w_k)                      sum over c of mean_i:y(i)=c |z_i - m_c|^2 / D
             / sum_k f_k                         w <- E epochs of SGD on F_k from (v, head)
                                                 f_k <- sum over batches of |grad F_batch(w)|^2
                                                 keep w; return w, f_k

Symbols: v shared body; w client k's own model, whose head never comes back; z features, what enters
the head, D of them; m_c what the client's own body made of class c; f_k trace of the empirical
Fisher information; F_k mean cross-entropy.

A client deploys the w of its last participation, which later rounds do not refresh; before the
first, the shared body with its initial head. A newcomer takes part once: it aligns, trains, and
deploys what it has.

Limiting case: with align_epochs = 0 and one client it is training alone.

Departures: at its first participation a client has no body of its own, so the means m_c are those
of the received one; the alignment has the experiment's weight decay; if no client's f_k is above 0,
all weigh the same.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.client import Batch, Client
from isthmus.cohort import Clients
from isthmus.formulas.vector import class_means, mean
from isthmus.method import About, Method
from isthmus.ranges import Positive, RepeatsOrNone
from isthmus.task import Task


class Server(NamedTuple):
    """The shared body."""

    v: Tensor


class Own(NamedTuple):
    """The client's own model, and whether it ever took part."""

    w: Tensor
    seen: Tensor


class Reply(NamedTuple):
    """A client's model and the trace of its Fisher information."""

    w: Tensor
    f: Tensor


@dataclass(frozen=True)
class FedAs(Method):
    """Aligns the shared body with the client's own, and weighs clients by Fisher information."""

    align_epochs: RepeatsOrNone = 1
    align_lr: Positive = 0.01

    def about(self) -> About:
        return About(
            "shared and own layers",
            down="body",
            up="w, Fisher trace",
            home="its model",
            newcomer="after fitting a head",
        )

    def init(self, task: Task) -> Server:
        return Server(task.w0[task.model.body])

    def own(self, task: Task, i: int) -> Own:
        return Own(task.w0, torch.tensor(False))

    def round(self, server: Server, clients: Clients) -> Server:
        _, reply = clients.map(self.local, server)
        f = reply.f if reply.f.sum() > 0 else torch.ones_like(reply.f)
        return Server(mean(reply.w[:, : len(server.v)], f))

    def local(self, client: Client, own: Own, server: Server) -> tuple[Own, Reply]:
        model, classes = client.model, client.task.classes
        head = own.w[model.head]

        def with_head(v: Tensor, u: Tensor | None = None) -> Tensor:
            return torch.cat([v, head])

        x, y, *_, weight = client.examples
        before = model.features(self.personal(client, own, server), x)
        m, _ = class_means(before, y, classes, weight)

        def apart(w: Tensor, batch: Batch) -> Tensor:
            gaps = (model.features(w, batch.x) - m[batch.y]).square().mean(1)
            return class_means(gaps[:, None], batch.y, classes, batch.weight)[0].sum()

        v = client.descend(
            server.v,
            at=with_head,
            loss=apart,
            epochs=self.align_epochs,
            lr=self.align_lr,
            momentum=0.0,
        )
        w = client.descend(with_head(v))

        def add(f: Tensor, batch: Batch) -> Tensor:
            g: Tensor = client.gradient(lambda w: client.loss(w, batch), w)
            return f + g.square().sum()

        f = client.scan(add, torch.zeros_like(client.n), passes=1)
        return Own(w, torch.tensor(True)), Reply(w, f)

    def passes(self, task: Task) -> int:
        return self.align_epochs + task.epochs + 1

    def personal(self, client: Client, own: Own, server: Server) -> Tensor:
        return torch.where(own.seen, own.w, torch.cat([server.v, own.w[client.model.head]]))

    def join(self, client: Client, server: Server) -> Own:
        return self.local(client, client.own, server)[0]
