"""The networks of W1, W2 and W5 and their local training, as one writes them in PyTorch.

What is here runs in the peers' environments too, which have torch and no isthmus. The networks are
`twonn` on MNIST, `twocnn` on CIFAR-10 and `stackedlstm` on Shakespeare, with their parameters in
the same order.
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


class StackedLSTM(nn.Module):
    """LEAF's network for Shakespeare.

    The second bias of every gate in `nn.LSTM` would only train the first one twice as fast: it is
    zero, and stays.
    """

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.embedding = nn.Embedding(81, 8)
        self.lstm = nn.LSTM(8, 256, 2, batch_first=True)
        self.classifier = nn.Linear(256, 81)
        for bias in (self.lstm.bias_hh_l0, self.lstm.bias_hh_l1):
            nn.init.zeros_(bias).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """Predict the next symbol."""
        logits: Tensor = self.classifier(self.lstm(self.embedding(x))[0][:, -1])
        return logits


NETWORKS: Mapping[str, Callable[[], nn.Module]] = MappingProxyType(
    {"twonn": twonn, "twocnn": twocnn, "stackedlstm": StackedLSTM}
)


def list_trained(module: nn.Module) -> list[nn.Parameter]:
    """List the parameters that are trained."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def load(module: nn.Module, w: Tensor) -> None:
    """Copy a vector [P] into a module's parameters."""
    trained = list_trained(module)
    sizes = [parameter.numel() for parameter in trained]
    with torch.no_grad():
        for parameter, part in zip(trained, w.split(sizes), strict=True):
            parameter.copy_(part.view_as(parameter))


def make_optimiser(parameters: Iterable[nn.Parameter], settings: Settings) -> torch.optim.SGD:
    """Make SGD with momentum and weight decay, one fused kernel per step."""
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
    """Train a module on a client's examples, once in each of the orders."""
    sgd = make_optimiser(list_trained(module), settings)
    for order in orders:
        for rows in order.split(settings.batch_size):
            sgd.zero_grad()
            cross_entropy(module(x[rows]), y[rows]).backward()
            sgd.step()
