"""FLOCO's vocabulary: a simplex of last layers, and draws from it.

Sizes: V vertices, H weights of the last layer, K clients, N in all. A point of the simplex is a
vector alpha of V non-negative numbers that sum to 1.
"""

from collections.abc import Callable
from functools import cache, partial
from math import comb, factorial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from isthmus.formulas.vector import mean
from isthmus.task import Task

WHOLE = 2.0  # an L1 ball of this radius holds the simplex, wherever its centre
PROPOSALS = 64  # per draw of `around`, of which the first that is inside is taken
Sampler = Literal["uniform", "authors"]


class Simplex(NamedTuple):
    """A network whose last weight is a simplex of V weights; body and bias are single."""

    body: Tensor
    vertices: Tensor  # [V, H]
    bias: Tensor

    def at(self, alpha: Tensor) -> Tensor:
        """Return the flat model at a point [V], or the models at several, [L, V]."""
        weight = alpha @ self.vertices
        rows = weight.shape[:-1]
        parts = (self.body.expand(*rows, -1), weight, self.bias.expand(*rows, -1))
        return torch.cat(parts, -1)

    def centre(self) -> Tensor:
        """Return the point that all vertices have the same share in."""
        return torch.full_like(self.vertices[:, 0], 1 / len(self.vertices))

    def flat(self) -> Tensor:
        """Return all parameters, those of the vertices in the place of the last weight's."""
        return torch.cat([self.body, self.vertices.flatten(-2), self.bias], -1)

    def moves(self, start: "Simplex") -> Tensor:
        """Return how far the vertices went from where they started, as one row per simplex."""
        return (self.vertices - start.vertices).flatten(-2)


def start(task: Task, vertices: int) -> Simplex:
    """Draw V vertices independently; the first is the common start's, as are body and bias."""
    more = [task.model.fresh(task.seed_of("vertex", m)) for m in range(1, vertices)]
    weight = task.model.weight
    drawn = torch.stack([model[weight] for model in (task.w0, *more)])
    return Simplex(task.w0[: weight.start], drawn, task.w0[weight.stop :])


def average(simplices: Simplex, n: Tensor) -> Simplex:
    """Average K stacked simplices with weights n [K], in the order of a flat model."""
    body, vertices, bias = simplices
    sizes = [body.shape[1], vertices[0].numel(), bias.shape[1]]
    first, middle, last = torch.split(mean(simplices.flat(), n), sizes)
    return Simplex(first, middle.view(vertices.shape[1:]), last)


def either(seen: Tensor, first: Simplex, second: Simplex) -> Simplex:
    """Return the first simplex where `seen` holds, else the second."""
    return Simplex(*(torch.where(seen, a, b) for a, b in zip(first, second, strict=True)))


class Region(NamedTuple):
    """The part of the simplex that a client trains: what is within a radius of its point, in L1."""

    alpha: Tensor  # [V]
    radius: Tensor


def uniform(u: Tensor) -> Tensor:
    """Turn uniforms [..., V] into points that are uniform on the simplex."""
    x = _exponential(u)
    return x / x.sum(-1, keepdim=True)


def noise(vertices: int, name: Sampler) -> int:
    """Count the uniforms that a draw wants."""
    return vertices + 1 if name == "authors" else PROPOSALS * (2 * vertices + 3)


def sampler(
    name: Sampler, vertices: int, region: Region | None = None
) -> Callable[[Tensor], Tensor]:
    """Find what turns uniforms [S, noise] into points of a region, or of the whole simplex."""
    if region is None:
        return lambda u: uniform(u[:, :vertices])
    return partial(as_released if name == "authors" else around, region)


