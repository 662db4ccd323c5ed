"""A vision transformer whose parts are called as in timm, so that its files fit."""

from collections import OrderedDict
from math import sqrt
from typing import Literal

import torch
from torch import Tensor, nn

from isthmus.errors import IsthmusError
from isthmus.models.adapters import lora
from isthmus.models.blocks import build_network, read_image_shape
from isthmus.models.weight_files import load_weights
from isthmus.ranges import PositiveInt

EPSILON = 1e-6  # of timm's normalisation


class PatchEmbed(nn.Module):
    """Cuts an image into patches: [B, C, height, width] to [B, T, D]."""

    def __init__(self, channels: int, patch: int, width: int):
        nn.Module.__init__(self)
        self.proj = nn.Conv2d(channels, width, patch, patch)

    def forward(self, x: Tensor) -> Tensor:
        """Return one row per patch."""
        rows: Tensor = self.proj(x).flatten(2).transpose(1, 2)
        return rows


class SelfAttention(nn.Module):
    """Attention of every row to every other; written out, so that it runs in every engine."""

    def __init__(self, width: int, heads: int):
        nn.Module.__init__(self)
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the rows of [B, T, D]."""
        parts = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)  # [B, heads, T, D / heads]
        scores = query @ key.transpose(2, 3) / sqrt(query.shape[3])
        outputs: Tensor = self.proj((scores.softmax(3) @ value).transpose(1, 2).flatten(2))
        return outputs


class VisionBlock(nn.Module):
    """Attention, then two layers for each row alone; both normalised before, added after."""

    def __init__(self, width: int, heads: int):
        nn.Module.__init__(self)
        self.norm1 = nn.LayerNorm(width, EPSILON)
        self.attn = SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width, EPSILON)
        layers = OrderedDict(
            fc1=nn.Linear(width, 4 * width), act=nn.GELU(), fc2=nn.Linear(4 * width, width)
        )
        self.mlp = nn.Sequential(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return rows [B, T, D] of rows [B, T, D]."""
        x = x + self.attn(self.norm1(x))
        result: Tensor = x + self.mlp(self.norm2(x))
        return result


class VisionBody(nn.Module):
    """Patches, places, a row of its own for the class, blocks: [B, C, height, width] to [B, D]."""

    def __init__(self, channels: int, patch: int, places: int, width: int, depth: int, heads: int):
        nn.Module.__init__(self)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.empty(1, places + 1, width))
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        self.patch_embed = PatchEmbed(channels, patch, width)
        self.blocks = nn.Sequential(*(VisionBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the class's row has become."""
        rows = self.patch_embed(x)
        rows = torch.cat([self.cls_token.expand(rows.shape[0], -1, -1), rows], 1)  # of any batch
        result: Tensor = self.norm(self.blocks(rows + self.pos_embed))[:, 0]
        return result


def vit(
    shape: tuple[int, ...],
    classes: int,
    *,
    patch: PositiveInt = 4,
    width: PositiveInt = 64,
    depth: PositiveInt = 4,
    heads: PositiveInt = 4,
    weights: str = "",
    weights_digest: str = "",
    train: Literal["all", "head", "adapters"] = "all",
    rank: PositiveInt = 8,
) -> nn.Module:
    """Vision transformer | classes; 208,074 on CIFAR-10; `train=adapters` trains few of them.

    With `patch=16, width=192, depth=12, heads=3` it is ViT-Tiny; timm's files fit it as `weights`.
    Adapters are of low rank, beside every linear layer; all but them and the head is frozen then.
    """
    channels, height, wide = read_image_shape("vit", shape, least=patch)
    if height % patch or wide % patch:
        raise IsthmusError(
            f"vit was given images of {height} x {wide}, which patch={patch} does not divide; "
            "set patch"
        )
    if width % heads:
        raise IsthmusError(
            f"vit has width={width} and heads={heads}, which must divide it; set width or heads"
        )
    places = (height // patch) * (wide // patch)
    body = VisionBody(channels, patch, places, width, depth, heads)
    for part in body.modules():
        if isinstance(part, nn.Linear):
            nn.init.trunc_normal_(part.weight, std=0.02)
            nn.init.zeros_(part.bias)
    module = build_network(body, nn.Linear(width, classes))
    load_weights("vit", module, weights, weights_digest, last="head", whose="timm")
    if train == "adapters":
        return lora(module, rank)()
    if train == "head":
        body.requires_grad_(False)
    return module
