"""Spread over clients, against numbers worked by hand."""

import numpy as np
import pytest

from isthmus.metrics import spread


def test_the_mean_counts_each_client_once() -> None:
    """(0.2 + 0.4 + 0.9) / 3 = 0.5."""
    assert spread.mean([0.2, 0.4, 0.9]) == pytest.approx(0.5)


def test_the_deviation_is_that_of_the_population() -> None:
    """Mean 0.5, squares 0.09 + 0.01 + 0.16 = 0.26, over 3: sqrt(0.0866667) = 0.2943920."""
    assert spread.deviation([0.2, 0.4, 0.9]) == pytest.approx(0.2943920, abs=1e-7)


@pytest.mark.parametrize(
    ("clients", "share", "lowest"),
    [(20, 0.05, 1), (21, 0.05, 2), (100, 0.05, 5), (30, 0.1, 3), (3, 0.05, 1)],
)
def test_the_worst_are_rounded_up_to_whole_clients(clients: int, share: float, lowest: int) -> None:
    """Of the values 0, 1, 2, ..., the k lowest have the mean (k - 1) / 2; 0.1 * 30 is 3, not 4."""
    values = np.arange(clients)[::-1]
    assert spread.worst(values, share) == (lowest - 1) / 2


def test_a_client_that_stays_equal_is_not_harmed() -> None:
    """Of (0.5, 0.6, 0.7) against (0.5, 0.7, 0.6) only the second is lower."""
    assert spread.count_harmed([0.5, 0.6, 0.7], [0.5, 0.7, 0.6]) == 1


def test_gini_is_the_mean_difference_over_twice_the_mean() -> None:
    """Of (0.2, 0.4, 0.9): the differences 0.2, 0.7, 0.5 of three pairs, 1.4 in all, count twice
    among nine ordered pairs; 2.8 / 9 over twice the mean, 1: 0.3111111."""
    assert spread.gini([0.9, 0.2, 0.4]) == pytest.approx(0.3111111, abs=1e-7)


def test_gini_of_one_owner_is_all_but_one_part() -> None:
    assert spread.gini([0] * 9 + [5]) == pytest.approx(0.9, abs=1e-12)


def test_gini_of_equals_is_zero_also_of_nothing() -> None:
    assert (spread.gini([0.5] * 4), spread.gini([0.0] * 4)) == (0, 0)