def around(region: Region, u: Tensor) -> Tensor:
    """Turn uniforms [S, noise] into points [S, V] that are uniform on a region.

    With R half the radius, cover the region by a set whose volume is known. Let the coordinates in
    T, whose sum is d, be anything from 0 upwards, and charge them only for what they gain. Then the
    coordinates that lose are b of the others, they lose n <= R, and the rest shares d + n: a volume
    of the integral of n^(b-1) / (b-1)! (d + n)^(V-b-1) / (V-b-1)! over n, or d^(V-1) / (V-1)! where
    none loses; expanded in powers of n, a table of (b, k). Of the covers in which T is the j
    smallest coordinates the smallest is drawn from until a point is inside. It is the region itself
    where T is zero and nothing else within R of zero, and the whole simplex where T is everything.

    With 10 vertices or fewer, at the worst points that were tried, 1 proposal in 8 was inside: 64
    miss once in 5,000 draws; at most points, never. Then the nearest miss is drawn in towards
    alpha. Nothing leaves the region.
    """
    alpha, radius = region
    vertices = len(alpha)
    if vertices == 1:
        return torch.ones_like(u[:, :1])
    u = u.view(len(u), PROPOSALS, -1)  # [S, J, 2 V + 3]
    proposals = cover(alpha, radius / 2, u)  # [S, J, V]
    v = proposals - alpha
    room = torch.where(v < 0, alpha / -v.clamp(max=-1e-30), 1).amin(-1)
    reach = torch.minimum(room, radius / v.abs().sum(-1).clamp(min=1e-30))
    turn = torch.arange(PROPOSALS, 0, -1, device=u.device)
    chosen = torch.where(reach >= 1, turn.to(u.dtype), reach).argmax(-1)[:, None, None]
    v = v.gather(1, chosen.expand(-1, 1, vertices))[:, 0]
    return (alpha + reach.clamp(max=1).gather(1, chosen[:, 0]) * v).clamp(min=0)


def cover(alpha: Tensor, half: Tensor, u: Tensor) -> Tensor:
    """Draw proposals [S, J, V] from the smallest cover of a region of half this radius."""
    vertices = len(alpha)
    cells, power = (table.to(u.device) for table in _cells(vertices))
    ordered, order = alpha.sort()
    mass = torch.cat([torch.zeros_like(ordered[:1]), ordered.cumsum(0)]).double()  # [V + 1]
    volumes = cells * (mass / half)[:, None, None] ** power  # [V + 1, V, V], over R^(V - 1)
    j = volumes.sum((1, 2)).argmin()[None]
    table = volumes.index_select(0, j)[0]  # [b, k]
    d = mass.index_select(0, j).to(u.dtype)
    free = torch.zeros_like(alpha).scatter(0, order, (torch.arange(vertices) < j).to(u.dtype))
    b = _pick(table.sum(1).expand(*u.shape[:-1], -1), u[..., 0])
    k = _pick(table[b], u[..., 1])
    losers = (u[..., 3 : 3 + vertices] + 2 * free).argsort(-1).argsort(-1) < b[..., None]
    n = half * u[..., 2] ** (1 / (b + k).clamp(min=1))
    n = torch.where(b > 0, n, 0)[..., None]
    x = _exponential(u[..., 3 + vertices :])
    lost, won = torch.where(losers, x, 0), torch.where(losers, 0, x)
    lost = lost / lost.sum(-1, keepdim=True).clamp(min=1e-30)
    return alpha * (1 - free) + (d + n) * won / won.sum(-1, keepdim=True) - n * lost


@cache
def _cells(vertices: int) -> tuple[Tensor, Tensor]:
    size = (vertices + 1, vertices, vertices)
    cells = torch.zeros(size, dtype=torch.float64, device="cpu")  # [j, b, k]
    power = torch.zeros(size[1:], dtype=torch.float64, device="cpu")  # of d / R
    cells[:, 0, 0], power[0, 0] = 1 / factorial(vertices - 1), vertices - 1
    for b in range(1, vertices):
        for k in range(vertices - b):
            power[b, k] = vertices - b - 1 - k
            volume = comb(vertices - b - 1, k) / (factorial(b - 1) * factorial(vertices - b - 1))
            for j in range(vertices - b + 1):
                cells[j, b, k] = comb(vertices - j, b) * volume / (b + k)
    return cells, power


def _pick(weights: Tensor, u: Tensor) -> Tensor:
    sums = weights.cumsum(-1)
    return (u[..., None] * sums[..., -1:] >= sums).sum(-1).clamp(max=weights.shape[-1] - 1)


def _exponential(u: Tensor) -> Tensor:
    return -u.clamp(1e-30, 1 - torch.finfo(u.dtype).eps).log()


def as_released(region: Region, u: Tensor) -> Tensor:
    """Turn uniforms [S, V + 1] into what both releases of FLOCO draw, which leaves the simplex."""
    alpha, radius = region
    v = 2 * u[:, : len(alpha)] - 1
    v = v / v.abs().sum(-1, keepdim=True).clamp(min=1e-30)
    near = alpha + radius * u[:, len(alpha), None] * v
    return torch.where(radius >= WHOLE, uniform(u[:, : len(alpha)]), near)
