"""Spread over clients, and the cost of a target, against numbers worked by hand."""

import numpy as np
import pytest

from isthmus.metrics import spread
from isthmus.metrics.spread import Spent, add_up, improvement, rounds_to

EVALUATED = np.arange(10, 101, 10)
SLOW = 1 - np.exp(-EVALUATED / 50)  # 0.181, 0.330, ..., 0.865
FAST = 1 - np.exp(-EVALUATED / 20)  # 0.393, 0.632, ..., 0.993


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


def test_the_baseline_reaches_its_own_end_at_the_end() -> None:
    """The slow curve rises, so its last value is reached by the last round only; 1 - exp(-t / 20)
    reaches 1 - exp(-2) at t = 40."""
    target = SLOW[-1]
    first, second = rounds_to(target, EVALUATED, SLOW), rounds_to(target, EVALUATED, FAST)
    assert (first, second) == (100, 40)
    assert improvement(first, second) == 2.5


def test_only_evaluated_rounds_count() -> None:
    """1 - exp(-t / 20) passes 0.5 at t = 13.9; the next evaluation is after round 20."""
    assert rounds_to(0.5, EVALUATED, FAST) == 20


def test_a_baseline_that_fell_back_reached_its_end_before() -> None:
    """It ends with 0.7, which it had after round 20 already."""
    assert rounds_to(0.7, [10, 20, 30, 40], [0.5, 0.8, 0.9, 0.7]) == 20


@pytest.mark.parametrize(
    ("target", "values"), [(0.999, FAST), (0.5, np.zeros(10)), (0.5, np.full(10, np.nan))]
)
def test_what_is_never_reached_has_no_round(target: float, values: np.ndarray) -> None:
    assert rounds_to(target, EVALUATED, values) is None
    assert improvement(100, None) is None
    assert improvement(None, 100) is None


def test_without_an_evaluation_nothing_is_reached() -> None:
    assert rounds_to(0.0, [], []) is None


def test_a_mean_that_is_the_target_but_for_rounding_reaches_it() -> None:
    """0.7 + 0.1 + 0.1 is 0.8999999999999999 in binary."""
    assert 0.7 + 0.1 + 0.1 < 0.9
    assert rounds_to(0.9, [10], [0.7 + 0.1 + 0.1]) == 10


def test_what_was_spent_includes_the_round_that_reached_it() -> None:
    """Rounds 1 to 3: 1 + 2 + 3 seconds, 100 + 10 + 10 bytes; the fourth is not needed."""
    found = add_up(3, [1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0], [100, 10, 10, 10])
    assert found == Spent(rounds=3, seconds=6.0, nbytes=120)
