"""pFedFDA (McLaughlin, Su 2024): a shared body under a Gaussian model of its features.

    Server                                   Client k
    for t = 0, 1, ...:                       local(v, mu, S):
        K clients, uniformly                     u <- LDA(mu, S, pi)
        v_k, mu_k, S_k <- local(v, mu, S)        v_k <- E epochs of SGD from v on F_k(., u)
        v, mu, S <- averages by n_k              mu_k, S_k <- fit(features of v_k)
                                                 return them and n_k

    fit(z):           m, R <- class means and pooled covariance of z
                      b, d <- argmin over [0, 1]^2 of the cross-entropy of LDA(mix(b, d), pi) on one
                              half of z, with the m, R of the other half, summed over both halves
                      return mix(b, d)
    mix(b, d):        b m + (1 - b) mu, d R + (1 - d) S
    LDA(mu, S, pi):   logits z'T mu_c - mu_c'T mu_c / 2 + log pi_c, T = ((1 - e) S + e tr(S)/D I)^-1

Symbols: v shared body; mu [C, D], S [D, D] shared means and covariance of the features, U(0, 1) and
I at first; pi the client's class frequencies, each + e, to sum 1; e = 1e-4; n_k training examples.
A class with 2 examples or fewer takes m_c = mu_c; one with a single example is in no half. To R are
added I, and e in every entry (`ridge="released"`), or e I (`ridge="small"`).

A client deploys (v, LDA(fit(features of v), pi)). It keeps nothing; a newcomer does the same.

Limiting case: with beta = "local", b = d = 1: LDA of the client's own features, free of mu and S.

Departures: b and d are found on a 5 x 5 grid, halved four times around its best point, to 1/64:
L-BFGS branches on numbers, which clients computed together cannot. Halves alternate within a class.
fit takes the features of the trained body, not those met while it trained. R is positive by
construction and is not clipped. Statistics are computed in float64.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from isthmus.client import Client
from isthmus.cohort import Clients
from isthmus.errors import IsthmusError
from isthmus.formulas.gaussian import EPSILON, discriminant, halves, least_on_square, moments
from isthmus.formulas.vector import mean
from isthmus.method import About, Method
from isthmus.task import Task


class Server(NamedTuple):
    """The shared body, and class means and covariance of its features."""

    v: Tensor
    mu: Tensor  # [C, D]
    cov: Tensor  # [D, D]


class Reply(NamedTuple):
    """The same, made the client's own, and the number of its training examples."""

    fitted: Server
    n: Tensor


@dataclass(frozen=True)
class PFedFda(Method):
    """Classifies by Gaussians that lie between those of all clients and the client's own."""

    beta: Literal["fitted", "local"] = "fitted"
    ridge: Literal["released", "small"] = "released"

    def about(self) -> About:
        return About(
            "shared statistics",
            down="body, means and covariance of features",
            up="body, means and covariance of features",
            home="its statistics and how much it trusts them",
            newcomer="at once, in closed form",
            calls={"local": "means and covariance of its features by class"},
        )

    def init(self, task: Task) -> Server:
        head, wanted = task.model.head, task.classes * (task.features + 1)
        if head.start != task.model.weight.start or head.stop - head.start != wanted:
            raise IsthmusError(
                f"pfedfda was given a head of {head.stop - head.start} parameters, and needs one "
                f"linear layer with a bias, {wanted}; set head=last, or choose another model"
            )
        draw = torch.Generator().manual_seed(task.seed_of("means"))
        mu = torch.rand(task.classes, task.features, generator=draw).to(task.w0.dtype)
        return Server(task.w0[task.model.body], mu, torch.eye(task.features, dtype=mu.dtype))

    def round(self, server: Server, clients: Clients) -> Server:
        _, (fitted, n) = clients.map(self.local, server)
        return Server(*(mean(rows.flatten(1), n).view_as(rows[0]) for rows in fitted))

    def local(self, client: Client, own: tuple[()], server: Server) -> tuple[tuple[()], Reply]:
        u = lda(server, prior(client))
        v = client.descend(server.v, at=lambda v, _: torch.cat([v, u]))
        return own, Reply(self.fit(client, server._replace(v=v)), client.n)

    def personal(self, client: Client, own: tuple[()], server: Server) -> Tensor:
        return torch.cat([server.v, lda(self.fit(client, server), prior(client))])

    def common(self, server: Server) -> Tensor:
        return torch.cat([server.v, lda(server, torch.ones(len(server.mu)))])

    def fit(self, client: Client, server: Server) -> Server:
        v, mu, cov = server.v, server.mu.double(), server.cov.double()
        x, y, *_, importance, weight = client.examples
        no_head = v.new_zeros(client.model.size - len(v))
        z = client.model.features(torch.cat([v, no_head]), x).double()
        weight = torch.ones_like(z[:, 0]) if weight is None else weight.double()
        identity = torch.eye(len(cov)).double()
        ridge = identity + EPSILON if self.ridge == "released" else EPSILON * identity

        def alone(weight: Tensor) -> Server:
            m, r = moments(z, y, weight, otherwise=mu, least=3)
            return Server(v, m, r + ridge)

        def mix(own: Server, b: Tensor, d: Tensor) -> Server:
            return Server(v, b * own.mu + (1 - b) * mu, d * own.cov + (1 - d) * cov)

        first, second = halves(y, weight, len(mu))
        folds = [(alone(first), second), (alone(second), first)]

        def error(b: Tensor, d: Tensor) -> Tensor:
            total = torch.zeros_like(b)  # [L]
            for own, rest in folds:
                _, means, covariance = mix(own, b[:, None, None], d)
                slopes, intercepts = discriminant(means, covariance, prior(client).double())
                logits = torch.einsum("nd,lcd->ncl", z, slopes) + intercepts.T
                losses = cross_entropy(logits, y[:, None].expand(-1, len(b)), reduction="none")
                losses = losses * importance[:, None] if isinstance(importance, Tensor) else losses
                total = total + rest @ losses / rest.sum().clamp(min=1)
            return total

        b, d = torch.ones(2) if self.beta == "local" else least_on_square(error)
        mixed = mix(alone(weight), b, d)
        return Server(v, mixed.mu.to(v.dtype), mixed.cov.to(v.dtype))


def lda(server: Server, pi: Tensor) -> Tensor:
    """Write the classifier of Gaussians as the parameters of a linear layer, [C D + C]."""
    slopes, intercepts = discriminant(server.mu.double(), server.cov.double(), pi.double())
    return torch.cat([slopes.flatten(), intercepts]).to(server.v.dtype)


def prior(client: Client) -> Tensor:
    """Return the client's class frequencies, none of them 0."""
    frequency = client.label_counts() / client.n + EPSILON
    return frequency / frequency.sum()
