"""Which tensors of a module make up its vector, and which stay as they were built.

In the vector: every parameter that is trained, and the running statistics of its normalisation
layers, each layer's right after its parameters. Outside: parameters with `requires_grad=False`, the
statistics of layers all of whose parameters are such, and all other buffers.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from isthmus.errors import IsthmusError
from isthmus.models.normalisation import FrozenNorm

Norm = nn.modules.batchnorm._NormBase
KINDS = (Norm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, FrozenNorm)
INNER = nn.RNNBase | nn.MultiheadAttention  # they keep the p of their own dropout in an attribute
KNOWN = ("torch", "isthmus")  # packages of layers of which it is known what they do in training
SEED = 0  # of what a constructor draws and nobody trains


class Entry(NamedTuple):
    """One tensor of the vector."""

    owner: str  # the path of the module that holds it
    name: str
    tensor: Tensor
    statistic: bool = False  # follows the batches instead of the loss

    @property
    def path(self) -> str:
        """The tensor's name in the whole module."""
        return f"{self.owner}.{self.name}".removeprefix(".")


def find_entries(module: nn.Module) -> Iterator[Entry]:
    """Yield the tensors of the vector in the order in which the module defines them."""
    seen: set[int] = set()
    for path, part in module.named_modules():
        for name, parameter in part.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                yield Entry(path, name, parameter)
        if tracks(part) and not is_frozen(part):
            for name in ("running_mean", "running_var"):
                yield Entry(path, name, part.get_buffer(name), statistic=True)


def tracks(part: nn.Module) -> TypeGuard[Norm]:
    """Whether a layer keeps running statistics."""
    return isinstance(part, Norm) and part.running_mean is not None


def is_frozen(part: nn.Module) -> bool:
    """Whether a layer has parameters, none of which is trained."""
    own = list(part.parameters(recurse=False))
    return bool(own) and not any(parameter.requires_grad for parameter in own)


def is_random(part: nn.Module) -> bool:
    """Whether a layer of torch draws random numbers in training."""
    if isinstance(part, INNER):
        return part.dropout > 0
    if isinstance(part, nn.modules.dropout._DropoutNd):
        return part.p > 0
    return isinstance(part, nn.RReLU)


def is_plain(part: nn.Module) -> bool:
    """Whether a part is a layer of torch's own, or layers one after another."""
    is_layer = type(part).__module__.startswith("torch.nn.") and not list(part.children())
    return is_layer or type(part) is nn.Sequential


def pools(module: nn.Module) -> bool:
    """Whether there is a convolution whose ReLU is pooled, 2 x 2, one after another."""
    for part in module.modules():
        layers = list(part.children()) if type(part) is nn.Sequential else []
        for first, second, third in zip(layers, layers[1:], layers[2:], strict=False):
            bends = isinstance(second, nn.ReLU | nn.LeakyReLU)
            if bends and _is_usual(first) and _halves(third):
                return True
    return False


def _is_usual(layer: nn.Module) -> bool:
    """Whether it is a convolution of square filters with a bias, put at every place."""
    if not isinstance(layer, nn.Conv2d) or isinstance(layer.padding, str) or layer.bias is None:
        return False
    square = len(set(layer.kernel_size)) == len(set(layer.padding)) == 1
    return square and (layer.stride, layer.dilation, layer.groups) == ((1, 1), (1, 1), 1)


def _halves(layer: nn.Module) -> bool:
    """Whether it pools 2 x 2 places into one."""
    if not isinstance(layer, nn.MaxPool2d):
        return False
    both = layer.kernel_size in (2, (2, 2)) and layer.stride in (2, (2, 2))
    return both and layer.padding in (0, (0, 0)) and not layer.ceil_mode


def has_modes(part: nn.Module) -> bool:
    """Whether a layer does, or may do, something else in training than afterwards."""
    unknown = type(part).__module__.partition(".")[0] not in KNOWN
    return unknown or tracks(part) or is_random(part)


def build_alike(build: Callable[[], nn.Module]) -> nn.Module:
    """Build a module whose constructor draws the same numbers every time."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(SEED)  # torch.manual_seed looks for devices too
        return build()


def build_checked(build: Callable[[], nn.Module]) -> nn.Module:
    """Build a module; raise an error where it cannot be trained here."""
    if isinstance(build, nn.Module) or not callable(build):
        given = type(build).__name__
        raise IsthmusError(
            f"model is an instance of {given}, from which clients cannot draw their own start; "
            f"pass a class or a factory, such as lambda: {given}(...)"
        )
    module = build_alike(build)
    if not isinstance(module, nn.Module):
        raise IsthmusError(
            f"model() returned {type(module).__name__}; it must return a torch.nn.Module"
        )
    name = type(module).__name__
    if not any(True for _ in module.parameters()):
        raise IsthmusError(f"{name} has no parameters to train")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise IsthmusError(
            f"all parameters of {name} are frozen; set requires_grad of its last layer, or add "
            "adapters"
        )
    for path, part in module.named_modules():
        if tracks(part) and part.momentum is None:
            raise IsthmusError(
                f"{name}.{path} averages its statistics over all batches since it was built "
                "(momentum=None), and an averaged model has no count of batches; set momentum=0.1"
            )
    return module
