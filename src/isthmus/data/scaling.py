"""Scales of inputs that are learned from what clients train on: from all of them, or from each.

What all clients have together is found from sums that each of them computes, in two steps (the mean
first, then squares around it), so that clients who show nobody their data can find it too, to the
same bits.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.sources.arrays import Column

Numbers = NDArray[np.float64]


class Scales(NamedTuple):
    """What is subtracted from each input, and what it is divided by then."""

    mean: Numbers
    std: Numbers

    def apply(self, x: Numbers) -> Numbers:
        """Scales inputs."""
        scaled: Numbers = (x - self.mean) / self.std
        return scaled


class InputSums(NamedTuple):
    """The sum of each input over some examples."""

    n: int
    total: Numbers


def sum_inputs(x: Numbers) -> InputSums:
    """Sums up inputs."""
    return InputSums(len(x), x.sum(axis=0))


def sum_squares(x: Numbers, mean: Numbers) -> InputSums:
    """Sums up the squares of what is left of inputs without a mean."""
    return InputSums(len(x), np.square(x - mean).sum(axis=0))


def divide_sums(parts: Sequence[InputSums]) -> Numbers:
    """Gives the mean over all parts, exactly rounded, in whatever order they come.

    >>> divide_sums([InputSums(1, np.array([1e16])), InputSums(2, np.array([1.0]))]).tolist()
    [3333333333333333.5]
    """
    n = sum(part.n for part in parts)
    columns = zip(*(part.total.tolist() for part in parts), strict=True)
    return np.array([math.fsum(column) / n for column in columns])


def complete_scales(columns: Sequence[Column], mean: Numbers, variance: Numbers) -> Scales:
    """Makes scales of means and variances; words, and numbers that are all alike, stay."""
    numbers = np.array([column.category is None for column in columns] or [True])
    std = np.sqrt(variance)
    return Scales(np.where(numbers, mean, 0.0), np.where(numbers & (std > 0), std, 1.0))


def find_scales(columns: Sequence[Column], shares: Sequence[Numbers]) -> Scales:
    """Finds the scales of all that some clients train on."""
    mean = divide_sums([sum_inputs(x) for x in shares])
    return complete_scales(columns, mean, divide_sums([sum_squares(x, mean) for x in shares]))
