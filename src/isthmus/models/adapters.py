"""Adapters: a large network stays as it is, and thin matrices beside its layers are trained.

`lora` freezes a network and puts a product of two matrices of low rank beside every linear layer
(Hu et al., ICLR 2022). What clients train, send and keep is then the adapters and the head.
"""

import copy
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from isthmus.errors import IsthmusError


class LowRank(nn.Module):
    """A linear layer that stays, and beside it a product of two thin matrices that is trained.

    It begins as the layer itself, since one of the two is zero.
    """

    def __init__(self, layer: nn.Linear, rank: int, alpha: float):
        nn.Module.__init__(self)
        self.layer = layer
        self.down = nn.Parameter(torch.empty(rank, layer.in_features))
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))
        self.scale = alpha / rank
        nn.init.kaiming_uniform_(self.down, a=sqrt(5))  # as torch draws a linear layer

    def forward(self, x: Tensor) -> Tensor:
        """Gives the layer's outputs and the product's, added."""
        beside = linear(linear(x, self.down), self.up)
        outputs: Tensor = self.layer(x) + self.scale * beside
        return outputs

    def merge(self) -> nn.Linear:
        """Gives one linear layer that computes the same."""
        merged = copy.deepcopy(self.layer)
        with torch.no_grad():
            merged.weight += self.scale * self.up @ self.down
        return merged


def lora(
    network: nn.Module | Callable[[], nn.Module],
    rank: int = 8,
    targets: Sequence[str] = ("*",),
    alpha: float | None = None,
) -> Callable[[], nn.Module]:
    """Gives what builds a network whose linear layers have adapters, all else but its head frozen.

    >>> build = lora(lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), rank=4)
    >>> sum(p.numel() for p in build().parameters() if p.requires_grad)  # 4 * 128 and the head
    1162

    `network` is what builds it, or a finished one, which is copied. `targets` are patterns of the
    layers' names, as `*.qkv`; `alpha` scales what adapters add, by alpha / rank: 1 unless given.
    """
    if rank < 1:
        raise IsthmusError(f"rank={rank}; expected 1 or more; set rank=8")
    return partial(_build_adapted, network, rank, tuple(targets), rank if alpha is None else alpha)


def merge(module: nn.Module) -> nn.Module:
    """Gives a copy of a network in which all adapters are part of their layers."""
    merged = copy.deepcopy(module)
    for name, part in list(merged.named_modules()):
        if isinstance(part, LowRank):
            _replace(merged, name, part.merge())
    return merged


def _build_adapted(
    network: nn.Module | Callable[[], nn.Module], rank: int, targets: Sequence[str], alpha: float
) -> nn.Module:
    module = copy.deepcopy(network) if isinstance(network, nn.Module) else network()
    *_, head = (name for name, part in module.named_modules() if part._parameters)
    layers = [
        (name, part)
        for name, part in module.named_modules()
        if isinstance(part, nn.Linear)
        and name != head
        and not isinstance(_parent(module, name), nn.MultiheadAttention)  # it never calls them
        and any(fnmatchcase(name, target) for target in targets)
    ]
    if not layers:
        linears = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
        raise IsthmusError(
            f"targets={','.join(targets)} fits no linear layer of {type(module).__name__} besides "
            f"its head {head!r}; expected a pattern of: {', '.join(linears[:5])}; give another"
        )
    module.requires_grad_(False)
    module.get_submodule(head).requires_grad_(True)
    for name, layer in layers:
        _replace(module, name, LowRank(layer, rank, alpha))
    return module


def _parent(module: nn.Module, name: str) -> nn.Module:
    return module.get_submodule(name.rpartition(".")[0])


def _replace(module: nn.Module, name: str, part: nn.Module) -> None:
    setattr(_parent(module, name), name.rpartition(".")[2], part)
