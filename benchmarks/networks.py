"""The networks of W1 and W2 and their local training, as one writes them in PyTorch.

What is here runs in the peers' environments too, which have torch and no isthmus. The networks are
`twonn` on MNIST and `twocnn` on CIFAR-10, with their parameters in the same order.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


class Settings(NamedTuple):
    """How a client trains."""

    epochs: int
    batch_size: int
    lr: float
    momentum: float
    weight_decay: float


def twonn() -> nn.Module:
    """McMahan's 2NN on MNIST."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 200),
        nn.ReLU(),
        nn.Linear(200, 200),
        nn.ReLU(),
        nn.Linear(200, 10),
    )


def twocnn() -> nn.Module:
    """McMahan's CNN on CIFAR-10."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4096, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


NETWORKS: Mapping[str, Callable[[], nn.Module]] = MappingProxyType(
    {"twonn": twonn, "twocnn": twocnn}
)


def load(module: nn.Module, w: Tensor) -> None:
    """Copies a vector [P] into a module's parameters."""
    sizes = [parameter.numel() for parameter in module.parameters()]
    with torch.no_grad():
        for parameter, part in zip(module.parameters(), w.split(sizes), strict=True):
            parameter.copy_(part.view_as(parameter))


def make_optimiser(parameters: Iterable[nn.Parameter], settings: Settings) -> torch.optim.SGD:
    """Makes SGD with momentum and weight decay, one fused kernel per step."""
    return torch.optim.SGD(
        parameters,
        lr=settings.lr,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def train(
    module: nn.Module, x: Tensor, y: Tensor, orders: Iterable[Tensor], settings: Settings
) -> None:
    """Trains a module on a client's examples, once in each of the orders."""
    sgd = make_optimiser(module.parameters(), settings)
    for order in orders:
        for rows in order.split(settings.batch_size):
            sgd.zero_grad()
            cross_entropy(module(x[rows]), y[rows]).backward()
            sgd.step()
