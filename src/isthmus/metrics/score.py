"""What a model's logits are worth, as sums over examples: sums add, so they combine anywhere."""

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import log_softmax, pad

from isthmus import tree
from isthmus.metrics.metric import BINS, METRICS, Predictions

OF_EXAMPLES = {name: metric.of_examples for name, metric in METRICS.items() if metric.of_examples}
OF_CLASSES = {name: metric.of_classes for name, metric in METRICS.items() if metric.of_classes}
MEANS = (*OF_EXAMPLES, *OF_CLASSES)
OF_BINS = {name: metric.of_bins for name, metric in METRICS.items() if metric.of_bins}
OF_BATCHES = {name: metric.of_batches for name, metric in METRICS.items() if metric.of_batches}


class Batches(NamedTuple):
    """Sums over the mini-batches of a split, for calibration as the released SuPerFed has it."""

    n: Tensor  # mini-batches
    errors: tuple[Tensor, ...]  # the sum of each of OF_BATCHES


class Tally(NamedTuple):
    """Sums over the examples of one split, for one model; any leading axes.

    The sum of a metric is also an attribute: `tally.loss`.
    """

    n: Tensor
    sums: tuple[Tensor, ...]  # of each of MEANS
    bin_n: Tensor  # [BINS]: examples whose confidence falls into the bin
    bin_top1: Tensor  # [BINS]: of these, the ones classified rightly
    bin_confidence: Tensor  # [BINS]: sum of their confidences
    batches: Batches | tuple[()] = ()  # empty where calibration is that of the whole split

    def __getattr__(self, metric: str) -> Tensor:
        if metric not in MEANS:
            raise AttributeError(f"a tally has no sum {metric!r}; it has {', '.join(MEANS)}")
        return self.sums[MEANS.index(metric)]


def _fields(*names: str) -> Any:
    return namedtuple("_fields", names)


class Figures(_fields("n", *METRICS)):  # type: ignore[misc]  # its fields come from a table
    """What is reported of a tally: n, and every metric by its name; numbers or arrays."""

    __slots__ = ()


class Bins(NamedTuple):
    """Sums over the examples whose confidence falls into each bin, [BINS]."""

    n: NDArray[np.int64]
    top1: NDArray[np.float64]
    confidence: NDArray[np.float64]


class Pooled(NamedTuple):
    """All clients' examples of one split together, each counted once."""

    figures: Figures  # numbers
    bins: Bins


def tally(
    logits: Tensor,
    y: Tensor,
    weight: Tensor | None = None,
    batch: int | None = None,
    among: Tensor | None = None,
) -> Tally:
    """Sum up logits [n, C], or those of several models [L, n, C], against labels [n].

    `weight` is 1 for real examples and 0 for padding. Of equal logits the first counts as the
    larger, as in argmax. Where a `batch` size is given, mini-batches are also calibrated one by
    one, in the order of the rows; padding comes last. Where these examples are but some of a split,
    `among` are all labels of it: what classes count there does not follow from some.
    """
    if logits.dim() == 2:  # as one of several, so that it sums up to the same bits
        return tree.row(tally(logits[None], y, weight, batch, among), 0)
    real = torch.ones_like(y, dtype=torch.float64) if weight is None else weight.double()
    # Examples along the last axis, [L, C, n], which is faster by far, as there are many of them;
    # in double precision, so that it does not matter at which place of a vector one comes.
    logits = logits.transpose(1, 2).to(torch.float64, memory_format=torch.contiguous_format)
    label = y.expand(len(logits), 1, len(y))
    true = logits.gather(1, label)
    classes = torch.arange(logits.shape[1], device=logits.device)[:, None]
    after = classes >= y
    # The classes not behind the true one: put like this, a logit that is no number is never right.
    rank = (~((logits < true) | ((logits == true) & after))).sum(1)
    log_p = log_softmax(logits, dim=1)
    given = Predictions(log_p, label, classes == y, rank)
    each = {name: compute(given) for name, compute in OF_EXAMPLES.items()}
    confidence = log_p.amax(1).exp()
    # (lower, upper]; the first bin also takes 0, which softmax gives only by underflow
    upper = torch.linspace(0, 1, BINS + 1, dtype=torch.float64, device=logits.device)[1:]
    above = (confidence[:, None] > upper[:-1, None]).sum(1)
    bins = torch.arange(BINS, device=logits.device)[:, None]
    member = (above[:, None] == bins) * real  # [L, BINS, n]
    hit = each["top1"]
    sums = torch.stack([*each.values()], 1) @ real
    alike = real * share_classes(given.is_label, real if among is None else classes == among)
    by_class = torch.stack([compute(given) for compute in OF_CLASSES.values()], 1) @ alike
    binned = member @ torch.stack([torch.ones_like(hit), hit, confidence], 2)
    return Tally(
        n=real.sum().expand(len(logits)),
        sums=(*sums.unbind(1), *by_class.unbind(1)),
        bin_n=binned[..., 0],
        bin_top1=binned[..., 1],
        bin_confidence=binned[..., 2],
        batches=() if batch is None else _one_by_one(member, hit, confidence, batch),
    )


def share_classes(is_label: Tensor, counted: Tensor) -> Tensor:
    """Return the weights of examples [n] with which classes count alike; 1 on average.

    `counted` is which examples [n] count, or which class [C, m] each of a whole split has.
    """
    of_class = (is_label * counted if counted.dim() == 1 else counted).sum(1).double()
    share = of_class.sum() / ((of_class > 0).sum() * of_class.clamp(min=1))
    return (is_label * share[:, None]).sum(0)


def _one_by_one(member: Tensor, hit: Tensor, confidence: Tensor, size: int) -> Batches:
    def sums(values: Tensor) -> Tensor:  # [L, BINS, n] to [L, BINS, batches]
        filled = pad(values, (0, -values.shape[2] % size))
        return filled.view(len(values), BINS, -1, size).sum(3)

    n = sums(member)
    gap = sums(member * (hit - confidence)[:, None]).abs()  # times n
    return Batches(
        n=(n.sum(1) > 0).sum(1).double(),
        errors=tuple(compute(n, gap).sum(1) for compute in OF_BATCHES.values()),
    )


def figures(sums: Tally) -> Figures:
    """Divide a tally's sums by its counts.

    >>> f = figures(tally(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0])))
    >>> float(f.top1), round(float(f.loss), 4)
    (0.5, 1.1269)
    """
    n, batches = sums.n.numpy(), sums.batches
    means = {name: total.numpy() / n for name, total in zip(MEANS, sums.sums, strict=True)}
    if batches:
        pairs = zip(OF_BATCHES, batches.errors, strict=True)
        errors = {name: (error / batches.n).numpy() for name, error in pairs}
    else:
        bins = (sums.bin_n.numpy(), sums.bin_top1.numpy(), sums.bin_confidence.numpy())
        errors = {name: compute(*bins) for name, compute in OF_BINS.items()}
    return Figures(n=np.asarray(n).astype(np.int64), **means, **errors)


def pool(sums: Tally) -> Pooled:
    """Return the figures of sums over all clients; their calibration is that of all examples."""
    bins = Bins(
        sums.bin_n.numpy().astype(np.int64), sums.bin_top1.numpy(), sums.bin_confidence.numpy()
    )
    return Pooled(figures(sums._replace(batches=())), bins)
