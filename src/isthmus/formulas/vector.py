"""The papers' vocabulary on flat vectors."""

from collections.abc import Sequence

import torch
from torch import Tensor


def mean(rows: Tensor, weights: Tensor) -> Tensor:
    """Average rows [K, P] with weights [K], normalised over the rows that are there.

    >>> mean(torch.tensor([[0.0], [3.0]]), torch.tensor([2.0, 1.0]))
    tensor([1.])
    """
    share = weights / weights.sum()
    return share @ rows


def total_variance(rows: Tensor) -> Tensor:
    """Add up the squared distances of rows [K, P] from their mean: not divided by K.

    A vector added to all rows changes nothing: models and updates from one start give the same.

    >>> total_variance(torch.tensor([[0.0, 1.0], [2.0, 1.0]]))
    tensor(2.)
    """
    return (rows - rows.mean(0)).square().sum()


def squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """Return |a - b|^2."""
    return (a - b).square().sum()


def sum_of_norms(parts: Sequence[Tensor]) -> Tensor:
    """Add up the Euclidean norms of several tensors; its gradient is 0 where one of them is 0."""
    return torch.stack([torch.linalg.vector_norm(part) for part in parts]).sum()


def squared_cosine(a: Tensor, b: Tensor, offset: float = 0.0) -> Tensor:
    """Return cos^2 of the angle between two vectors, 0 where one of them is 0.

    `offset` is added to each of the P products in <a, b>, as the released SuPerFed does with 1e-6.

    >>> squared_cosine(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0]))
    tensor(0.5000)
    """
    product = a @ b + offset * a.numel() if offset else a @ b
    return product.square() / (a @ a * (b @ b)).clamp(min=1e-12)


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """Return the cosine between each row of a [A, C] and each row of b [B, C], 0 where one is 0.

    Of whole numbers the products are exact, so no entry depends on which other rows there are.

    >>> cosines(torch.tensor([[1, 0], [3, 3], [0, 0]]), torch.tensor([[0, 2], [5, 0]]))
    tensor([[0.0000, 1.0000],
            [0.7071, 0.7071],
            [0.0000, 0.0000]], dtype=torch.float64)
    """
    a, b = a.double(), b.double()
    squares = a.square().sum(1)[:, None] * b.square().sum(1)
    return (a @ b.T) / squares.sqrt().clamp(min=1e-300)


def class_means(
    z: Tensor, y: Tensor, classes: int, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Average rows z [B, D] by class y [B]: means [C, D], 0 for an empty class; and counts [C].

    `weight` is 1 for rows that count, 0 for rows that do not, None if all do.

    >>> class_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 2]), classes=3)
    (tensor([[2.],
            [0.],
            [5.]]), tensor([2., 0., 1.]))
    """
    member = (y[:, None] == torch.arange(classes)).to(z.dtype)  # [B, C]
    if weight is not None:
        member = member * weight[:, None].to(z.dtype)
    counts = member.sum(0)
    return member.T @ z / counts.clamp(min=1)[:, None], counts


def onto_simplex(rows: Tensor, total: Tensor | float = 1.0) -> Tensor:
    """Move rows [..., K] to the nearest ones with entries of at least 0 that sum to `total` [...].

    >>> onto_simplex(torch.tensor([0.5, 0.25, -1.0]))
    tensor([0.6250, 0.3750, 0.0000])
    """
    total = torch.as_tensor(total, dtype=rows.dtype)[..., None]
    excess = rows.sort(-1, descending=True).values.cumsum(-1) - total
    count = torch.arange(1, rows.shape[-1] + 1)
    return (rows - (excess / count).amax(-1, keepdim=True)).clamp(min=0)
