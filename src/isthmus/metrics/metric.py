"""Every metric, stated once: what it is called, how it prints, how it is computed.

A new metric is one function and one entry of METRICS: tallies and figures, the columns of the
records, tables, trackers, `isthmus show` and the report read what they need from it. No torch is
imported here, since reports do without; a function uses the methods of the tensors it is given.

Sizes: L models, C classes, n examples.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

BINS = 15  # of confidence, equal, each open below and closed above


class Predictions(NamedTuple):
    """What models say of examples, beside the truth; in double precision."""

    log_p: "Tensor"  # [L, C, n], logarithms of the probabilities
    label: "Tensor"  # [L, 1, n], the true class
    is_label: "Tensor"  # [C, n], whether a class is the true one
    rank: "Tensor"  # [L, n], the true class's place: 0 if it is the likeliest


@dataclass(frozen=True)
class Metric:
    """A measure of how good a model is on some examples.

    It is a mean over examples, `of_examples`; or a mean over classes of the mean over the examples
    of each, `of_classes`; or a calibration error: computed `of_bins` of
    confidence, from their sums (n, top-1, confidence), and, with `calibration = "per-batch"`,
    `of_batches`, from n [L, BINS, batches] and the bins' gaps times n. What a function returns
    must be finite for any logits: examples that only fill a batch up are multiplied by 0. Ratios of
    sums, such as F1 or precision, are none of these forms.
    """

    name: str  # of its column and of its attribute of Figures
    label: str  # in tables, where space is short
    title: str  # in full
    meaning: str  # what docs/records.md says of its column
    range: str  # its unit, or the values it takes
    factor: float = 1  # by which it is multiplied to be printed: 100 gives a percentage
    format: str = ".3f"  # of what is printed
    larger_is_better: bool = False
    in_tables: bool = True  # tables and `isthmus show` have it, not only the records
    of_examples: Callable[[Predictions], "Tensor"] | None = None  # [L, n]
    of_classes: Callable[[Predictions], "Tensor"] | None = None  # [L, n]
    of_bins: Callable[[Any, Any, Any], Any] | None = None
    of_batches: Callable[[Any, Any], Any] | None = None  # [L, batches]

    @property
    def is_calibration(self) -> bool:
        """Whether it is a calibration error, which `calibration = "per-batch"` changes."""
        return self.of_bins is not None

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest value that it can take."""
        _, to, most = self.range.partition(" to ")
        return 0.0, float(most) if to else inf

    @property
    def heading(self) -> str:
        """The label with the sign of percentages: "ECE %", "loss"."""
        return f"{self.label} %" if self.factor == 100 else self.label

    def column(self, per_batch: bool) -> str:
        """Name its column; means over mini-batches are not taken for those of whole splits."""
        return f"{self.name}_per_batch" if per_batch and self.is_calibration else self.name

    def text(self, value: float) -> str:
        """Print a value, a percentage without its sign.

        >>> METRICS["top1"].text(0.98765), METRICS["loss"].text(0.98765)
        ('98.77', '0.988')
        """
        return f"{self.factor * value:{self.format}}"


def top1(given: Predictions) -> "Tensor":
    """Is 1 where the true class is the likeliest."""
    return (given.rank < 1).double()


def top5(given: Predictions) -> "Tensor":
    """Is 1 where the true class is among the five likeliest."""
    return (given.rank < 5).double()


def loss(given: Predictions) -> "Tensor":
    """Cross-entropy: minus the logarithm of the true class's probability."""
    return -given.log_p.gather(1, given.label)[:, 0]


def brier(given: Predictions) -> "Tensor":
    """Sum, over classes, the squared difference of the probability and 1 or 0."""
    return (given.log_p.exp() - given.is_label.double()).square().sum(1)


def gaps(n: Any, top1: Any, confidence: Any) -> NDArray[np.float64]:
    """Return |accuracy - confidence| of each bin [..., BINS], 0 where a bin is empty."""
    n = np.asarray(n, dtype=np.float64)
    gap: NDArray[np.float64] = np.abs(np.asarray(top1) - np.asarray(confidence)) / np.maximum(n, 1)
    return gap


def ece(n: Any, top1: Any, confidence: Any) -> NDArray[np.float64]:
    """Return the expected calibration error: the gaps, weighted by bins' shares of examples.

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
    """Return the expected calibration error of each mini-batch, from tensors [L, BINS, batches]."""
    return gap.sum(1) / n.sum(1).clamp(min=1)


def mce_of_batches(n: Any, gap: Any) -> Any:
    """Maximum calibration error of each mini-batch, from tensors [L, BINS, batches]."""
    return (gap / n.clamp(min=1)).amax(1)


_ALL = (
    Metric(
        name="top1",
        label="top-1",
        title="top-1 accuracy",
        meaning="share of examples with the true class first",
        range="0 to 1",
        factor=100,
        format=".2f",
        larger_is_better=True,
        of_examples=top1,
    ),
    Metric(
        name="top5",
        label="top-5",
        title="top-5 accuracy",
        meaning="share of examples with the true class among the first five",
        range="0 to 1",
        factor=100,
        format=".2f",
        larger_is_better=True,
        in_tables=False,
        of_examples=top5,
    ),
    Metric(
        name="loss",
        label="loss",
        title="cross-entropy loss",
        meaning="mean cross-entropy",
        range="nats",
        of_examples=loss,
    ),
    Metric(
        name="brier",
        label="Brier",
        title="Brier score",
        meaning="Brier score",
        range="0 to 2",
        of_examples=brier,
    ),
    Metric(
        name="ece",
        label="ECE",
        title="expected calibration error",
        meaning="expected calibration error",
        range="0 to 1",
        factor=100,
        format=".2f",
        of_bins=ece,
        of_batches=ece_of_batches,
    ),
    Metric(
        name="mce",
        label="MCE",
        title="maximum calibration error",
        meaning="maximum calibration error",
        range="0 to 1",
        factor=100,
        format=".2f",
        of_bins=mce,
        of_batches=mce_of_batches,
    ),
    Metric(
        name="balanced",
        label="balanced",
        title="balanced accuracy",
        meaning="top-1 of each class that occurs, and the mean of these",
        range="0 to 1",
        factor=100,
        format=".2f",
        larger_is_better=True,
        in_tables=False,
        of_classes=top1,
    ),
)
METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _ALL})
