"""What a model's logits are worth, as sums over examples: sums add, so they combine anywhere."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import log_softmax

from isthmus.metrics.calibration import BINS, ece, mce


class Tally(NamedTuple):
    """Sums over the examples of one split, for one model; any leading axes."""

    n: Tensor
    top1: Tensor
    top5: Tensor
    loss: Tensor
    bin_n: Tensor  # [BINS]: examples whose confidence falls into the bin
    bin_top1: Tensor  # [BINS]: of these, the ones classified rightly
    bin_confidence: Tensor  # [BINS]: sum of their confidences


class Figures(NamedTuple):
    """What is reported of a tally."""

    n: NDArray[np.int64]
    top1: NDArray[np.float64]
    top5: NDArray[np.float64]
    loss: NDArray[np.float64]
    ece: NDArray[np.float64]
    mce: NDArray[np.float64]


def tally(logits: Tensor, y: Tensor, weight: Tensor | None = None) -> Tally:
    """Sums up logits [n, C] against labels [n]; `weight` is 1 for real examples and 0 for padding.

    Of equal logits the first counts as the larger, as in argmax.
    """
    real = torch.ones_like(y, dtype=torch.float64) if weight is None else weight.double()
    true = logits.gather(1, y[:, None])
    after = torch.arange(logits.shape[1]) >= y[:, None]
    # The classes not behind the true one: put like this, a logit that is no number is never right.
    rank = (~((logits < true) | ((logits == true) & after))).sum(1)
    log_p = log_softmax(logits, dim=1)
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
        bin_n=member.sum(0),
        bin_top1=hit @ member,
        bin_confidence=confidence.double() @ member,
    )


def figures(sums: Tally) -> Figures:
    """Divides a tally's sums by its counts.

    >>> f = figures(tally(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0])))
    >>> float(f.top1), round(float(f.loss), 4)
    (0.5, 1.1269)
    """
    s = Tally(*(part.numpy() for part in sums))  # type: ignore[arg-type]
    n = np.asarray(s.n)
    return Figures(
        n=n.astype(np.int64),
        top1=s.top1 / n,
        top5=s.top5 / n,
        loss=s.loss / n,
        ece=ece(s.bin_n, s.bin_top1, s.bin_confidence),
        mce=mce(s.bin_n, s.bin_top1, s.bin_confidence),
    )
