"""Quadratic programs on the probability simplex, one variable per client."""

import torch
from torch import Tensor

from isthmus.formulas.vector import onto_simplex


def least_on_simplex(
    matrix: Tensor, tolerance: float = 1e-12, limit: int = 10_000
) -> tuple[Tensor, Tensor]:
    """Find the shares a [..., K] of least a' M a, and which have converged, [...].

    M [..., K, K] is symmetric and positive semidefinite. Projected gradient with momentum, which
    starts again where it would go uphill. Converged means that a' M a is within `tolerance` of the
    least, relative to the largest sum of a row of |M|: max over shares b of a' M a - b' M a bounds
    half the difference.

    >>> least_on_simplex(torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
    (tensor([0.7500, 0.2500], dtype=torch.float64), tensor(True))
    """
    scale = matrix.double().abs().sum(-1).amax(-1)[..., None, None]  # bounds the eigenvalues
    unit = matrix.double() / torch.where(scale > 0, scale, 1.0)
    a = ahead = torch.full(unit.shape[:-1], 1 / unit.shape[-1], dtype=torch.float64)
    speed = torch.ones_like(a[..., :1])
    for _ in range(limit):
        pull = _times(unit, a)
        converged = 2 * ((a * pull).sum(-1) - pull.amin(-1)) <= tolerance
        if converged.all():
            break
        new = onto_simplex(ahead - _times(unit, ahead))
        uphill = ((ahead - new) * (new - a)).sum(-1, keepdim=True) > 0
        speed = torch.where(uphill, 1.0, speed)
        faster = (1 + (1 + 4 * speed.square()).sqrt()) / 2
        ahead = new + (speed - 1) / faster * (new - a)
        a, speed = new, faster
    return a, converged


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector[..., None])[..., 0]
