"""FedProto (Tan et al. 2022): clients share the mean features of their classes, and no model.

    Server                                   Client k, own model w
    for t = 0, 1, ...:                       local(p, m):
        S <- K clients, uniformly                w <- E epochs of SGD from w on
        q_k, m_k <- local(p, m), k in S                F_k(w) + lam mean_i |z_i - p_y(i)|^2 / D
        p_c <- sum_k m_kc q_kc / sum_k m_kc      keep w; q_kc, m_kc <- mean and number of the z_i
               for each class c in a reply             with y(i) = c; return q_k, m_k

Symbols: z features, what enters the head, D of them; p_c prototype of class c and m_c the examples
behind it, 0 if it has none: such a class adds nothing to the loss; q_k, m_k a client's own; F_k
mean cross-entropy; lam the pull towards the prototypes.

A client deploys its body and the nearest prototype (`predict="prototype"`): logits -|z - p_c|^2, so
that probabilities are those of Gaussians of variance 1/2. |z|^2 is the same for all classes: what
is deployed is the body and the linear layer 2 p_c'z - |p_c|^2. A class without prototype is masked:
its logit is 100 D below the least of the others. With `predict="classifier"` a client deploys its
whole model. A newcomer trains a model with the prototypes as in one participation.

Limiting case: with lam = 0 and predict = "classifier" every client trains alone.

Departures: a class that no reply has keeps its prototype, since only K of N take part; a class
without prototype is never the nearest, in the authors' code it is at a squared distance of 100 D.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from isthmus.client import Batch, Client
from isthmus.cohort import Clients
from isthmus.formulas.vector import class_means
from isthmus.method import About, Method
from isthmus.ranges import NonNegative
from isthmus.task import Task

MASKED = -1e30  # intercept of a class without prototype; below any other logit


class Prototypes(NamedTuple):
    """A mean feature vector per class, and how many examples are behind it."""

    p: Tensor  # [C, D]
    m: Tensor  # [C]


class Own(NamedTuple):
    """The client's own model."""

    w: Tensor


@dataclass(frozen=True)
class FedProto(Method):
    """Trains every client's own model towards class prototypes that all of them share."""

    lam: NonNegative = 1.0  # pull of the features towards the prototypes
    predict: Literal["prototype", "classifier"] = "prototype"

    def about(self) -> About:
        return About(
            "shared statistics",
            down="prototypes",
            up="prototypes and how many examples made them",
            home="its model",
            newcomer="after training a model",
            calls={"local": "label counts, and the mean features of each class"},
        )

    def init(self, task: Task) -> Prototypes:
        p = task.w0.new_zeros(task.classes, task.features)
        return Prototypes(p, p[:, 0])

    def own(self, task: Task, i: int) -> Own:
        return Own(task.w0)

    def round(self, server: Prototypes, clients: Clients) -> Prototypes:
        _, reply = clients.map(self.local, server)
        m = reply.m.sum(0)
        p = torch.einsum("kc,kcd->cd", reply.m, reply.p) / m.clamp(min=1)[:, None]
        return Prototypes(torch.where(m[:, None] > 0, p, server.p), torch.where(m > 0, m, server.m))

    def local(self, client: Client, own: Own, server: Prototypes) -> tuple[Own, Prototypes]:
        def loss(w: Tensor, batch: Batch) -> Tensor:
            z, logits = client.model.features_and_logits(w, batch.x)
            apart = (z - server.p[batch.y]).square().mean(1) * (server.m > 0)[batch.y]
            return batch.cross_entropy(logits) + self.lam * batch.mean(apart)

        w = client.descend(own.w, loss=loss)
        x, y, *_, weight = client.examples
        q, m = class_means(client.model.features(w, x), y, client.task.classes, weight)
        return Own(w), Prototypes(q, m)

    def personal(self, client: Client, own: Own, server: Prototypes) -> Tensor:
        if self.predict == "classifier":
            return own.w
        p, m = server
        intercept = torch.where(m > 0, -p.square().sum(1), MASKED)
        return torch.cat([own.w[client.model.body], 2 * p.flatten(), intercept])

    def logits(self, client: Client, params: Tensor, x: Tensor) -> Tensor:
        if self.predict == "classifier":
            return client.model.logits(params, x)
        task, body, head = client.task, client.model.body, client.model.head
        slope = params[body.stop : -task.classes].view(task.classes, task.features)
        w = torch.cat([params[body], params.new_zeros(head.stop - head.start)])
        logits = client.model.features(w, x) @ slope.T + params[-task.classes :]
        masked = params[-task.classes :] <= MASKED
        least = torch.where(masked, torch.inf, logits).amin(1, keepdim=True)  # inf: all are masked
        lowest = torch.where(least.isinf(), 0.0, least - 100.0 * task.features)
        return torch.where(masked, lowest, logits)

    def join(self, client: Client, server: Prototypes) -> Own:
        return self.local(client, client.own, server)[0]
