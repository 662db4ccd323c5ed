"""Times pooled convolutions, as three operations and as one: `python -m benchmarks pooling`.

A forward and a backward pass of each pooled convolution of a network by itself, on random images
with channels last, on one thread; the two ways take turns, and the least processor time of each is
printed. The gradient of the images is computed but for the first convolution.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.recurrent import measure_least
from isthmus.engines.base import one_thread
from isthmus.engines.native.pooling import pool_images


class Case(NamedTuple):
    """A convolution of a network."""

    title: str
    images: int
    channels: int
    size: int
    out: int
    side: int
    padding: int = 0
    slope: float = 0.0


CASES = (
    Case("LeNet-5, first", 50, 3, 32, 6, 5),
    Case("LeNet-5, second", 50, 6, 14, 16, 5),
    Case("SimpleCNN, first", 50, 3, 32, 16, 5, slope=0.01),
    Case("SimpleCNN, second", 50, 16, 14, 32, 5, 1, slope=0.01),
    Case("SimpleCNN, third", 50, 32, 6, 64, 3, 1, slope=0.01),
    Case("TwoCNN, first", 10, 3, 32, 32, 5, 2),
    Case("TwoCNN, second", 10, 32, 16, 64, 5, 2),
    Case("64 to 128 channels", 10, 64, 8, 128, 3, 1),
    Case("128 to 128 channels", 10, 128, 8, 128, 3, 1),
)


def pool_apart(x: Tensor, weight: Tensor, bias: Tensor, padding: int, slope: float) -> Tensor:
    """Return the same by three operations, as torch does it."""
    inside = nn.functional.conv2d(x, weight, bias, padding=padding)
    return nn.functional.max_pool2d(nn.functional.leaky_relu(inside, slope), 2)


def measure(case: Case, times: int) -> dict[str, float]:
    """Measure both ways."""
    shape = (case.images, case.channels, case.size, case.size)
    x = torch.randn(shape).contiguous(memory_format=torch.channels_last)
    x.requires_grad_("first" not in case.title)
    weight = torch.randn(case.out, case.channels, case.side, case.side, requires_grad=True)
    bias = torch.randn(case.out, requires_grad=True)
    given = (x, weight, bias, case.padding, case.slope)
    wanted = [each for each in (x, weight, bias) if each.requires_grad]
    along = torch.randn_like(pool_apart(*given))

    def step(way: Callable[..., Tensor]) -> None:
        torch.autograd.grad(way(*given), wanted, along)

    ways = {"three": pool_apart, "one": pool_images}
    return measure_least({name: partial(step, way) for name, way in ways.items()}, times)


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks pooling", description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    wanted = parser.parse_args(arguments)
    torch.manual_seed(0)
    table = Table("", "three operations, ms", "one, ms", "three / one")
    with one_thread():
        for case in CASES:
            least = measure(case, wanted.times)
            ratio = least["three"] / least["one"]
            numbers = (f"{least['three']:.2f}", f"{least['one']:.2f}", f"{ratio:.2f}")
            table.add_row(f"{case.title}, batch {case.images}", *numbers)
    Console().print(table)
