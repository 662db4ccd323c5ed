"""Quadratic programs on the simplex, against hand-worked numbers and a generic solver."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from isthmus.formulas.quadratic import least_on_simplex
from isthmus.formulas.vector import onto_simplex


def matrices(count: int, size: int, seed: int) -> Tensor:
    """Random positive semidefinite matrices, as FedPAC makes them: a diagonal, and low rank."""
    generator = torch.Generator().manual_seed(seed)
    low = torch.randn(count, size, 3, generator=generator, dtype=torch.float64)
    diagonal = torch.rand(count, size, generator=generator, dtype=torch.float64)
    return low @ low.mT + torch.diag_embed(diagonal)


def test_projections_worked_by_hand() -> None:
    """Shares stay; (2, 1) - 1 = (1, 0); (1, 1, 0) loses 1/3, and -1/3 is cut off: then 1/2 each."""
    rows = torch.tensor([[0.2, 0.5, 0.3], [1.0, 1.0, 0.0], [3.0, 1.0, 0.0]], dtype=torch.float64)
    expected = [[0.2, 0.5, 0.3], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
    assert onto_simplex(rows).numpy() == pytest.approx(np.array(expected), abs=1e-15)


def test_a_projection_is_nearer_than_any_other_point() -> None:
    """For shares b and the projection a of x: (x - a)'(b - a) <= 0, up to rounding."""
    generator = torch.Generator().manual_seed(1)
    x = 3 * torch.randn(200, 6, generator=generator, dtype=torch.float64)
    a = onto_simplex(x)
    b = torch.rand(200, 6, generator=generator, dtype=torch.float64)
    b = b / b.sum(1, keepdim=True)
    assert a.min() >= 0
    assert (a.sum(1) - 1).abs().max() < 1e-12
    assert ((x - a) * (b - a)).sum(1).max() < 1e-12
    assert torch.allclose(onto_simplex(a), a, atol=1e-15)


def test_independent_clients_are_weighted_by_the_inverse_of_their_variances() -> None:
    """a' diag(1, 2, 4) a is least where 2 a_j v_j is one number: a ~ (1, 1/2, 1/4) / (7/4)."""
    a, found = least_on_simplex(torch.diag(torch.tensor([1.0, 2.0, 4.0])))
    assert found
    assert a.tolist() == pytest.approx([4 / 7, 2 / 7, 1 / 7], abs=1e-6)


@pytest.mark.parametrize("size", [2, 5, 20])
def test_it_agrees_with_a_generic_solver(size: int) -> None:
    """SLSQP of scipy stops at a relative 1e-9 or so; ours is certified to 1e-12 and no worse."""
    problems = matrices(5, size, seed=size)
    a, found = least_on_simplex(problems)
    assert found.all()
    for matrix, ours in zip(problems.numpy(), a.numpy(), strict=True):
        other = minimize(
            lambda a, matrix=matrix: a @ matrix @ a,
            np.full(size, 1 / size),
            jac=lambda a, matrix=matrix: 2 * matrix @ a,
            bounds=[(0, 1)] * size,
            constraints={"type": "eq", "fun": lambda a: a.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 500},
        )
        assert other.success
        assert ours @ matrix @ ours <= other.fun + 1e-9
        assert ours == pytest.approx(other.x, abs=1e-3)
        assert ours.sum() == pytest.approx(1, abs=1e-12)


def test_scale_does_not_matter() -> None:
    problem = matrices(1, 6, seed=0)[0]
    first, second = least_on_simplex(problem)[0], least_on_simplex(1e-9 * problem)[0]
    assert torch.allclose(first, second, atol=1e-6)


def test_what_is_not_found_is_said() -> None:
    """With nothing to choose by, any shares do; in too little time, none are found."""
    assert least_on_simplex(torch.zeros(3, 3))[1]
    assert least_on_simplex(torch.tensor([[7.0]]))[0].tolist() == [1.0]
    both = torch.stack([matrices(1, 6, seed=3)[0], torch.zeros(6, 6, dtype=torch.float64)])
    assert least_on_simplex(both, limit=2)[1].tolist() == [False, True]
