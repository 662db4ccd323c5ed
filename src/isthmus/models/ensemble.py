"""Two networks side by side."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Ensemble(nn.Module):
    """Adds the logits of two networks: a * first(x) + b * second(x)."""

    weights: Tensor  # [2]: a, b

    def __init__(
        self,
        first: nn.Module,
        second: nn.Module,
        weights: Sequence[float] | Tensor = (1.0, 1.0),
    ):
        nn.Module.__init__(self)
        self.first, self.second = first, second
        self.register_buffer("weights", torch.as_tensor(weights).clone())

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted sum of the two networks' logits."""
        a, b = self.weights
        total: Tensor = a * self.first(x) + b * self.second(x)
        return total
