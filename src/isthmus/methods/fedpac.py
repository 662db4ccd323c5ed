"""FedPAC (Xu, Tong, Huang 2023): align features with class prototypes, and combine classifiers.

    Server                                   Client k
    for t = 0, 1, ...:                       local(v, p, m, u_k):
        S <- K clients, uniformly                z <- features of v; h_c <- sum_i:y(i)=c z_i / n_k
        v_k, u_k, q_k, m_k, h_k, s_k             s_k <- (mean_i |z_i|^2 - sum_c |h_c|^2) / n_k
            <- local(v, p, m, u_k), k in S       u_k <- one epoch of SGD on F_k(v, u_k), v fixed
        v <- sum_k n_k v_k / sum_k n_k           v_k <- E epochs of SGD from v, u_k fixed, on
        p_c <- sum_k m_kc q_kc / sum_k m_kc          F_k(v_k, u_k) + lam mean_i |z_i - p_y(i)|^2 / D
        for k in S: u_k <- sum_j a_j u_j         q_kc, m_kc <- mean and number of the features of
            a <- argmin a'(diag(s) + Q) a            v_k with y(i) = c
            Q_jl = <h_k - h_j, h_k - h_l>        return v_k, u_k, q_k, m_k, h_k, s_k

Symbols: v shared body; u_k client k's head, kept by the server; p_c prototype of class c, m_c the
examples behind it; h_k, s_k moments that tell the error of client k's head from those of
combinations a (shares: 0 or more, sum 1); D features; n_k training examples. lam is 0 in the first
round; a class without prototype takes the client's own mean before training.

A client deploys (v, u_k). Until it takes part, u_k is the mean head u of the last round. A newcomer
trains u as a participant does and deploys it with v.

Limiting case: with lam = 0 and one client it is FedRep with one head epoch, at head_lr.

Departures: the quadratic program is solved by projected gradient; shares below 0.001 are cut off,
the rest scaled to sum 1; a class no reply has keeps its prototype; absentees have the mean head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.client import Batch, Client
from isthmus.cohort import Clients
from isthmus.formulas.quadratic import least_on_simplex
from isthmus.formulas.vector import class_means, mean
from isthmus.method import About, Delivery, Method, State
from isthmus.ranges import NonNegative, Positive
from isthmus.task import Task


class Shared(NamedTuple):
    """The body, and the prototypes with the examples behind them."""

    v: Tensor
    p: Tensor  # [C, D]
    m: Tensor  # [C]


class Server(NamedTuple):
    """What everybody receives, and the mean head; the clients' heads are on the shelf."""

    shared: Shared
    u: Tensor


class Reply(NamedTuple):
    """What a client trained, its prototypes, and what its head's error is estimated from."""

    shared: Shared  # v_k, q_k, m_k
    u: Tensor
    h: Tensor  # [C, D]
    s: Tensor


@dataclass(frozen=True)
class FedPac(Method):
    """Each client uses the combination of all heads that suits its features best."""

    lam: NonNegative = 1.0  # pull of the features towards the prototypes
    head_lr: Positive = 0.1  # of the epoch on the head

    def about(self) -> About:
        return About(
            "shared statistics",
            down="body, prototypes, its head",
            up="body, head, prototypes, statistics of features",
            home="its head",
            newcomer="with an average head; better after tuning",
            calls={"local": "label counts, and the mean features of each class"},
        )

    def init(self, task: Task) -> Server:
        p = task.w0.new_zeros(task.classes, task.features)
        return Server(Shared(task.w0[task.model.body], p, p[:, 0]), task.w0[task.model.head])

    def heads(self, server: Server, clients: Clients) -> Callable[[int], Tensor]:
        return lambda i: clients.shelf.get(f"head/{i}", server.u)

    def round(self, server: Server, clients: Clients) -> Server:
        old = server.shared
        ids, reply = clients.map(self.local, old, each=self.heads(server, clients))
        for i, u in zip(ids.tolist(), combine(reply.h, reply.s) @ reply.u, strict=True):
            clients.shelf[f"head/{i}"] = u
        v, q, m = reply.shared
        n, m = m.sum(1), m.sum(0)
        p = torch.einsum("kc,kcd->cd", reply.shared.m, q) / m.clamp(min=1)[:, None]
        p, m = torch.where(m[:, None] > 0, p, old.p), torch.where(m > 0, m, old.m)
        return Server(Shared(mean(v, n), p, m), mean(reply.u, n))

    def local(self, client: Client, own: State, shared: Shared, u: Tensor) -> tuple[State, Reply]:
        model, (x, y, *_, weight) = client.model, client.examples
        z = model.features(torch.cat([shared.v, u]), x)
        before, m = class_means(z, y, client.task.classes, weight)
        h = before * (m / client.n)[:, None]
        s = (client.examples.mean(z.square().sum(1)) - h.square().sum()) / client.n
        target = torch.where(shared.m[:, None] > 0, shared.p, before)
        lam = self.lam if client.t > 0 else 0.0

        def loss(w: Tensor, batch: Batch) -> Tensor:
            z, logits = model.features_and_logits(w, batch.x)
            apart = batch.mean((z - target[batch.y]).square().mean(1))
            return batch.cross_entropy(logits) + lam * apart

        u = self.tune(client, shared, u)
        v = client.descend(shared.v, at=lambda v, _: torch.cat([v, u]), loss=loss)
        q, m = class_means(model.features(torch.cat([v, u]), x), y, client.task.classes, weight)
        return own, Reply(Shared(v, q, m), u, h, s)

    def tune(self, client: Client, shared: Shared, u: Tensor) -> Tensor:
        tuned: Tensor = client.descend(
            u, at=lambda u, _: torch.cat([shared.v, u]), epochs=1, lr=self.head_lr
        )
        return tuned

    def passes(self, task: Task) -> int:
        return 1 + task.epochs

    def deliver(self, server: Server, clients: Clients) -> Delivery:
        return Delivery(None, (server.shared,), self.heads(server, clients))

    def personal(self, client: Client, own: State, shared: Shared, u: Tensor) -> Tensor:
        return torch.cat([shared.v, *(own or (u,))])  # a newcomer owns the head that it trained

    def join(self, client: Client, shared: Shared, u: Tensor) -> tuple[Tensor]:
        return (self.tune(client, shared, u),)


def combine(h: Tensor, s: Tensor) -> Tensor:
    """Return each client's shares of all heads, [K, K]; its own head alone where none are found."""
    product = h.double().flatten(1) @ h.double().flatten(1).T  # [K, K]
    q = product.diagonal()[:, None, None] - product[:, :, None] - product[:, None] + product
    a, solved = least_on_simplex(q + torch.diag(s.double()))  # [K, K, K]: Q of each client
    a = torch.where(a < 1e-3, 0.0, a)
    return torch.where(solved[:, None], a / a.sum(1, keepdim=True), torch.eye(len(a))).to(h.dtype)
