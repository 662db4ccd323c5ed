"""Pretrained weights from files: for bundled networks, and for those of one's own."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from isthmus.errors import IsthmusError

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
COUNTER = "num_batches_tracked"  # which old files have not, and nothing here reads
DEEP = 3  # parts of a name by which a network may be wrapped
NAMED = 5  # tensors of a kind that a message names
SETTLES = 2_000_000_000  # nanoseconds after which a file that is written again has another time


def load_weights(
    name: str,
    module: nn.Module,
    weights: str,
    digest: str,
    last: str,
    whose: str = "torchvision",
) -> nn.Module:
    """Copy a file's tensors into a network; `last` is what the file calls its last layer.

    The last layer stays as it was drawn where the file's has another number of outputs. A `digest`
    is what the file has to have: parts that are frozen never travel, and are to be everybody's.
    """
    if not weights:
        return module
    given = _read(weights)
    if digest and digest != (found := digest_weights(weights)):
        raise IsthmusError(
            f"weights={weights} has digest {found}, the experiment's is {digest}; get the same "
            "file, or leave weights_digest out in a new experiment"
        )
    wanted = {_name_in_file(key, last): tensor for key, tensor in module.state_dict().items()}
    misfits = find_misfits(wanted, given, last)
    if misfits:
        raise IsthmusError(
            f"weights={weights} {misfits}; give a file with the tensors of {whose}'s {name}"
        )
    _copy(wanted, given)
    return module


def digest_weights(weights: str) -> str:
    """Return the digest of a file's tensors, under whatever format and order they are stored."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(_read(weights).items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def start_from(
    build: Callable[[], nn.Module], weights: Path | str, partly: bool = False
) -> Callable[[], nn.Module]:
    """Return what builds a network of one's own with the tensors of a file, matched by their names.

    The file is a .safetensors, or a .pth that holds tensors only. What all names in the file begin
    with, as `module.` or `vit.`, is left out, and what those of a network do that wraps it, as
    `net.`, is added. The last layer stays as it was drawn where the
    file has none, or one with another number of outputs. Anything else that does not fit is an
    error that lists it; with `partly` it is left as it was drawn.
    """
    return partial(_build_started, build, str(weights), partly)


def _build_started(build: Callable[[], nn.Module], weights: str, partly: bool) -> nn.Module:
    module = build()
    wanted = module.state_dict()
    given = _align_names(_read(weights), wanted)
    *_, last = (name for name, part in module.named_modules() if part._parameters)
    misfits = find_misfits(wanted, given, last, may_lack_last=True)
    if misfits and not partly:
        raise IsthmusError(
            f"weights={weights} {misfits}; give a file with the tensors of "
            f"{type(module).__name__}, or start_from(..., partly=True) to take what fits"
        )
    if not any(_fits(tensor, given.get(name)) for name, tensor in wanted.items()):
        raise IsthmusError(
            f"weights={weights} has no tensor of {type(module).__name__}: no name such as "
            f"{next(iter(wanted))!r}, but {next(iter(given), 'none')!r}; give another file"
        )
    _copy(wanted, given)
    return module


def find_misfits(
    wanted: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    last: str,
    may_lack_last: bool = False,
) -> str:
    """Return what does not fit, apart from the last layer's outputs and counts of batches."""

    def is_last(name: str) -> bool:
        return name.rpartition(".")[0] == last

    missing, reshaped = [], []
    for name, tensor in wanted.items():
        if name.endswith(COUNTER) or (may_lack_last and is_last(name) and name not in given):
            continue
        if name not in given:
            missing.append(name)
        elif given[name].shape != tensor.shape:
            shape, expected = tuple(given[name].shape), tuple(tensor.shape)
            if not (is_last(name) and shape[1:] == expected[1:]):
                reshaped.append(f"{name} of shape {shape}, not {expected}")
    extra = [
        name
        for name in given
        if name not in wanted
        and not name.endswith(STATISTICS)
        and not (may_lack_last and is_last(name))
    ]
    kinds = {"has no": missing, "has other shapes:": reshaped, "has besides": extra}
    return ", ".join(f"{verb} {_list(names)}" for verb, names in kinds.items() if names)


def _fits(tensor: Tensor, given: Tensor | None) -> bool:
    return given is not None and given.shape == tensor.shape


def _copy(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in wanted.items():
            if _fits(tensor, given.get(name)):
                tensor.copy_(given[name])


def _align_names(given: Mapping[str, Tensor], wanted: Iterable[str]) -> Mapping[str, Tensor]:
    """Rename a file's tensors to the network's names, where one of the two is wrapped.

    Names in the file may all begin with what the network has not, as in `module.`; those of the
    network, or most of them, with what the file has not: that of the attribute which holds it.
    """
    names = set(wanted)
    cuts = _list_prefixes(given, len(given))
    begins = _list_prefixes(names, len(names) / 2)
    cut, begin = max(
        product(cuts, begins),
        key=lambda pair: sum(pair[1] + name[len(pair[0]) :] in names for name in given),
    )
    return {begin + name[len(cut) :]: tensor for name, tensor in given.items()}


def _list_prefixes(names: Iterable[str], least: float) -> list[str]:
    """List what at least so many names begin with, the shortest first: nothing, a., a.b., ..."""
    split = [name.split(".")[:-1] for name in names]
    counts = Counter(".".join([*parts[:k], ""]) for parts in split for k in range(1, DEEP + 1))
    return ["", *sorted((p for p, count in counts.items() if count >= least), key=len)]


def _list(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _name_in_file(key: str, last: str) -> str:
    part, _, rest = key.partition(".")
    if part == "body":
        return rest
    return f"{last}.{key.rpartition('.')[2]}"


def _read(weights: str) -> Mapping[str, Tensor]:
    path = Path(weights)
    if not path.is_file():
        raise _unreadable(weights, "is no file")
    stat = path.stat()
    # What was just written may be written again before the clock of the file system moves on.
    settled = time.time_ns() - stat.st_mtime_ns > SETTLES
    read = _read_file if settled else _read_file.__wrapped__
    return read(weights, stat.st_size, stat.st_mtime_ns)


@cache
def _read_file(weights: str, size: int, changed: int) -> Mapping[str, Tensor]:
    """Read a file once, however many clients draw their start from it."""
    path = Path(weights)
    tensors: Any
    try:
        if path.suffix == ".safetensors":
            tensors = safetensors.torch.load_file(path)
        elif path.suffix == ".pth":
            tensors = torch.load(path, map_location="cpu", weights_only=True)
        else:
            raise _unreadable(weights, f"ends in {path.suffix!r}")
    except IsthmusError:
        raise
    except OSError as error:
        raise _unreadable(weights, f"cannot be read ({error.strerror})") from None
    except Exception:  # a reader raises whatever a damaged or hostile file makes it raise
        raise _unreadable(weights, "is damaged, or holds more than tensors") from None
    if not isinstance(tensors, Mapping) or not all(
        isinstance(key, str) and isinstance(tensor, Tensor) for key, tensor in tensors.items()
    ):
        raise _unreadable(weights, "holds something else than named tensors")
    return tensors


def _unreadable(weights: str, reason: str) -> IsthmusError:
    return IsthmusError(
        f"weights={weights} {reason}; give the path of a .safetensors or .pth file of named tensors"
    )
