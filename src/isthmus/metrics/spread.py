"""How a number is spread over the clients: its mean, its deviation, its worst clients, its Gini."""

from math import ceil

import numpy as np
from numpy.typing import ArrayLike, NDArray


def mean(values: ArrayLike) -> float:
    """Returns the mean over clients, each counted once whatever its size.

    >>> mean([0.5, 1.0])
    0.75
    """
    return float(np.mean(np.asarray(values, dtype=np.float64)))


def deviation(values: ArrayLike) -> float:
    """Returns the population standard deviation over clients.

    The clients are the whole population, not a sample of one: the sum is divided by N.

    >>> deviation([0.5, 1.0])
    0.25
    """
    return float(np.std(np.asarray(values, dtype=np.float64)))


def worst(values: ArrayLike, share: float = 0.05) -> float:
    """Returns the mean over the ceil(share * N) clients with the lowest values.

    >>> worst([0.9, 0.25, 0.5, 0.75], share=0.5)
    0.375
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    # 0.1 * 30 is 3.0000000000000004 in binary; the client that would add is not meant.
    lowest = ceil(round(share * len(ordered), 9))
    return float(ordered[: max(lowest, 1)].mean())


def count_harmed(values: ArrayLike, reference: ArrayLike) -> int:
    """Counts the clients whose value is strictly below their value in the reference.

    >>> count_harmed([0.5, 0.6, 0.7], reference=[0.5, 0.7, 0.6])
    1
    """
    return int(np.sum(np.asarray(values) < np.asarray(reference)))


def gini(values: ArrayLike) -> float:
    """Returns the Gini coefficient: the mean difference of two values over twice their mean.

    Over all N^2 ordered pairs, so that N equal values have 0 and one owner of all has 1 - 1 / N.

    >>> gini([1, 1, 1]), gini([0, 0, 0, 8])
    (0.0, 0.75)
    """
    numbers = np.asarray(values, dtype=np.float64)
    total = numbers.sum()
    return float(differences(numbers) / (len(numbers) * total)) if total else 0.0


def differences(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums |a - b| over all unordered pairs of the first axis.

    Sorted, the i-th of N numbers is added i times and taken away N - 1 - i times.

    >>> float(differences(np.array([1.0, 4.0, 2.0])))
    6.0
    """
    n = len(values)
    return np.tensordot(2 * np.arange(n) - (n - 1.0), np.sort(values, axis=0), axes=1)
