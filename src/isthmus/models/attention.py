"""A small transformer over the patches of an image."""

from math import sqrt

import torch
from torch import Tensor, nn

from isthmus.errors import IsthmusError
from isthmus.models.blocks import Average, build_network, draw_xavier, read_image_shape
from isthmus.ranges import PositiveInt

WIDTH, HEADS, HIDDEN, BLOCKS = 48, 4, 96, 2


class Patches(nn.Module):
    """Patches of an image, each with its position: [B, C, height, width] to [B, T, D]."""

    def __init__(self, channels: int, patch: int, places: int):
        nn.Module.__init__(self)
        self.embedding = nn.Conv2d(channels, WIDTH, patch, patch)
        self.places = nn.Parameter(torch.zeros(places, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Return one row per patch."""
        rows: Tensor = self.embedding(x).flatten(2).transpose(1, 2)
        return rows + self.places


class Attention(nn.Module):
    """Attention of every patch to every other.

    Written out, since torch's fused attention has no rule for `torch.func.vmap` on CPUs.
    """

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.inputs = nn.Linear(WIDTH, 3 * WIDTH)
        self.outputs = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the rows of [B, T, D]."""
        parts = self.inputs(x).unflatten(2, (3, HEADS, WIDTH // HEADS))
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)  # [B, heads, T, D / heads]
        scores = query @ key.transpose(2, 3) / sqrt(WIDTH // HEADS)
        mixed: Tensor = self.outputs((scores.softmax(3) @ value).transpose(1, 2).flatten(2))
        return mixed


class TransformerBlock(nn.Module):
    """Attention, then two layers for each patch alone; both normalised before, added after."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.attention = nn.Sequential(nn.LayerNorm(WIDTH), Attention())
        self.layers = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return rows [B, T, D] of rows [B, T, D]."""
        x = x + self.attention(x)
        result: Tensor = x + self.layers(x)
        return result


def transformer(shape: tuple[int, ...], classes: int, *, patch: PositiveInt = 4) -> nn.Module:
    """Patches, two blocks of attention, 48 | classes; 43,930 on CIFAR-10."""
    channels, height, width = read_image_shape("transformer", shape, least=patch)
    if height % patch or width % patch:
        raise IsthmusError(
            f"transformer was given images of {height} x {width}, which patch={patch} does not "
            "divide; set patch"
        )
    places = (height // patch) * (width // patch)
    body = nn.Sequential(
        Patches(channels, patch, places),
        *(TransformerBlock() for _ in range(BLOCKS)),
        nn.LayerNorm(WIDTH),
        Average(1),
    )
    return draw_xavier(build_network(body, nn.Linear(WIDTH, classes)))
