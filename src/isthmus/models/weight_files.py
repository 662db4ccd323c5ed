"""Pretrained weights from files with torchvision's names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from isthmus.errors import IsthmusError

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def load_weights(name: str, module: nn.Module, weights: str, last: str) -> nn.Module:
    """Copies a file's tensors into a network; `last` is what the file calls its last layer.

    The last layer stays as it was drawn where the file's has another number of outputs.
    """
    if not weights:
        return module
    given = _read(weights, name)
    wanted = {_torchvision_name(key, last): tensor for key, tensor in module.state_dict().items()}
    for key, tensor in wanted.items():
        if key not in given:
            raise _misfit(weights, name, f"has no {key}")
        shape, expected = tuple(given[key].shape), tuple(tensor.shape)
        ends = key.rpartition(".")[0] == last
        if shape != expected and not (ends and shape[1:] == expected[1:]):
            raise _misfit(weights, name, f"has {key} of shape {shape}, not {expected}")
    for key in given:
        if key not in wanted and not key.endswith(STATISTICS):
            raise _misfit(weights, name, f"has {key}, which {name} has not")
    for key, tensor in wanted.items():
        if given[key].shape == tensor.shape:
            tensor.copy_(given[key])
    return module


def _torchvision_name(key: str, last: str) -> str:
    part, _, rest = key.partition(".")
    if part == "body":
        return rest
    return f"{last}.{key.rpartition('.')[2]}"


def _misfit(weights: str, name: str, reason: str) -> IsthmusError:
    return IsthmusError(
        f"weights={weights} {reason}; expected the tensors of torchvision's {name}; give its file"
    )


def _read(weights: str, name: str) -> Mapping[str, Tensor]:
    path = Path(weights)
    if not path.is_file():
        raise _unreadable(weights, name, "is no file")
    tensors: Any
    try:
        if path.suffix == ".safetensors":
            tensors = safetensors.torch.load_file(path)
        elif path.suffix == ".pth":
            tensors = torch.load(path, map_location="cpu", weights_only=True)
        else:
            raise _unreadable(weights, name, f"ends in {path.suffix!r}")
    except IsthmusError:
        raise
    except OSError as error:
        raise _unreadable(weights, name, f"cannot be read ({error.strerror})") from None
    except Exception:  # a reader raises whatever a damaged or hostile file makes it raise
        raise _unreadable(weights, name, "is damaged, or holds more than tensors") from None
    if not isinstance(tensors, Mapping) or not all(
        isinstance(key, str) and isinstance(tensor, Tensor) for key, tensor in tensors.items()
    ):
        raise _unreadable(weights, name, "holds something else than named tensors")
    return tensors


def _unreadable(weights: str, name: str, reason: str) -> IsthmusError:
    return IsthmusError(
        f"weights={weights} {reason}; expected a .safetensors or .pth file of torchvision's "
        f"{name}; give its path"
    )
