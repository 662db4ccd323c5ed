"""FLOCO+: FLOCO with a private simplex (Grinwald, Wiesner, Nakajima, NeurIPS 2024).

    Server, as in FLOCO                      Client k, private simplex p
    for t = 0, 1, ...:                       local(theta, R_k):
        t = tau: D_k <- moves(theta), all k      theta_k <- SGD from theta on F_k(w_alpha),
                 alpha_k <- place(D)                 alpha ~ U(R_k) anew for every batch
        S <- K clients, uniformly                p <- SGD from p on F_k(p_alpha)
        theta_k <- local(theta, R_k) of S                + lam/2 |p - theta|^2
        theta <- sum_k n_k theta_k / sum_k n_k   keep p; return theta_k, n_k

Symbols: those of FLOCO, see docs/methods/floco.md; p the client's private simplex, body and bias
included; lam its pull towards theta as it was received, in all parameters (`pull="all"`) or in the
vertices (`pull="vertices"`). Both descents take the same number of epochs.

A client deploys p at alpha_k, or at the centre until it has a place; a client that never took part,
theta there. A newcomer places itself by one local pass, and trains a copy of theta as its p.

Limiting case: the shared model is FLOCO's, and with one vertex FedAvg's.

Departures, by the numbers of docs/methods/floco.md: those of FLOCO; the pull covers all parameters,
as in the code (F14); p trains the client's region, as in the paper (F15).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from isthmus.client import Client, Point
from isthmus.cohort import Clients
from isthmus.formulas.barycentric import lattice
from isthmus.formulas.vector import squared_distance
from isthmus.method import About, Delivery, Method, ModelPath
from isthmus.methods.floco import simplex
from isthmus.methods.floco.server import Projection, Reply, Server, begin, deliver, play
from isthmus.methods.floco.simplex import Region, Simplex
from isthmus.ranges import NonNegative, NonNegativeInt, Radius, Vertices
from isthmus.task import Task


class Own(NamedTuple):
    """The private simplex, and whether it was ever trained."""

    p: Simplex
    seen: Tensor


Newcomer = tuple[Own, Region]


@dataclass(frozen=True)
class FlocoPlus(Method):
    """Trains FLOCO's simplex, and for each client a private one that is held near it."""

    vertices: Vertices = 7  # V, the paper's M + 1
    tau: NonNegativeInt = 100  # the round, counted from 0, that begins by placing the clients
    rho: Radius = 0.1  # radius of a client's region, in L1
    lam: NonNegative = 1.0  # pull of p towards the received theta
    pull: Literal["all", "vertices"] = "all"
    sampler: Literal["uniform", "authors"] = "uniform"  # how a region is drawn from
    kappa_scale: Literal["none", "max"] = "none"  # what scores are divided by before z is sought

    def about(self) -> About:
        return About(
            "connected modes",
            down="w with V last layers, its point",
            up="w with V last layers",
            home="a simplex of its own",
            newcomer="at once at the centre; its point after one pass",
            calls={"local": "", "moves": ""},
            everybody="once, at round tau",
        )

    def init(self, task: Task) -> Server:
        return begin(simplex.start(task, self.vertices), task.clients)

    def own(self, task: Task, i: int) -> Own:
        return Own(simplex.start(task, self.vertices), torch.tensor(False))

    def noise(self, task: Task) -> int:
        return simplex.noise(self.vertices, self.sampler)

    def passes(self, task: Task) -> int:
        return 2 * task.epochs

    def schedule(self, rounds: int) -> tuple[int]:
        return (self.tau,)

    def round(self, server: Server, clients: Clients) -> Server:
        return play(self, server, clients)

    def local(
        self, client: Client, own: Own, theta: Simplex, region: Region | None = None
    ) -> tuple[Own, Reply]:
        draw = simplex.sampler(self.sampler, self.vertices, region)
        theta_k = client.descend(theta, at=Simplex.at, draw=draw)
        return self.private(client, own.p, theta, region), Reply(theta_k, client.n)

    def private(
        self, client: Client, p: Simplex, theta: Simplex, region: Region | None = None
    ) -> Own:
        def near(p: Simplex) -> Tensor:
            if self.pull == "vertices":
                return self.lam / 2 * squared_distance(p.vertices, theta.vertices)
            return self.lam / 2 * squared_distance(p.flat(), theta.flat())

        draw = simplex.sampler(self.sampler, self.vertices, region)
        return Own(client.descend(p, at=Simplex.at, draw=draw, penalty=near), torch.tensor(True))

    def moves(self, client: Client, own: Own, theta: Simplex) -> tuple[tuple[()], Tensor]:
        draw = simplex.sampler(self.sampler, self.vertices)
        return (), client.descend(theta, at=Simplex.at, draw=draw).moves(theta)

    def deliver(self, server: Server, clients: Clients) -> Delivery:
        return deliver(self, server, clients)

    def personal(self, client: Client, own: Own | Newcomer, theta: Simplex, guide: Region) -> Point:
        own, (alpha, _) = (own, guide) if isinstance(own, Own) else own
        return Point(alpha, simplex.either(own.seen, own.p, theta).at(alpha))

    def path(self) -> ModelPath:
        return ModelPath("simplex", self.grid)

    def grid(self, client: Client, own: Own, theta: Simplex, guide: Region) -> Point:
        alpha = lattice(self.vertices).to(theta.vertices)
        return Point(alpha, simplex.either(own.seen, own.p, theta).at(alpha))

    def join(self, client: Client, theta: Simplex, guide: Region | Projection) -> Newcomer:
        if isinstance(guide, Projection):
            _, d = self.moves(client, client.own, theta)
            guide = Region(guide(d), d.new_tensor(self.rho))
        return self.private(client, theta, theta, guide), guide

    def common(self, server: Server) -> Tensor:
        return server.common()
