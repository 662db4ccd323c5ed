"""What it costs to reach an accuracy: rounds, seconds and bytes up to the evaluation that shows it.

Only evaluated rounds count, so nothing is known more finely than the interval between them.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Spent(NamedTuple):
    """What had been spent when a target was reached."""

    rounds: int
    seconds: float
    nbytes: int


def rounds_to(target: float, rounds: ArrayLike, values: ArrayLike) -> int | None:
    """Returns the first evaluated round whose value is at least the target, None if none is.

    >>> rounds_to(0.8, [10, 20, 30, 40], [0.5, 0.8, 0.7, 0.9])
    20
    >>> rounds_to(0.95, [10, 20, 30, 40], [0.5, 0.8, 0.7, 0.9])
    """
    # Records have eight digits, and a mean of them that should be 0.9 may lie 1e-16 below it.
    reached = np.asarray(values, dtype=np.float64).round(9) >= round(target, 9)
    return int(np.asarray(rounds)[reached.argmax()]) if reached.any() else None


def improvement(baseline: int | None, method: int | None) -> float | None:
    """Returns how many times fewer rounds a method takes than the baseline, None if one never does.

    >>> improvement(40, 10), improvement(40, None)
    (4.0, None)
    """
    return None if baseline is None or method is None else baseline / method


def add_up(last: int, rounds: ArrayLike, seconds: ArrayLike, nbytes: ArrayLike) -> Spent:
    """Adds up what each round took, up to and with the last one of interest.

    >>> add_up(2, rounds=[1, 2, 3], seconds=[1.5, 1.5, 1.5], nbytes=[100, 50, 50])
    Spent(rounds=2, seconds=3.0, nbytes=150)
    """
    counted = np.asarray(rounds) <= last
    return Spent(
        last, float(np.asarray(seconds)[counted].sum()), int(np.asarray(nbytes)[counted].sum())
    )
