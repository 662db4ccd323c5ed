"""What a model's logits are worth, as sums over examples: sums add, so they combine anywhere."""

from typing import NamedTuple

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
    """Sums up logits [n, C] against labels [n]; `weight` is 1 for real examples and 0 for padding.

    Of equal logits the first counts as the larger, as in argmax. Where a `batch` size is given,
    mini-batches are also calibrated one by one, in the order of the rows; padding comes last.
    """
    real = torch.ones_like(y, dtype=torch.float64) if weight is None else weight.double()
    true = logits.gather(1, y[:, None])
    classes = torch.arange(logits.shape[1])
    after = classes >= y[:, None]
    # The classes not behind the true one: put like this, a logit that is no number is never right.
    rank = (~((logits < true) | ((logits == true) & after))).sum(1)
    log_p = log_softmax(logits, dim=1)
    squares = (log_p.exp() - (classes == y[:, None]).to(log_p.dtype)).square().sum(1)
    confidence = log_p.max(1).values.exp()
    # (lower, upper]; the first bin also takes 0, which softmax gives only by underflow
    upper = torch.linspace(0, 1, BINS + 1, dtype=confidence.dtype)[1:]
    above = (confidence[:, None] > upper[:-1]).sum(1)
    member = (above[:, None] == torch.arange(BINS)) * real[:, None]  # [n, BINS]
    hit = (rank < 1).double()
    return Tally(
        n=real.sum(),
        top1=(hit * real).sum(),
        top5=((rank < 5) * real).sum(),
        loss=-(log_p.gather(1, y[:, None])[:, 0].double() * real).sum(),
        brier=squares.double() @ real,
        bin_n=member.sum(0),
        bin_top1=hit @ member,
        bin_confidence=confidence.double() @ member,
        batches=() if batch is None else _one_by_one(member, hit, confidence.double(), batch),
    )


def _one_by_one(member: Tensor, hit: Tensor, confidence: Tensor, size: int) -> Batches:
    def sums(values: Tensor) -> Tensor:  # [n, BINS] to [batches, BINS]
        filled = pad(values, (0, 0, 0, -len(values) % size))
        return filled.view(-1, size, BINS).sum(1)

    n = sums(member)
    gap = sums(member * (hit - confidence)[:, None]).abs()  # times n
    total = n.sum(1)
    return Batches(
        n=(total > 0).sum().double(),
        ece=(gap.sum(1) / total.clamp(min=1)).sum(),
        mce=(gap / n.clamp(min=1)).amax(1).sum(),
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
