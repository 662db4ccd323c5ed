"""The server of FLOCO and FLOCO+: its round, and clients' places in the simplex.

Sizes: V vertices, H weights of the last layer, K clients, N in all.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from isthmus.cohort import Clients
from isthmus.formulas.vector import onto_simplex
from isthmus.method import Delivery
from isthmus.methods.floco import simplex
from isthmus.methods.floco.simplex import WHOLE, Region, Simplex

if TYPE_CHECKING:
    from isthmus.methods.floco.floco import Floco
    from isthmus.methods.floco.floco_plus import FlocoPlus

Z = (1e-4, 1.0, 1000)  # the grid of z: first, last, how many
CLIP = 1e-4  # distances below count as this much, and clients that near to each other as one
Scale = Literal["none", "max"]


class Projection(NamedTuple):
    """What turns the move of a client's vertices into its point."""

    mean: Tensor  # [V H]
    components: Tensor  # [V, V H]; zero where the clients did not differ
    scale: Tensor
    z: Tensor

    def __call__(self, moves: Tensor) -> Tensor:
        """Return the points [..., V] of moves [..., V H]."""
        kappa = (moves - self.mean) @ self.components.T / self.scale
        return points(kappa.double(), self.z.double()).to(moves.dtype)


def points(kappa: Tensor, z: Tensor) -> Tensor:
    """Project scores to the simplex of size z, and that to size 1."""
    beta = onto_simplex(kappa, z)
    return beta / beta.sum(-1, keepdim=True)


def energy(points: Tensor) -> Tensor:
    """Return the Riesz energy of points [K, V]: log of the mean over pairs of 1 / distance^2."""
    pairs = torch.pdist(points).clamp(min=CLIP)
    return torch.logsumexp(-2 * pairs.log(), 0) - torch.tensor(max(1, len(pairs))).log()


def place(moves: Tensor, vertices: int, scale: Scale) -> tuple[Tensor, Projection]:
    """Place K clients by the moves of their vertices [K, V H]: points [K, V], and how to do it.

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
    """Describe how the placing of clients at points [K, V] of `total` clients went."""
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

    def region(self, i: int, rho: float) -> Region:
        """Return what client i trains: around its point, or everything while it has none."""
        alpha = self.points[i]
        return Region(alpha, alpha.new_tensor(rho if self.placed[i] else WHOLE))

    def guide(self, i: int, rho: float, projection: Projection | None) -> Region | Projection:
        """Return what client i finds its point by.

        A newcomer's number is above all others'; it has the projection, once there is one.
        """
        if i < len(self.points):
            return self.region(i, rho)
        if projection is not None:
            return projection
        centre = torch.full_like(self.points[0], 1 / self.points.shape[1])
        return Region(centre, centre.new_tensor(WHOLE))

    def place(self, ids: Tensor, points: Tensor) -> "Places":
        """Place those of the clients that have no place yet."""
        new = ~self.placed[ids]
        placed = self.placed.index_fill(0, ids, True)
        return Places(self.points.index_copy(0, ids[new], points[new]), placed)


class Server(NamedTuple):
    """What a server of FLOCO holds: the simplex, and where in it every client is."""

    theta: Simplex
    places: Places

    def common(self) -> Tensor:
        """Return the shared model: the one at the centre of the simplex."""
        return self.theta.at(self.theta.centre())


class Reply(NamedTuple):
    """A client's trained copy of the simplex and the number of its training examples."""

    theta: Simplex
    n: Tensor


def begin(theta: Simplex, clients: int) -> Server:
    """Return the state before the first round: no client is placed."""
    points, placed = theta.centre().repeat(clients, 1), torch.zeros(clients, dtype=torch.bool)
    return Server(theta, Places(points, placed))


def play(method: "Floco | FlocoPlus", server: Server, clients: Clients) -> Server:
    """Play a round: the server's box of both methods."""
    theta, places = server
    if clients.t == 0 and method.tau >= clients.rounds:
        clients.note(f"tau={method.tau} of {clients.rounds} rounds: no client will be placed")
    projection = read_projection(clients.shelf)
    if clients.t >= method.tau and projection is None:
        ids, d = clients.all.map(method.moves, theta, purpose="place")
        places, projection = survey(ids, d, places, method.kappa_scale, clients)
    region = partial(places.region, rho=method.rho)
    ids, reply = clients.map(method.local, theta, each=region if projection else None)
    if projection:  # those that did not answer at tau
        places = places.place(ids, projection(reply.theta.moves(theta)))
    return Server(simplex.average(reply.theta, reply.n), places)


def deliver(method: "Floco | FlocoPlus", server: Server, clients: Clients) -> Delivery:
    """Deliver the simplex to every client, and to each what it finds its point by."""
    projection = read_projection(clients.shelf)
    guide = partial(server.places.guide, rho=method.rho, projection=projection)
    return Delivery(server.common(), (server.theta,), guide)


def survey(
    ids: Tensor, moves: Tensor, places: Places, scale: Scale, clients: Clients
) -> tuple[Places, Projection]:
    """Place the clients that answered; the projection goes on the shelf, remarks to the user."""
    alpha, projection = place(moves, places.points.shape[1], scale)
    for name, tensor in zip(Projection._fields, projection, strict=True):
        clients.shelf[f"projection/{name}"] = tensor
    clients.note(remarks(alpha, clients.total, projection))
    return places.place(ids, alpha), projection


def read_projection(shelf: Mapping[str, Tensor]) -> Projection | None:
    """Take the projection from the shelf, once it is there."""
    if "projection/z" not in shelf:
        return None
    return Projection(*(shelf[f"projection/{name}"] for name in Projection._fields))
