"""The exchange of sums before the first round, where all sites scale their inputs alike.

Each site sums up what it trains on; the server adds, and tells the mean; each site sums up squares
around it; the server adds, and tells the deviation. Only sites that agreed to disclose these sums
answer. Later calls bring both along, and a site refuses others than it got first.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.context import RunContext
from isthmus.data.arrays import SUMS
from isthmus.data.federation import Federation
from isthmus.data.scaling import (
    InputSums,
    Scales,
    complete_scales,
    divide_sums,
    sum_inputs,
    sum_squares,
)
from isthmus.system.files import write_text
from isthmus_sites.forms import Form, strip

DISCLOSED = "sums"  # what a site agrees to disclose
TELLS = "for each input, over the examples to train on: how many have it, sum, sum of squares"
MEANS, SQUARES = "data: sums", "data: squares"  # no method can call a function so
PURPOSE = "scales"


def is_wanted(data: Federation) -> bool:
    """Whether sites scale their inputs by what all of them have together."""
    return data.arrays.scaled_by == SUMS


def list_forms(data: Federation) -> tuple[Form, ...]:
    """Return the forms of the exchange's calls; none where there is no exchange."""
    if not is_wanted(data):
        return ()
    numbers = torch.zeros(data.shape, dtype=torch.float64)
    reply = strip((torch.zeros(data.shape, dtype=torch.int64), numbers))
    return tuple(
        Form(name, PURPOSE, strip(((), (), brought, ())), reply)
        for name, brought in ((MEANS, ()), (SQUARES, (numbers,)))
    )


def answer(setting: RunContext, i: int, name: str, brought: tuple[Tensor, ...]) -> Any:
    """Return the sums of what client i trains on."""
    data = setting.federation
    x = np.asarray(data.arrays.x[data.splits[i].train], np.float64)
    sums = sum_inputs(x) if name == MEANS else sum_squares(x, brought[0].numpy())
    return torch.from_numpy(sums.n), torch.from_numpy(sums.total)


def add_up(replies: list[Any]) -> Tensor:
    """Return the mean over all sites from their sums."""
    parts = [InputSums(n.numpy(), total.numpy()) for n, total in replies]
    return torch.from_numpy(divide_sums(parts))


def complete(data: Federation, mean: Tensor, variance: Tensor) -> Scales:
    """Return the scales of what all sites have together."""
    return complete_scales(data.arrays.columns, mean.numpy(), variance.numpy())


def to_tensors(scales: Scales | None) -> tuple[Tensor, ...]:
    """Return scales as tensors of a message."""
    return () if scales is None else tuple(torch.from_numpy(part) for part in scales)


def from_tensors(parts: tuple[Tensor, ...]) -> Scales | None:
    """Return the scales of a message's tensors."""
    return Scales(*(part.numpy() for part in parts)) if parts else None


def save(scales: Scales, path: Path) -> None:
    """Write scales to a file, exactly."""
    write_text(path, json.dumps([part.tolist() for part in scales]) + "\n", sync=True)


def load(path: Path) -> Scales | None:
    """Return what `save` wrote; None where there is no file."""
    if not path.is_file():
        return None
    return Scales(*(np.array(part) for part in json.loads(path.read_text("utf-8"))))
