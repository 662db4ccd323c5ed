"""FLOCO's vocabulary: a simplex of last layers, draws from it, and clients' places in it.

Sizes: V vertices, H weights of the last layer, K clients, N in all. A point of the simplex is a
vector alpha of V non-negative numbers that sum to 1.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import combinations
from math import comb, factorial
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from isthmus.formulas.vector import mean, onto_simplex
from isthmus.task import Task

if TYPE_CHECKING:
    from isthmus.cohort import Clients

WHOLE = 2.0  # an L1 ball of this radius holds the simplex, wherever its centre
PROPOSALS = 64  # per draw of `around`, of which the first that is inside is taken
Z = (1e-4, 1.0, 1000)  # the grid of z: first, last, how many
CLIP = 1e-4  # distances below count as this much, and clients that near to each other as one
POINTS_AT_MOST = 15  # of the lattice that is evaluated, besides the centre
Sampler = Literal["uniform", "authors"]
Scale = Literal["none", "max"]


class Simplex(NamedTuple):
    """A network whose last weight is a simplex of V weights; body and bias are single."""

    body: Tensor
    vertices: Tensor  # [V, H]
    bias: Tensor

    def at(self, alpha: Tensor) -> Tensor:
        """Gives the flat model at a point [V], or the models at several, [L, V]."""
        weight = alpha @ self.vertices
        rows = weight.shape[:-1]
        parts = (self.body.expand(*rows, -1), weight, self.bias.expand(*rows, -1))
        return torch.cat(parts, -1)

    def centre(self) -> Tensor:
        """Gives the point that all vertices have the same share in."""
        return torch.full_like(self.vertices[:, 0], 1 / len(self.vertices))

    def flat(self) -> Tensor:
        """Gives all parameters, those of the vertices in the place of the last weight's."""
        return torch.cat([self.body, self.vertices.flatten(-2), self.bias], -1)

    def moves(self, start: "Simplex") -> Tensor:
        """Gives how far the vertices went from where they started, as one row per simplex."""
        return (self.vertices - start.vertices).flatten(-2)


def start(task: Task, vertices: int) -> Simplex:
    """Draws V vertices independently; the first is the common start's, as are body and bias."""
    more = [task.model.fresh(task.seed_of("vertex", m)) for m in range(1, vertices)]
    weight = task.model.weight
    drawn = torch.stack([model[weight] for model in (task.w0, *more)])
    return Simplex(task.w0[: weight.start], drawn, task.w0[weight.stop :])


def average(simplices: Simplex, n: Tensor) -> Simplex:
    """Averages K stacked simplices with weights n [K], in the order of a flat model."""
    body, vertices, bias = simplices
    sizes = [body.shape[1], vertices[0].numel(), bias.shape[1]]
    first, middle, last = torch.split(mean(simplices.flat(), n), sizes)
    return Simplex(first, middle.view(vertices.shape[1:]), last)


def either(seen: Tensor, first: Simplex, second: Simplex) -> Simplex:
    """Gives the first simplex where `seen` holds, else the second."""
    return Simplex(*(torch.where(seen, a, b) for a, b in zip(first, second, strict=True)))


def lattice(vertices: int, most: int = POINTS_AT_MOST) -> Tensor:
    """Gives the finest lattice of at most so many points, besides the centre, [L, V].

    The vertices are in it, however few it may have.

    >>> lattice(6).shape, lattice(3).shape, lattice(3, most=91).shape
    (torch.Size([7, 6]), torch.Size([16, 3]), torch.Size([91, 3]))
    """
    steps = 1
    while vertices > 1 and comb(steps + vertices, vertices - 1) <= most:
        steps += 1
    bars = torch.tensor(list(combinations(range(steps + vertices - 1), vertices - 1)))
    ends = torch.full((len(bars), 1), steps + vertices - 1)
    cuts = torch.cat([torch.full((len(bars), 1), -1), bars.view(len(bars), -1), ends], 1)
    points = (cuts.diff(dim=1) - 1) / steps
    centre = torch.full((1, vertices), 1 / vertices)
    return torch.cat([centre, points[(points != centre).any(1)]])


