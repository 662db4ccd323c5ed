"""Adapters: a large network stays as it is, and thin matrices beside its layers are trained.

`lora` freezes a network and puts a product of two matrices of low rank beside every linear layer
(Hu et al., ICLR 2022). What clients train, send and keep is then the adapters and the head.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils import parametrize

from isthmus.errors import IsthmusError

NAMED = 5  # layers that a message names


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

    @property
    def weight(self) -> Tensor:
        """The matrix that computes the same, for whoever reads it and never calls the layer."""
        return self.layer.weight + self.scale * self.up @ self.down

    @property
    def bias(self) -> Tensor | None:
        """The layer's."""
        return self.layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's outputs and the product's, added."""
        beside = linear(linear(x, self.down), self.up)
        outputs: Tensor = self.layer(x) + self.scale * beside
        return outputs

    def merge(self) -> nn.Linear:
        """Return one linear layer that computes the same."""
        merged = copy.deepcopy(self.layer)
        with torch.no_grad():
            merged.weight += self.scale * self.up @ self.down
        return merged


class LowRankMatrix(nn.Module):
    """A matrix that stays, and added to it a product of two thin ones: for `parametrize` of torch.

    `nn.MultiheadAttention` holds such matrices, and no layers that could be replaced.
    """

    def __init__(self, matrix: Tensor, rank: int, alpha: float):
        nn.Module.__init__(self)
        rows, columns = matrix.shape
        self.down = nn.Parameter(torch.empty(rank, columns))
        self.up = nn.Parameter(torch.zeros(rows, rank))
        self.scale = alpha / rank
        nn.init.kaiming_uniform_(self.down, a=sqrt(5))

    def forward(self, matrix: Tensor) -> Tensor:
        """Return the sum of both."""
        return matrix + self.scale * self.up @ self.down


def lora(
    network: nn.Module | Callable[[], nn.Module],
    rank: int = 8,
    targets: Sequence[str] = ("*",),
    alpha: float | None = None,
) -> Callable[[], nn.Module]:
    """Return what builds a network whose linear layers have adapters, all else but its head frozen.

    >>> build = lora(lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), rank=4)
    >>> sum(p.numel() for p in build().parameters() if p.requires_grad)  # 4 * 128 and the head
    1162

    `network` is what builds it, or a finished one, which is copied. `targets` are patterns of the
    layers' names, as `*.qkv`, or `*.in_proj` for what `nn.MultiheadAttention` holds; `alpha` scales
    what adapters add, by alpha / rank: 1 unless given.
    """
    if rank < 1:
        raise IsthmusError(f"rank={rank} must be 1 or more; for example rank=8")
    return partial(_build_adapted, network, rank, tuple(targets), rank if alpha is None else alpha)


def merge(module: nn.Module) -> nn.Module:
    """Return a copy of a network in which all adapters are part of their layers."""
    merged = copy.deepcopy(module)
    for name, part in list(merged.named_modules()):
        if isinstance(part, LowRank):
            _replace(merged, name, part.merge())
        elif isinstance(part, nn.MultiheadAttention):
            _merge_matrices(part)
    return merged


def _build_adapted(
    network: nn.Module | Callable[[], nn.Module], rank: int, targets: Sequence[str], alpha: float
) -> nn.Module:
    module = copy.deepcopy(network) if isinstance(network, nn.Module) else network()
    *_, head = (name for name, part in module.named_modules() if part._parameters)
    found = [target for target in _list_targets(module) if target.name != head]
    chosen = [t for t in found if any(fnmatchcase(t.name, pattern) for pattern in targets)]
    if not chosen:
        names = ", ".join(target.name for target in found[:NAMED]) or "none, it has no other"
        raise IsthmusError(
            f"targets={','.join(targets)} fits no linear layer of {type(module).__name__} besides "
            f"its head {head!r}; give a pattern of: {names}"
        )
    module.requires_grad_(False)
    module.get_submodule(head).requires_grad_(True)
    for name, part, held in chosen:
        if isinstance(part, nn.Linear):
            _replace(module, name, LowRank(part, rank, alpha))
        else:
            matrix = LowRankMatrix(getattr(part, held), rank, alpha)
            parametrize.register_parametrization(part, held, matrix)
    return module


class Target(NamedTuple):
    """Where an adapter may be: a linear layer, or one of the matrices that attention holds."""

    name: str
    part: nn.Module
    held: str = ""


def _list_targets(module: nn.Module) -> Iterator[Target]:
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear):
            yield Target(name, part)
        elif isinstance(part, nn.MultiheadAttention):
            for held in _list_matrices(part):
                yield Target(f"{name}.{held.removesuffix('_weight')}".removeprefix("."), part, held)


def _list_matrices(part: nn.MultiheadAttention) -> list[str]:
    """Name the matrices that it makes queries, keys and values with: one for all, or three."""
    names = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
    return [name for name in names if getattr(part, name) is not None]


def _merge_matrices(part: nn.MultiheadAttention) -> None:
    """Make matrices with adapters plain ones; by hand, since torch would also do it to copies."""
    adapted = [name for name in _list_matrices(part) if parametrize.is_parametrized(part, name)]
    if adapted:
        values = {name: getattr(part, name).detach() for name in adapted}
        part.__class__ = nn.MultiheadAttention
        del part.parametrizations
        for name, value in values.items():
            part.register_parameter(name, nn.Parameter(value))


def _parent(module: nn.Module, name: str) -> nn.Module:
    return module.get_submodule(name.rpartition(".")[0])


def _replace(module: nn.Module, name: str, part: nn.Module) -> None:
    setattr(_parent(module, name), name.rpartition(".")[2], part)
