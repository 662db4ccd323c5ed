"""A Gaussian model of features: a mean per class, and one covariance for all classes."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import vmap

from isthmus.formulas.vector import class_means

EPSILON = 1e-4  # of the mean variance is mixed into a covariance before it is inverted
FLAT = 1e-12  # of the least value, by which values differ through rounding alone


def moments(
    z: Tensor, y: Tensor, weight: Tensor, otherwise: Tensor, least: int
) -> tuple[Tensor, Tensor]:
    """Estimate class means [C, D] and pooled covariance [D, D] of the rows z [B, D] that count.

    A class with fewer than `least` rows takes its mean from `otherwise` [C, D].

    >>> z, y = torch.tensor([[1.0], [3.0], [7.0]]), torch.tensor([0, 0, 1])
    >>> moments(z, y, torch.ones(3), otherwise=torch.tensor([[0.0], [5.0]]), least=2)
    (tensor([[2.],
            [5.]]), tensor([[3.]]))
    """
    means, counts = class_means(z, y, len(otherwise), weight)
    means = torch.where(counts[:, None] < least, otherwise, means)
    centred = (z - means[y]) * weight[:, None]
    return means, centred.T @ centred / (weight.sum() - 1).clamp(min=1)


def discriminant(means: Tensor, covariance: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Return slopes [..., C, D] and intercepts [..., C] of the linear classifier of Gaussians.

    Its logits are z'Tm - m'Tm/2 + log prior, with T the inverse of (1 - e) S + e tr(S)/D I.

    >>> discriminant(torch.tensor([[2.0], [0.0]]), torch.tensor([[4.0]]), torch.ones(2))
    (tensor([[0.5000],
            [0.0000]]), tensor([-0.5000,  0.0000]))
    """
    size = len(covariance)
    even = covariance.diagonal().mean() * torch.eye(size, dtype=covariance.dtype)
    rows = means.reshape(-1, size)
    slopes = torch.linalg.solve((1 - EPSILON) * covariance + EPSILON * even, rows.T).T.view_as(
        means
    )
    return slopes, prior.log() - (means * slopes).sum(-1) / 2


def halves(y: Tensor, weight: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Deal the rows that count into two halves, class by class in turn, as weights [B].

    A class with a single row is in neither.

    >>> halves(torch.tensor([0, 0, 1, 0, 2, 2]), torch.ones(6), classes=3)
    (tensor([1., 0., 0., 1., 1., 0.]), tensor([0., 1., 0., 0., 0., 1.]))
    """
    member = (y[:, None] == torch.arange(classes)) * weight[:, None]  # [B, C]
    rank = (member.cumsum(0) * member).sum(1)  # 1, 2, ... within a class
    kept = weight * (member.sum(0)[y] > 1)
    return kept * (rank % 2), kept * (1 - rank % 2)


def least_on_square(f: Callable[[Tensor, Tensor], Tensor], halvings: int = 4) -> Tensor:
    """Find the point of [0, 1]^2 where f is least on a grid that is halved around its best point.

    f takes five first coordinates [5] and one second, and gives five values [5]. The first grid is
    0, 1/4, ..., 1 in both; with four halvings the last has steps of 1/64. Where f is flat, the
    result is 0. It takes no branch on a number, so that it may be computed for many at once.

    >>> least_on_square(lambda b, d: (b - 0.3) ** 2 + (d - 2) ** 2)
    tensor([0.2969, 1.0000], dtype=torch.float64)
    """
    best, offsets = torch.full((2,), 0.5).double(), torch.arange(-2, 3).double()
    for k in range(halvings + 1):
        b, d = (best[:, None] + offsets / 4 / 2**k).clamp(0, 1)
        values = vmap(lambda one, b=b: f(b, one))(d)  # [second, first]
        least = values.min()
        at = (values <= least + FLAT * least.abs()).flatten().int().argmax()  # the first of them
        best = torch.stack([b.gather(0, (at % 5)[None])[0], d.gather(0, (at // 5)[None])[0]])
    return best
