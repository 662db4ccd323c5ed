"""SuPerFed: connecting low-loss subspaces (Hahn, Jeong, Lee, KDD 2022).

    Server                                   Client k, own model wl
    for t = 0, 1, ...:                       local(wg), phase I (t < L):
        S <- K clients, uniformly                wf <- SGD from wg on F_k(wf) + mu |wf - wg|^2
        wf <- local(wg) of each k in S       local(wg), phase II (t >= L), lam ~ U(0, 1) per batch:
        wg <- sum_k n_k wf / sum_k n_k           (wf, wl) <- SGD from (wg, wl) on
                                                     F_k((1 - lam) wf + lam wl)
                                                     + mu |wf - wg|^2 + nu cos^2(wf, wl)
                                             keep wl; return wf, n_k

Symbols: wg shared model; wf the client's copy of it, which is sent back; wl the client's own model,
which never leaves; lam the mixing coefficient, 0 at wf and 1 at wl: one per batch (`mix="model"`,
MM) or one per weight-owning module and batch (`mix="layer"`, LM); L = floor(start * R) the first
round that mixes; mu, nu the weights of proximity and orthogonality; n_k training examples.

A client deploys (1 - lam) wg + lam wl, with the lam of {0, 0.1, ..., 1}, the same in all layers,
that its validation data prefer. Until it has mixed, its own end is untrained and lam is 0. A
newcomer trains its own end as in one participation.

Limiting case: with start = 1 and mu = 0 it is FedAvg; with start = 1 it is FedProx(2 mu).

Departures, by the numbers of docs/methods/superfed.md: the own model is drawn afresh for each
client (S1: text and code, against the printed box); orthogonality is off in phase I (S15); lam is
chosen on validation data, not on test data (S4); biases are mixed with the lam of their module.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from isthmus.client import Client, Point
from isthmus.cohort import Clients
from isthmus.formulas.vector import mean, squared_cosine, squared_distance, sum_of_norms
from isthmus.method import About, Method, ModelPath
from isthmus.ranges import NonNegative, Share, count_share
from isthmus.task import Task


class Server(NamedTuple):
    """The shared model."""

    w: Tensor


class Own(NamedTuple):
    """The client's own model, whether it ever took part, and whether it ever mixed."""

    wl: Tensor
    seen: Tensor
    mixed: Tensor


class Reply(NamedTuple):
    """The client's trained copy of the shared model and the number of its training examples."""

    wf: Tensor
    n: Tensor


@dataclass(frozen=True)
class SuPerFed(Method):
    """Trains the shared and each client's own model as the two ends of a low-loss path."""

    mix: Literal["model", "layer"] = "model"
    start: Share = 0.4  # L/R: the share of rounds before mixing begins
    mu: NonNegative = 0.01  # pull of wf towards wg
    nu: NonNegative = 1.0  # push of wf and wl towards orthogonality
    local_init: Literal["fresh_per_client", "fresh_shared", "copy"] = "fresh_per_client"
    proximity: Literal["squared", "sum_of_norms"] = "squared"
    dot_offset: NonNegative = 0.0  # added to each product in <wf, wl>; the released code has 1e-6

    def about(self) -> About:
        return About(
            "connected modes",
            down="w",
            up="w",
            home="the other end of the path",
            newcomer="at once with w; its end after training",
        )

    def init(self, task: Task) -> Server:
        return Server(task.w0)

    def own(self, task: Task, i: int) -> Own:
        never = torch.tensor(False)
        if self.local_init == "copy":  # of wg, once the client takes part
            return Own(task.w0, never, never)
        whose = i if self.local_init == "fresh_per_client" else "all"
        return Own(task.model.fresh(task.seed_of("own", whose)), never, never)

    def noise(self, task: Task) -> int:
        return task.model.layers if self.mix == "layer" else 1

    def round(self, server: Server, clients: Clients) -> Server:
        _, reply = clients.map(self.local, server)
        return Server(mean(reply.wf, reply.n))

    def local(self, client: Client, own: Own, server: Server) -> tuple[Own, Reply]:
        wg, wl = server.w, own.wl
        if self.local_init == "copy":
            wl = torch.where(own.seen, wl, wg)

        def near(wf: Tensor) -> Tensor:
            if self.proximity == "sum_of_norms":
                return self.mu * sum_of_norms(client.model.tensors(wf - wg))
            return self.mu * squared_distance(wf, wg)

        def mixture(w: tuple[Tensor, Tensor], u: Tensor) -> Tensor:
            wf, wl = w
            lam = u[client.model.layer] if self.mix == "layer" else u
            return (1 - lam) * wf + lam * wl

        def near_and_orthogonal(w: tuple[Tensor, Tensor]) -> Tensor:
            wf, wl = w
            return near(wf) + self.nu * squared_cosine(wf, wl, self.dot_offset)

        yes = torch.tensor(True)
        if client.t < self.schedule(client.rounds)[0]:
            wf = client.descend(wg, penalty=near)
            return Own(wl, yes, own.mixed), Reply(wf, client.n)
        wf, wl = client.descend((wg, wl), at=mixture, penalty=near_and_orthogonal)
        return Own(wl, yes, yes), Reply(wf, client.n)

    def schedule(self, rounds: int) -> tuple[int]:
        return (count_share(self.start, rounds),)  # L

    def path(self) -> ModelPath:
        return ModelPath("path", self.mixtures, chosen=True, from_shared=True)

    def mixtures(self, client: Client, own: Own, server: Server) -> Point:
        lam = torch.linspace(0, 1, 11)[:, None] * own.mixed
        return Point(
            lam,
            client.reestimate_statistics(torch.lerp(server.w, own.wl, lam), where=lam[:, 0] > 0),
        )

    def personal(self, client: Client, own: Own, server: Server) -> Point:
        return client.best(self.mixtures(client, own, server))

    def join(self, client: Client, server: Server) -> Own:
        return self.local(client, client.own, server)[0]  # one participation, wf thrown away

    def common(self, server: Server) -> Tensor:
        return server.w