class Region(NamedTuple):
    """The part of the simplex that a client trains: what is within a radius of its point, in L1."""

    alpha: Tensor  # [V]
    radius: Tensor


def uniform(u: Tensor) -> Tensor:
    """Turns uniforms [..., V] into points that are uniform on the simplex."""
    x = _exponential(u)
    return x / x.sum(-1, keepdim=True)


def noise(vertices: int, name: Sampler) -> int:
    """Counts the uniforms that a draw wants."""
    return vertices + 1 if name == "authors" else PROPOSALS * (2 * vertices + 3)


def sampler(
    name: Sampler, vertices: int, region: Region | None = None
) -> Callable[[Tensor], Tensor]:
    """Finds what turns uniforms [S, noise] into points of a region, or of the whole simplex."""
    if region is None:
        return lambda u: uniform(u[:, :vertices])
    return partial(released if name == "authors" else around, region)


def around(region: Region, u: Tensor) -> Tensor:
    """Turns uniforms [S, noise] into points [S, V] that are uniform on a region.

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
    proposals = _cover(alpha, radius / 2, u)  # [S, J, V]
    v = proposals - alpha
    room = torch.where(v < 0, alpha / -v.clamp(max=-1e-30), 1).amin(-1)
    reach = torch.minimum(room, radius / v.abs().sum(-1).clamp(min=1e-30))
    turn = torch.arange(PROPOSALS, 0, -1, device=u.device)
    chosen = torch.where(reach >= 1, turn.to(u.dtype), reach).argmax(-1)[:, None, None]
    v = v.gather(1, chosen.expand(-1, 1, vertices))[:, 0]
    return (alpha + reach.clamp(max=1).gather(1, chosen[:, 0]) * v).clamp(min=0)


def _cover(alpha: Tensor, half: Tensor, u: Tensor) -> Tensor:
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


def released(region: Region, u: Tensor) -> Tensor:
    """Turns uniforms [S, V + 1] into what both releases of FLOCO draw, which leaves the simplex."""
    alpha, radius = region
    v = 2 * u[:, : len(alpha)] - 1
    v = v / v.abs().sum(-1, keepdim=True).clamp(min=1e-30)
    near = alpha + radius * u[:, len(alpha), None] * v
    return torch.where(radius >= WHOLE, uniform(u[:, : len(alpha)]), near)


class Projection(NamedTuple):
    """What turns the move of a client's vertices into its point."""

    mean: Tensor  # [V H]
    components: Tensor  # [V, V H]; zero where the clients did not differ
    scale: Tensor
    z: Tensor

    def __call__(self, moves: Tensor) -> Tensor:
        """Gives the points [..., V] of moves [..., V H]."""
        kappa = (moves - self.mean) @ self.components.T / self.scale
        return points(kappa.double(), self.z.double()).to(moves.dtype)


def points(kappa: Tensor, z: Tensor) -> Tensor:
    """Projects scores to the simplex of size z, and that to size 1."""
    beta = onto_simplex(kappa, z)
    return beta / beta.sum(-1, keepdim=True)


def energy(points: Tensor) -> Tensor:
    """Gives the Riesz energy of points [K, V]: log of the mean over pairs of 1 / distance^2."""
    pairs = torch.pdist(points).clamp(min=CLIP)
    return torch.logsumexp(-2 * pairs.log(), 0) - torch.tensor(max(1, len(pairs))).log()


