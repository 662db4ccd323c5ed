"""Points of a simplex: vectors of non-negative numbers that sum to 1."""

from itertools import combinations
from math import comb

import torch
from torch import Tensor

POINTS_AT_MOST = 15  # of a lattice, besides the centre


def lattice(vertices: int, most: int = POINTS_AT_MOST) -> Tensor:
    """Return the finest lattice of at most so many points, besides the centre, [L, V].

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
