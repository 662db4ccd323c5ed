"""What a run's values come to: their spread over clients, and the cost of reaching a target.

Only evaluated rounds count, so nothing is known more finely than the interval between them.
"""

from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


def mean(values: ArrayLike) -> float:
    """Return the mean over clients, each counted once whatever its size.

    >>> mean([0.5, 1.0])
    0.75
    """
    return float(np.mean(np.asarray(values, dtype=np.float64)))


def deviation(values: ArrayLike) -> float:
    """Return the population standard deviation over clients.

    The clients are the whole population, not a sample of one: the sum is divided by N.

    >>> deviation([0.5, 1.0])
    0.25
    """
    return float(np.std(np.asarray(values, dtype=np.float64)))


def worst(values: ArrayLike, share: float = 0.05) -> float:
    """Return the mean over the ceil(share * N) clients with the lowest values.

    >>> worst([0.9, 0.25, 0.5, 0.75], share=0.5)
    0.375
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    # 0.1 * 30 is 3.0000000000000004 in binary; the client that would add is not meant.
    lowest = ceil(round(share * len(ordered), 9))
    return float(ordered[: max(lowest, 1)].mean())


def count_harmed(values: ArrayLike, reference: ArrayLike) -> int:
    """Count the clients whose value is strictly below their value in the reference.

    >>> count_harmed([0.5, 0.6, 0.7], reference=[0.5, 0.7, 0.6])
    1
    """
    return int(np.sum(np.asarray(values) < np.asarray(reference)))


def gini(values: ArrayLike) -> float:
    """Return the Gini coefficient: the mean difference of two values over twice their mean.

    Over all N^2 ordered pairs, so that N equal values have 0 and one owner of all has 1 - 1 / N.

    >>> gini([1, 1, 1]), gini([0, 0, 0, 8])
    (0.0, 0.75)
    """
    numbers = np.asarray(values, dtype=np.float64)
    total = numbers.sum()
    return float(differences(numbers) / (len(numbers) * total)) if total else 0.0


def differences(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum |a - b| over all unordered pairs of the first axis.

    Sorted, the i-th of N numbers is added i times and taken away N - 1 - i times.

    >>> float(differences(np.array([1.0, 4.0, 2.0])))
    6.0
    """
    n = len(values)
    return np.tensordot(2 * np.arange(n) - (n - 1.0), np.sort(values, axis=0), axes=1)


class Spent(NamedTuple):
    """What had been spent when a target was reached."""

    rounds: int
    seconds: float
    nbytes: int


def rounds_to(target: float, rounds: ArrayLike, values: ArrayLike) -> int | None:
    """Return the first evaluated round whose value is at least the target, None if none is.

    >>> rounds_to(0.8, [10, 20, 30, 40], [0.5, 0.8, 0.7, 0.9])
    20
    >>> rounds_to(0.95, [10, 20, 30, 40], [0.5, 0.8, 0.7, 0.9])
    """
    # Records have eight digits, and a mean of them that should be 0.9 may lie 1e-16 below it.
    reached = np.asarray(values, dtype=np.float64).round(9) >= round(target, 9)
    return int(np.asarray(rounds)[reached.argmax()]) if reached.any() else None


def improvement(baseline: int | None, method: int | None) -> float | None:
    """Return how many times fewer rounds a method takes than the baseline, None if one never does.

    >>> improvement(40, 10), improvement(40, None)
    (4.0, None)
    """
    return None if baseline is None or method is None else baseline / method


def add_up(last: int, rounds: ArrayLike, seconds: ArrayLike, nbytes: ArrayLike) -> Spent:
    """Add up what each round took, up to and with the last one of interest.

    >>> add_up(2, rounds=[1, 2, 3], seconds=[1.5, 1.5, 1.5], nbytes=[100, 50, 50])
    Spent(rounds=2, seconds=3.0, nbytes=150)
    """
    counted = np.asarray(rounds) <= last
    return Spent(
        last, float(np.asarray(seconds)[counted].sum()), int(np.asarray(nbytes)[counted].sum())
    )
