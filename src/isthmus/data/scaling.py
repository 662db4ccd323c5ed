"""Scales of inputs that are learned from what clients train on: from all of them, or from each.

What all clients have together is found from sums that each of them computes, in two steps (the mean
first, then squares around it), so that clients that keep their data to themselves can find it too,
to the same bits.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import MEDIAN, Column

Numbers = NDArray[np.float64]


class Scales(NamedTuple):
    """What is subtracted from each input, what divides it then, and what fills missing values."""

    mean: Numbers
    std: Numbers
    fill: Numbers  # before it is scaled

    def apply(self, x: Numbers) -> Numbers:
        """Fill missing values, and scale inputs."""
        missing = np.isnan(x)
        x = np.where(missing, self.fill, x) if missing.any() else x
        scaled: Numbers = (x - self.mean) / self.std
        return scaled


class InputSums(NamedTuple):
    """The sum of each input over the examples that have it, and how many these are."""

    n: NDArray[np.int64]
    total: Numbers


def sum_inputs(x: Numbers) -> InputSums:
    """Sum inputs."""
    return InputSums((~np.isnan(x)).sum(axis=0), _zero_missing(x).sum(axis=0))


def sum_squares(x: Numbers, mean: Numbers) -> InputSums:
    """Sum the squares of what is left of inputs without a mean."""
    apart = _zero_missing(x - mean)
    return InputSums((~np.isnan(x)).sum(axis=0), np.square(apart).sum(axis=0))


def divide_sums(parts: Sequence[InputSums]) -> Numbers:
    """Return the mean over all parts, exactly rounded, in whatever order they come; 0 of nothing.

    >>> one, two = InputSums(np.array([1]), np.array([1e16])), InputSums(np.array([2]), np.ones(1))
    >>> divide_sums([one, two]).tolist()
    [3333333333333333.5]
    """
    counts = sum(part.n for part in parts)
    columns = zip(*(part.total.tolist() for part in parts), strict=True)
    pairs = zip(columns, np.asarray(counts).tolist(), strict=True)
    return np.array([math.fsum(column) / n if n else 0.0 for column, n in pairs])


def complete_scales(columns: Sequence[Column], mean: Numbers, variance: Numbers) -> Scales:
    """Return the scales of means and variances; words, and numbers that are all alike, stay."""
    scaled = np.array([c.category is None and c.scaled for c in columns] or [True])
    std = np.sqrt(variance)
    return Scales(np.where(scaled, mean, 0.0), np.where(scaled & (std > 0), std, 1.0), mean)


def find_scales(columns: Sequence[Column], shares: Sequence[Numbers]) -> Scales:
    """Find the scales of all that some clients train on."""
    mean = divide_sums([sum_inputs(x) for x in shares])
    squares = divide_sums([sum_squares(x, mean) for x in shares])
    scales = complete_scales(columns, mean, squares)
    fill = scales.fill.copy()
    for place, column in enumerate(columns):
        if column.missing == MEDIAN:
            cells = np.concatenate([x[:, place] for x in shares])
            cells = cells[~np.isnan(cells)]
            fill[place] = np.median(cells) if len(cells) else 0.0
    return scales._replace(fill=fill)


def _zero_missing(x: Numbers) -> Numbers:
    missing = np.isnan(x)
    return np.where(missing, 0.0, x) if missing.any() else x
