"""Calibration from the sums in 15 equal bins of confidence, each open below and closed above."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 15


def gaps(n: Any, top1: Any, confidence: Any) -> NDArray[np.float64]:
    """Gives |accuracy - confidence| of each bin [..., BINS], 0 where a bin is empty."""
    n = np.asarray(n, dtype=np.float64)
    gap: NDArray[np.float64] = np.abs(np.asarray(top1) - np.asarray(confidence)) / np.maximum(n, 1)
    return gap


def ece(n: Any, top1: Any, confidence: Any) -> NDArray[np.float64]:
    """Expected calibration error: the gaps, weighted by the bins' shares of the examples.

    Two examples of confidence 0.9, one right, and two of confidence 0.6, both right:
    2/4 * |0.5 - 0.9| + 2/4 * |1 - 0.6| = 0.4.

    >>> n, hits, sums = np.zeros((3, BINS))
    >>> n[[13, 8]], hits[[13, 8]], sums[[13, 8]] = [2, 2], [1, 2], [1.8, 1.2]
    >>> round(float(ece(n, hits, sums)), 12)
    0.4
    """
    total = np.maximum(np.sum(n, axis=-1, keepdims=True), 1)
    result: NDArray[np.float64] = np.sum(gaps(n, top1, confidence) * np.asarray(n) / total, axis=-1)
    return result


def mce(n: Any, top1: Any, confidence: Any) -> NDArray[np.float64]:
    """Maximum calibration error: the largest gap of a bin that holds an example; 1 if none does."""
    largest = np.max(gaps(n, top1, confidence), axis=-1)
    return np.where(np.sum(n, axis=-1) > 0, largest, 1.0)


def ece_of_batches(n: Any, gap: Any) -> Any:
    """Expected calibration error of each mini-batch, from tensors [L, BINS, batches]."""
    return gap.sum(1) / n.sum(1).clamp(min=1)


def mce_of_batches(n: Any, gap: Any) -> Any:
    """Maximum calibration error of each mini-batch, from tensors [L, BINS, batches]."""
    return (gap / n.clamp(min=1)).amax(1)
