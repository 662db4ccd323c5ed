"""A predictor in two parts, of which one is trained while the other is frozen.

The parts are two networks whose logits are added, or the body and the head of one network. What a
client deploys is one vector: the weights of the two logits, then the parameters of both parts.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from isthmus.client import Batch, Client, Point
from isthmus.models.ensemble import Ensemble
from isthmus.models.flat import Flat

Loss = Callable[[Tensor, Batch], Tensor]


class TwoNetworks(NamedTuple):
    """The parts `first` and `second`: two networks, or one that is cut in two."""

    network: Flat
    beside: Flat | None  # the second network, None if there is only one
    cut: int  # the size of the first part

    def loss_of_first(self, client: Client, second: Tensor) -> Loss:
        """Return the loss as a function of the first part."""
        if self.beside is None:
            return lambda first, batch: batch.cross_entropy(self._whole(first, second, batch.x))
        return _add_logits(self.network, self.beside.logits(second, client.examples.x))

    def loss_of_second(self, client: Client, first: Tensor) -> Loss:
        """Return the loss as a function of the second part."""
        if self.beside is None:
            return lambda second, batch: batch.cross_entropy(self._whole(first, second, batch.x))
        return _add_logits(self.beside, self.network.logits(first, client.examples.x))

    def path(self, first: Tensor, second: Tensor, trained: Tensor) -> Point:
        """Return what a client may deploy: the first network alone, the second alone, their sum.

        Before the second is trained it is the first in all three; one network is one point.
        """
        alone = torch.eye(2, dtype=first.dtype)
        at = torch.cat([alone, alone.sum(0, keepdim=True)])
        at = torch.where(trained, at, alone[0]) if self.beside else at[2:]
        parts = torch.cat([first, second]).expand(len(at), -1)
        return Point(at, torch.cat([at, parts], 1))

    def logits(self, deployed: Tensor, x: Tensor) -> Tensor:
        """Evaluate what a client deploys."""
        (a, b), (first, second) = deployed[:2], self._parts(deployed)
        if self.beside is None:
            return self._whole(first, second, x)
        total: Tensor = a * self.network.logits(first, x) + b * self.beside.logits(second, x)
        return total

    def module(self, deployed: Tensor) -> nn.Module:
        """Build what a client deploys as a plain module."""
        if self.beside is None:
            return self.network.load(deployed[2:])
        first, second = self._parts(deployed)
        return Ensemble(self.network.load(first), self.beside.load(second), deployed[:2])

    def _parts(self, deployed: Tensor) -> tuple[Tensor, Tensor]:
        return deployed[2 : 2 + self.cut], deployed[2 + self.cut :]

    def _whole(self, first: Tensor, second: Tensor, x: Tensor) -> Tensor:
        return self.network.logits(torch.cat([first, second]), x)


def _add_logits(network: Flat, frozen: Tensor) -> Loss:
    """Add a network's logits to those of the other one, which were computed once per example."""
    return lambda w, batch: batch.cross_entropy(network.logits(w, batch.x) + frozen[batch.rows])
