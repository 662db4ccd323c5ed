"""Data sets that need no files: the bundled one and the drawn one."""

from pathlib import Path

import numpy as np
import pytest

from isthmus.data.named.digits import Digits
from isthmus.data.named.synthetic import Synthetic

NOWHERE = Path("nowhere")


def test_digits_are_the_1797_of_the_repository() -> None:
    """Every sixth image from the first on: ceil(1797 / 6) = 300 for the server, 1497 for clients.

    The file begins 0 1 2 3 4 5 6 7 8 9 0 1 2, so that the server has 0, 6 and 2 first. The counts
    per class are those of the 1998 donation's test set.
    """
    x, y, test_x, test_y, classes, scale, *_ = Digits().load(NOWHERE, seed=0)
    assert (x.shape, test_x.shape) == ((1497, 1, 8, 8), (300, 1, 8, 8))
    assert (len(y), len(test_y), classes) == (1497, 300, 10)
    assert (y[:6].tolist(), test_y[:3].tolist()) == ([1, 2, 3, 4, 5, 7], [0, 6, 2])
    counts = np.bincount(np.concatenate([y, test_y]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.issubdtype(x.dtype, np.integer)
    assert (int(x.min()), int(x.max()), scale) == (0, 16, 16.0)


def test_digits_do_not_depend_on_the_seed() -> None:
    first, second = Digits().load(NOWHERE, seed=0), Digits().load(NOWHERE, seed=1)
    assert np.array_equal(first.x, second.x)
    assert np.array_equal(first.test_y, second.test_y)


def test_a_synthetic_set_has_the_size_asked_for() -> None:
    """A fifth as many for the server: 103 // 5 = 20."""
    x, y, test_x, test_y, classes, *_ = Synthetic(samples=103, features=4, classes=3).load(
        NOWHERE, 5
    )
    assert (x.shape, y.shape, test_x.shape, test_y.shape) == ((103, 4), (103,), (20, 4), (20,))
    assert x.dtype == np.float32
    assert y.dtype == np.int64
    assert classes == 3
    assert set(y) == set(test_y) == {0, 1, 2}


def test_a_seed_decides_the_synthetic_set() -> None:
    one, same, other = (Synthetic().load(NOWHERE, seed) for seed in (5, 5, 6))
    assert np.array_equal(one.x, same.x)
    assert not np.array_equal(one.x, other.x)


def test_a_class_is_one_cloud_of_the_asked_for_spread() -> None:
    """The deviation of some 400 x 50 normal numbers is off by 1 / sqrt(2 * 20,000) = 0.5 %; six
    times that is 3 %. Centres are 10 or so apart in 50 dimensions, clouds of 0.01 are not."""
    x, y, test_x, test_y, *_ = Synthetic(samples=2000, features=50, classes=5, spread=0.01).load(
        NOWHERE, seed=1
    )
    for label in range(5):
        centre = x[y == label].mean(0)
        assert (x[y == label] - centre).std() == pytest.approx(0.01, rel=0.03)
        assert np.linalg.norm(test_x[test_y == label] - centre, axis=1).max() < 0.2
        assert np.linalg.norm(x[y != label] - centre, axis=1).min() > 2
