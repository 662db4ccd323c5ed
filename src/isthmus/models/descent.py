"""How gradient descent treats each coordinate of what it trains: parameters, running statistics.

Statistics of normalisation layers lie in a network's vector beside its parameters. What makes them
move is not the loss: every forward pass in training leaves new ones, and the descent goes there.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isthmus import tree
from isthmus.models.flat import Flat, StatisticsUpdate


class Rates(NamedTuple):
    """Learning rate, momentum and weight decay, in the shape of what is trained."""

    lr: Any
    momentum: Any
    decay: Any

    def move(self, w: Any, v: Any, g: Any) -> tuple[Any, Any]:
        """Take a step along the gradient g: return the new w and v."""
        v = tree.map(
            lambda v, g, w, rho, wd: g.addcmul(w, wd).addcmul(v, rho),
            *(v, g, w, self.momentum, self.decay),
        )
        return tree.map(lambda w, v, eta: w.addcmul(v, eta, value=-1), w, v, self.lr), v


class Shares(NamedTuple):
    """How much of each coordinate of a descent's vectors enters a network as a statistic.

    0 is a parameter. 1 is a statistic that enters as it is: it follows the batches. Anything else
    is blended with others on the way, as the ends of a path are: no batch determines its value.
    """

    of: Any  # in the shape of what is trained

    def mask(self, w: Any) -> Any:
        """Return what is trained by the loss, and zero in place of statistics."""
        return tree.map(lambda w, share: w * (share == 0), w, self.of)

    def rates(self, lr: Tensor, momentum: Tensor, decay: Tensor) -> Rates:
        """Return these rates for parameters, and whole steps for statistics that follow batches."""

        def spread(rate: Tensor) -> Any:
            return tree.map(lambda share: (share == 0) * rate, self.of)

        follows = tree.map(lambda share: (share == 1).to(lr.dtype), self.of)
        return Rates(tree.map(torch.add, spread(lr), follows), spread(momentum), spread(decay))


def uniform_rates(start: Any, lr: Tensor, momentum: Tensor, decay: Tensor) -> Rates:
    """Return the same rates for all coordinates."""
    return Rates(*(tree.map(lambda _, rate=rate: rate, start) for rate in (lr, momentum, decay)))


def is_blended(share: Tensor) -> bool:
    """Whether some of a vector's statistics enter networks blended with others."""
    return bool(((share != 0) & (share != 1)).any())


@contextmanager
def train(networks: Sequence[Flat]) -> Iterator[None]:
    """Put networks into training mode."""
    try:
        for network in networks:
            network.train(True)
        yield
    finally:
        for network in networks:
            network.train(False)


@contextmanager
def collect_statistics_updates(networks: Sequence[Flat]) -> Iterator[list[StatisticsUpdate]]:
    """Collect what forward passes make of the networks' statistics."""
    with ExitStack() as stack:
        collected = [
            stack.enter_context(network.collect_statistics_updates()) for network in networks
        ]
        updates: list[StatisticsUpdate] = []
        yield updates
        updates += [update for some in collected for update in some]


def find_shares(
    networks: Sequence[Flat],
    gradient: Callable[[Callable[[Any], Tensor], Any], Any],
    value: Callable[[Any], Tensor],
    start: Any,
) -> Shares:
    """Find which coordinates are statistics, by one forward pass of a loss."""

    def enter(w: Any) -> Tensor:
        with collect_statistics_updates(networks) as updates:
            zero = 0 * value(w)
        return sum((update.before.sum() for update in updates), start=zero.detach())

    with train(networks):
        return Shares(gradient(enter, start))
