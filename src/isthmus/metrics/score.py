"""What a model's logits are worth, as sums over examples: sums add, so they combine anywhere."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import log_softmax, pad

from isthmus.metrics.calibration import BINS, ece, mce


class Batches(NamedTuple):
    """Sums over the mini-batches of a split, for calibration as the released SuPerFed has it."""

    n: Tensor  # mini-batches
    ece: Tensor  # the sum of their ECEs
    mce: Tensor


class Tally(NamedTuple):
    """Sums over the examples of one split, for one model; any leading axes."""

    n: Tensor
    top1: Tensor
    top5: Tensor
    loss: Tensor
    brier: Tensor
    bin_n: Tensor  # [BINS]: examples whose confidence falls into the bin
    bin_top1: Tensor  # [BINS]: of these, the ones classified rightly
    bin_confidence: Tensor  # [BINS]: sum of their confidences
    batches: Batches | tuple[()] = ()  # empty where calibration is that of the whole split


class Figures(NamedTuple):
    """What is reported of a tally."""

    n: NDArray[np.int64]
    top1: NDArray[np.float64]
    top5: NDArray[np.float64]
    loss: NDArray[np.float64]
    brier: NDArray[np.float64]
    ece: NDArray[np.float64]
    mce: NDArray[np.float64]


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
    logits: Tensor, y: Tensor, weight: Tensor | None = None, batch: int | None = None
) -> Tally:
    """Sums up logits [n, C], or those of several models [L, n, C], against labels [n].

    `weight` is 1 for real examples and 0 for padding. Of equal logits the first counts as the
    larger, as in argmax. Where a `batch` size is given, mini-batches are also calibrated one by
    one, in the order of the rows; padding comes last.
    """
    if logits.dim() == 2:  # as one of several, so that it sums up to the same bits
        return Tally(*(_first(sums) for sums in tally(logits[None], y, weight, batch)))
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
    squares = (log_p.exp() - (classes == y).double()).square().sum(1)
    confidence = log_p.amax(1).exp()
    # (lower, upper]; the first bin also takes 0, which softmax gives only by underflow
    upper = torch.linspace(0, 1, BINS + 1, dtype=torch.float64, device=logits.device)[1:]
    above = (confidence[:, None] > upper[:-1, None]).sum(1)
    bins = torch.arange(BINS, device=logits.device)[:, None]
    member = (above[:, None] == bins) * real  # [L, BINS, n]
    hit, loss = (rank < 1).double(), -log_p.gather(1, label)[:, 0]
    sums = torch.stack([hit, (rank < 5).double(), loss, squares], 1) @ real
    binned = member @ torch.stack([torch.ones_like(hit), hit, confidence], 2)
    return Tally(
        n=real.sum().expand(len(logits)),
        top1=sums[:, 0],
        top5=sums[:, 1],
        loss=sums[:, 2],
        brier=sums[:, 3],
        bin_n=binned[..., 0],
        bin_top1=binned[..., 1],
        bin_confidence=binned[..., 2],
        batches=() if batch is None else _one_by_one(member, hit, confidence, batch),
    )


def _first(sums: Tensor | Batches | tuple[()]) -> Any:
    if isinstance(sums, Tensor):
        return sums[0]
    return Batches(*(part[0] for part in sums)) if sums else ()


def _one_by_one(member: Tensor, hit: Tensor, confidence: Tensor, size: int) -> Batches:
    def sums(values: Tensor) -> Tensor:  # [L, BINS, n] to [L, BINS, batches]
        filled = pad(values, (0, -values.shape[2] % size))
        return filled.view(len(values), BINS, -1, size).sum(3)

    n = sums(member)
    gap = sums(member * (hit - confidence)[:, None]).abs()  # times n
    total = n.sum(1)
    return Batches(
        n=(total > 0).sum(1).double(),
        ece=(gap.sum(1) / total.clamp(min=1)).sum(1),
        mce=(gap / n.clamp(min=1)).amax(1).sum(1),
    )


def figures(sums: Tally) -> Figures:
    """Divides a tally's sums by its counts.

    >>> f = figures(tally(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0])))
    >>> float(f.top1), round(float(f.loss), 4)
    (0.5, 1.1269)
    """
    n, batches = sums.n.numpy(), sums.batches
    bins = (sums.bin_n.numpy(), sums.bin_top1.numpy(), sums.bin_confidence.numpy())
    return Figures(
        n=np.asarray(n).astype(np.int64),
        top1=sums.top1.numpy() / n,
        top5=sums.top5.numpy() / n,
        loss=sums.loss.numpy() / n,
        brier=sums.brier.numpy() / n,
        ece=(batches.ece / batches.n).numpy() if batches else ece(*bins),
        mce=(batches.mce / batches.n).numpy() if batches else mce(*bins),
    )


def pooled(sums: Tally) -> Pooled:
    """Gives the figures of sums over all clients; their calibration is that of all examples."""
    bins = Bins(
        sums.bin_n.numpy().astype(np.int64), sums.bin_top1.numpy(), sums.bin_confidence.numpy()
    )
    return Pooled(figures(sums._replace(batches=())), bins)
