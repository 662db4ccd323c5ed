"""The papers' vocabulary, against hand-worked numbers and closed forms."""

import pytest
import torch
from torch import Tensor

from isthmus.formulas.vector import mean, squared_cosine, squared_distance, sum_of_norms


def gradient(f, *at: Tensor) -> list[Tensor]:  # type: ignore[no-untyped-def]
    points = [point.clone().requires_grad_() for point in at]
    return list(torch.autograd.grad(f(*points), points))


def normal(seed: int, size: int = 50) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=torch.float64)


def test_a_mean_is_weighted_by_the_rows_that_are_there() -> None:
    """Weights 30, 10, 10 of 50 are 3/5, 1/5, 1/5: 0.6 * 1 + 0.2 * 5 + 0.2 * 0 = 1.6, and
    0.6 * 0 + 0.2 * 0 + 0.2 * 10 = 2; float64, so that only the last digits may differ."""
    rows = torch.tensor([[1.0, 0.0], [5.0, 0.0], [0.0, 10.0]], dtype=torch.float64)
    found = mean(rows, torch.tensor([30, 10, 10], dtype=torch.float64))
    assert found.tolist() == pytest.approx([1.6, 2.0], rel=1e-15)


def test_the_mean_of_one_row_is_the_row() -> None:
    """n / n is exactly 1, so that a single upload becomes the shared model bit for bit."""
    row = normal(0).float()
    assert torch.equal(mean(row[None], torch.tensor([37.0])), row)


def test_distance_and_sum_of_norms() -> None:
    """(3, 4) has norm 5, (0, 0) has 0, (5, 12) has 13; together 18. |(3, 4)|^2 = 25."""
    parts = [torch.tensor([3.0, 4.0]), torch.zeros(2), torch.tensor([[5.0], [12.0]])]
    assert sum_of_norms(parts).item() == 18
    assert squared_distance(torch.tensor([4.0, 4.0]), torch.tensor([1.0, 0.0])).item() == 25


def test_a_sum_of_norms_pulls_with_unit_length_and_not_at_all_at_zero() -> None:
    """The gradient of |v| is v / |v|: (3, 4) / 5; for v = 0 the subgradient taken is 0."""
    found = gradient(
        lambda a, b: sum_of_norms([a, b]), torch.tensor([3.0, 4.0]).double(), torch.zeros(3)
    )
    assert found[0].tolist() == pytest.approx([0.6, 0.8], rel=1e-15)
    assert found[1].tolist() == [0, 0, 0]


def test_the_squared_cosine_of_a_hand_worked_pair() -> None:
    """cos of (3, 4) and (4, 3) is 24 / 25, its square 576 / 625 = 0.9216; lengths do not count."""
    a, b = torch.tensor([3.0, 4.0]).double(), torch.tensor([4.0, 3.0]).double()
    assert squared_cosine(a, b).item() == pytest.approx(0.9216, rel=1e-15)
    assert squared_cosine(-7 * a, b / 9).item() == pytest.approx(0.9216, rel=1e-15)


def test_the_offset_is_added_to_every_product() -> None:
    """(1, 0, 0) and (0, 2, 0) are orthogonal; 3 products, each raised by 0.5, give 1.5:
    1.5^2 / (1 * 4) = 0.5625, exact in binary."""
    a, b = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 2.0, 0.0])
    assert squared_cosine(a, b).item() == 0
    assert squared_cosine(a, b, offset=0.5).item() == 0.5625


def test_the_gradient_of_the_squared_cosine_is_the_closed_form() -> None:
    """d cos^2 / df = 2 cos (l / (|f| |l|) - cos f / |f|^2), and the same with f and l exchanged.

    Entries are of the size 0.01; float64 leaves errors near 1e-17, so 1e-14 is generous.
    """
    f, l = normal(1), normal(2) + 0.3 * normal(1)  # noqa: E741
    cos = f @ l / (f.norm() * l.norm())
    to_f = 2 * cos * (l / (f.norm() * l.norm()) - cos * f / (f @ f))
    to_l = 2 * cos * (f / (f.norm() * l.norm()) - cos * l / (l @ l))
    found = gradient(squared_cosine, f, l)
    assert to_f.abs().max() > 1e-3
    torch.testing.assert_close(found[0], to_f, rtol=0, atol=1e-14)
    torch.testing.assert_close(found[1], to_l, rtol=0, atol=1e-14)
    assert torch.autograd.gradcheck(squared_cosine, (f.requires_grad_(), l.requires_grad_()))


def test_the_squared_cosine_is_stationary_where_both_are_equal() -> None:
    """At l = f the two terms of the closed form cancel; rounding leaves some 1e-17 of entries that
    are 0.04 each."""
    f = normal(3)
    for found in gradient(squared_cosine, f, f.clone()):
        torch.testing.assert_close(found, torch.zeros_like(f), rtol=0, atol=1e-16)


def test_the_squared_cosine_is_stationary_where_both_are_orthogonal() -> None:
    """cos = 0 is a factor of the closed form, so that the gradient is exactly 0."""
    f = torch.cat([normal(4, 5), torch.zeros(5)])
    l = torch.cat([torch.zeros(5), normal(5, 5)])  # noqa: E741
    for found in gradient(squared_cosine, f, l):
        assert found.count_nonzero() == 0


def test_the_squared_cosine_of_nothing_is_zero_and_pulls_nowhere() -> None:
    zero, one = torch.zeros(3).double(), torch.ones(3).double()
    assert squared_cosine(zero, one).item() == 0
    for found in gradient(squared_cosine, zero, one):
        assert found.tolist() == [0, 0, 0]
