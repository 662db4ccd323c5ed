"""Normalisation layers that keep a network a function of its parameters."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

Norm = Literal["group", "batch"]

CHANNELS = 16  # in a group; more than one, so that a map of one place is not normalised away
EPSILON = 1e-5


class FrozenNorm(nn.Module):
    """Normalises by statistics that stay as they were loaded; scale and shift are trained.

    Its two buffers are constants, part of what the network is. Parameters and buffers are called as
    in BatchNorm2d, whose evaluation it computes.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int):
        nn.Module.__init__(self)
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [B, C, height, width]."""
        scale = self.weight * (self.running_var + EPSILON).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale[:, None, None] + shift[:, None, None]


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "group": lambda channels: nn.GroupNorm(channels // CHANNELS, channels),
    "batch": lambda channels: nn.BatchNorm2d(channels, track_running_stats=False),
    "running": nn.BatchNorm2d,
    "frozen": FrozenNorm,
}