def place(moves: Tensor, vertices: int, scale: Scale) -> tuple[Tensor, Projection]:
    """Places K clients by the moves of their vertices [K, V H]: points [K, V], and how to do it.

    The scores are those of the principal components, each with the sign that makes its largest
    score in absolute value positive; z is the one of the grid whose points have least energy.
    """
    centre = moves.double().mean(0)
    u, s, components = torch.linalg.svd(moves.double() - centre, full_matrices=False)
    u, s, components = u[:, :vertices], s[:vertices], components[:vertices]
    real = s > s.max() * max(moves.shape) * torch.finfo(torch.float64).eps
    sign = u.gather(0, u.abs().argmax(0)[None])[0].sign() * real
    missing = vertices - len(s)  # fewer clients than vertices
    kappa = torch.nn.functional.pad(u * s * sign, (0, missing))
    components = torch.nn.functional.pad(components * sign[:, None], (0, 0, 0, missing))
    size = kappa.abs().max() if scale == "max" and real.any() else torch.ones_like(s[0])
    kappa = kappa / size
    grid = torch.linspace(*Z, dtype=torch.float64)
    # All clients at once, and as many z as memory takes lightly.
    blocks = torch.split(grid, max(1, 10**6 // kappa.numel()))
    energies = [energy(one) for z in blocks for one in points(kappa[None], z[:, None])]
    z = grid[torch.stack(energies).argmin()]
    kept = (centre, components, size, z)
    projection = Projection(*(tensor.to(moves.dtype) for tensor in kept))
    return points(kappa, z).to(moves.dtype), projection


def remarks(placed: Tensor, total: int, projection: Projection) -> str:
    """Says how the placing of clients at points [K, V] of `total` clients went."""
    vertices, z = placed.shape[1], float(projection.z)
    text = f"placed {len(placed)} of {total} clients; z = {z:.4g}"
    if z in (float(torch.tensor(end).to(projection.z.dtype)) for end in Z[:2]):
        text += f", an end of the grid: the search may have wanted to go on{_advice(projection)}"
    gaps = torch.cdist(placed, placed).fill_diagonal_(1)
    same = int((gaps < CLIP).any(1).sum())
    text += f"; {same} of them share their point with another" if same else ""
    if len(placed) < vertices:
        text += f"; {vertices} vertices want at least as many clients"
    return text


def _advice(projection: Projection) -> str:
    return "; try kappa_scale=max" if float(projection.scale) == 1 else ""


class Places(NamedTuple):
    """Where every client is: the centre, until it is placed."""

    points: Tensor  # [N, V]
    placed: Tensor  # [N]

    @classmethod
    def nowhere(cls, clients: int, theta: Simplex) -> "Places":
        """Places nobody."""
        return cls(theta.centre().repeat(clients, 1), torch.zeros(clients, dtype=torch.bool))

    def region(self, i: int, rho: float) -> Region:
        """Gives what client i trains: around its point, or everything while it has none."""
        alpha = self.points[i]
        return Region(alpha, alpha.new_tensor(rho if self.placed[i] else WHOLE))

    def guide(self, i: int, rho: float, projection: Projection | None) -> Region | Projection:
        """Gives what client i finds its point by.

        A newcomer's number is above all others'; it has the projection, once there is one.
        """
        if i < len(self.points):
            return self.region(i, rho)
        if projection is not None:
            return projection
        centre = torch.full_like(self.points[0], 1 / self.points.shape[1])
        return Region(centre, centre.new_tensor(WHOLE))

    def settle(self, ids: Tensor, points: Tensor) -> "Places":
        """Places those of the clients that have no place yet."""
        new = ~self.placed[ids]
        placed = self.placed.index_fill(0, ids, True)
        return Places(self.points.index_copy(0, ids[new], points[new]), placed)


class Server(NamedTuple):
    """What a server of FLOCO holds: the simplex, and where in it every client is."""

    theta: Simplex
    places: Places


class Reply(NamedTuple):
    """A client's trained copy of the simplex and the number of its training examples."""

    theta: Simplex
    n: Tensor


def survey(
    ids: Tensor, moves: Tensor, places: Places, scale: Scale, clients: "Clients"
) -> tuple[Places, Projection]:
    """Places the clients that answered; the projection goes on the shelf, remarks to the user."""
    alpha, projection = place(moves, places.points.shape[1], scale)
    for name, tensor in zip(Projection._fields, projection, strict=True):
        clients.shelf[f"projection/{name}"] = tensor
    clients.note(remarks(alpha, clients.total, projection))
    return places.settle(ids, alpha), projection


def kept(shelf: Mapping[str, Tensor]) -> Projection | None:
    """Takes the projection from the shelf, once it is there."""
    if "projection/z" not in shelf:
        return None
    return Projection(*(shelf[f"projection/{name}"] for name in Projection._fields))
