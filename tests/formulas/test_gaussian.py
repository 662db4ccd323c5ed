"""Gaussian models of features, against hand-worked numbers and closed forms."""

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.func import vmap

from isthmus.formulas.gaussian import discriminant, halves, least_on_square, moments


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def test_moments_worked_by_hand() -> None:
    """Class 0 has 1, 2, 3: mean 2, scatter 2. Class 1 has 4, 6, too few: around 7, 9 + 1 = 10.

    The covariance is (2 + 10) / (5 - 1) = 3. A row that does not count, here 99, changes nothing.
    """
    z = torch.tensor([1.0, 2.0, 3.0, 4.0, 6.0, 99.0])[:, None]
    y, weight = torch.tensor([0, 0, 0, 1, 1, 0]), torch.tensor([1.0, 1, 1, 1, 1, 0])
    means, covariance = moments(z, y, weight, otherwise=torch.tensor([[5.0], [7.0]]), least=3)
    assert means[:, 0].tolist() == [2, 7]
    assert covariance.tolist() == [[3]]


def test_the_discriminant_is_bayes_rule() -> None:
    """log prior + log density differ between classes as the logits do, in float64.

    The share 1e-4 of the mean variance is added to the densities' covariance too.
    """
    root, means, z = normal(4, 4), normal(3, 4, seed=1), normal(20, 4, seed=2)
    covariance = root @ root.T
    prior = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    slopes, intercepts = discriminant(means, covariance, prior)
    logits = z @ slopes.T + intercepts
    even = covariance.diagonal().mean() * torch.eye(4, dtype=torch.float64)
    density = MultivariateNormal(means, (1 - 1e-4) * covariance + 1e-4 * even)
    expected = density.log_prob(z[:, None]) + prior.log()
    assert torch.allclose(logits.log_softmax(1), expected.log_softmax(1), atol=1e-9)


def test_many_means_share_one_inverse() -> None:
    root, means = normal(3, 3), normal(5, 2, 3, seed=1)
    prior = torch.full((2,), 0.5, dtype=torch.float64)
    slopes, intercepts = discriminant(means, root @ root.T, prior)
    for one, slope, intercept in zip(means, slopes, intercepts, strict=True):
        alone = discriminant(one, root @ root.T, prior)
        assert torch.allclose(slope, alone[0])
        assert torch.allclose(intercept, alone[1])


def test_halves_are_even_within_each_class() -> None:
    generator = torch.Generator().manual_seed(4)
    y = torch.randint(0, 4, (41,), generator=generator)
    weight = (torch.rand(41, generator=generator) < 0.8).float()
    first, second = halves(y, weight, classes=4)
    assert (first * second == 0).all()
    for c in range(4):
        counts = [half[y == c].sum() for half in (first, second)]
        assert sum(counts) == weight[y == c].sum()
        assert 0 <= counts[0] - counts[1] <= 1


@pytest.mark.parametrize("at", [(0.0, 1.0), (0.3, 0.7), (0.51, 0.02)])
def test_the_least_point_is_found_to_half_a_step(at: tuple[float, float]) -> None:
    """Of a round bowl the last grid, of steps 1/64, holds the nearest point: 1/128 off at most."""
    found = least_on_square(lambda b, d: (b - at[0]) ** 2 + (d - at[1]) ** 2)
    assert found.tolist() == pytest.approx(at, abs=1 / 128 + 1e-12)


def test_where_all_is_the_same_the_least_point_is_0() -> None:
    assert least_on_square(lambda b, d: 0 * b + 0 * d).tolist() == [0, 0]


def test_what_is_flat_up_to_rounding_is_flat() -> None:
    """1e-15 is a few roundings of 1: which point is least by so much, versions of torch differ."""
    assert least_on_square(lambda b, d: 1 - 1e-15 * (b + d)).tolist() == [0, 0]


def test_many_least_points_are_found_at_once() -> None:
    at = torch.tensor([[0.25, 0.5], [1.0, 0.125]], dtype=torch.float64)

    def one(at: Tensor) -> Tensor:
        return least_on_square(lambda b, d: (b - at[0]) ** 2 + (d - at[1]) ** 2)

    assert torch.equal(vmap(one)(at), at)
