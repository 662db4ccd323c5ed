"""FLOCO: federated learning over connected modes (Grinwald, Wiesner, Nakajima, NeurIPS 2024).

    Server                                   Client k
    for t = 0, 1, ...:                       local(theta, R_k):
        t = tau: D_k <- moves(theta), all k      theta_k <- SGD from theta on F_k(w_alpha),
                 alpha_k <- place(D)                 alpha ~ U(R_k) anew for every batch
        S <- K clients, uniformly                return theta_k, n_k
        theta_k <- local(theta, R_k) of S    moves(theta):
        theta <- sum_k n_k theta_k / sum_k n_k   as local with R_k = the simplex;
                                                 return theta_k - theta, vertices only
Symbols: theta the network: a body, V vertices of its last weight, a bias; w_alpha the network with
the last weight sum_m alpha_m theta_m; alpha_k client k's point; R_k = {alpha: |alpha - alpha_k|_1
<= rho}, the whole simplex until the client is placed; n_k training examples; place(D): the first V
principal scores of the D_k, projected to the simplex of size z, divided by z; of a grid, the z of
least Riesz energy.

A client deploys w_(alpha_k); the shared model is at the simplex's centre, and so is who has no
place. Who does not answer at tau is placed by its first reply thereafter, with the kept projection;
a newcomer places itself, by one local pass.

Limiting case: with one vertex it is FedAvg.

Departures, by the numbers of docs/methods/floco.md: weights n_k are normalised over the clients
that answered (F3); V scores, not V - 1 (F2), with fixed signs (F4); the energy is that of points
divided by z (F6); the pass at tau is thrown away but for D_k (F8); the vertices are drawn as the
network's constructor draws its last layer, the first one being the common start's.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from isthmus.client import Client, Point
from isthmus.cohort import Clients
from isthmus.formulas.barycentric import lattice
from isthmus.method import About, Delivery, Method, ModelPath
from isthmus.methods.floco import simplex
from isthmus.methods.floco.server import Projection, Reply, Server, begin, deliver, play
from isthmus.methods.floco.simplex import Region, Simplex
from isthmus.ranges import NonNegativeInt, Radius, Vertices
from isthmus.task import Task


@dataclass(frozen=True)
class Floco(Method):
    """Trains a simplex of last layers, in which each client finds a place of its own."""

    vertices: Vertices = 7  # V, the paper's M + 1
    tau: NonNegativeInt = 100  # the round, counted from 0, that begins by placing the clients
    rho: Radius = 0.1  # radius of a client's region, in L1
    sampler: Literal["uniform", "authors"] = "uniform"  # how a region is drawn from
    kappa_scale: Literal["none", "max"] = "none"  # what scores are divided by before z is sought

    def about(self) -> About:
        return About(
            "connected modes",
            down="w with V last layers, its point",
            up="w with V last layers",
            newcomer="at once at the centre; its point after one pass",
            calls={"local": "", "moves": ""},
            everybody="once, at round tau",
        )

    def init(self, task: Task) -> Server:
        return begin(simplex.start(task, self.vertices), task.clients)

    def noise(self, task: Task) -> int:
        return simplex.noise(self.vertices, self.sampler)

    def schedule(self, rounds: int) -> tuple[int]:
        return (self.tau,)

    def round(self, server: Server, clients: Clients) -> Server:
        return play(self, server, clients)

    def local(
        self, client: Client, own: tuple[()], theta: Simplex, region: Region | None = None
    ) -> tuple[tuple[()], Reply]:
        draw = simplex.sampler(self.sampler, self.vertices, region)
        return own, Reply(client.descend(theta, at=Simplex.at, draw=draw), client.n)

    def moves(self, client: Client, own: tuple[()], theta: Simplex) -> tuple[tuple[()], Tensor]:
        return own, self.local(client, own, theta)[1].theta.moves(theta)

    def deliver(self, server: Server, clients: Clients) -> Delivery:
        return deliver(self, server, clients)

    def personal(
        self, client: Client, own: Region | tuple[()], theta: Simplex, guide: Region
    ) -> Point:
        alpha, _ = own or guide  # a newcomer has found its place by itself
        return Point(alpha, theta.at(alpha))

    def path(self) -> ModelPath:
        return ModelPath("simplex", self.grid)

    def grid(self, client: Client, own: tuple[()], theta: Simplex, guide: Region) -> Point:
        alpha = lattice(self.vertices).to(theta.vertices)
        return Point(alpha, theta.at(alpha))

    def join(self, client: Client, theta: Simplex, guide: Region | Projection) -> Region:
        if isinstance(guide, Region):  # nobody has been placed yet
            return guide
        _, d = self.moves(client, (), theta)
        return Region(guide(d), d.new_tensor(self.rho))

    def common(self, server: Server) -> Tensor:
        return server.common()
