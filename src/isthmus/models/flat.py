"""A network as a function of one vector.

All parameters of an `nn.Module` lie in one flat tensor `[P]`, in the order in which the module
defines them: body first, head last. The module stays as it was written; it is called through
`torch.func.functional_call` on views of the vector, so a mixture of two networks is arithmetic on
two vectors, whatever the network.
"""

from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from isthmus.errors import IsthmusError
from isthmus.models.normalisation import FrozenNorm

Head = Literal["last", "classifier"]


class Flat:
    """A network as a function of its flat parameter vector.

    >>> net = Flat(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    >>> net.size, net.layers, net.head
    (67, 2, slice(40, 67, None))
    >>> net.weight
    slice(40, 64, None)
    >>> net.logits(net.fresh(seed=1), torch.zeros(5, 4)).shape
    torch.Size([5, 3])

    `head="last"` makes the last weight-owning module the head; `head="classifier"` the submodule of
    that name, which the bundled networks have.
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        head: Head = "last",
        device: torch.device | str = "cpu",
    ):
        self._build = build
        self._head_rule = head
        with torch.random.fork_rng(devices=[]):
            self._module = _build_checked(build).to(device)
        named = dict(self._module.named_parameters())
        self._names = list(named)
        twice = dict(self._module.named_parameters(remove_duplicate=False))
        self._tied = len(twice) > len(named)  # looking for tied weights costs time in every call
        self._parameters = list(named.values())
        self._places: list[tuple[dict[str, Any], str]] = []
        for name in named:
            path, _, last = name.rpartition(".")
            self._places.append((self._module.get_submodule(path)._parameters, last))
        self._shapes = [parameter.shape for parameter in named.values()]
        self._sizes = [parameter.numel() for parameter in named.values()]
        self.size = sum(self._sizes)
        norms = nn.modules.batchnorm._BatchNorm
        self.mixes_examples = any(isinstance(part, norms) for part in self._module.modules())
        self.recurrent = any(isinstance(part, nn.RNNBase) for part in self._module.modules())
        owners = [name.rpartition(".")[0] for name in self._names]
        order = list(dict.fromkeys(owners))
        self.layers = len(order)  # weight-owning modules
        self.layer = torch.repeat_interleave(  # [P]: which of them owns each coordinate
            torch.tensor([order.index(owner) for owner in owners]), torch.tensor(self._sizes)
        ).to(device)
        self._head = _find_head(self._module, order, head)
        self._seen: list[Tensor] | None = None  # what enters the head, while features are wanted
        self._module.get_submodule(self._head).register_forward_pre_hook(self._record_features)
        inside = [owner == self._head or owner.startswith(f"{self._head}.") for owner in owners]
        cut = sum(size for size, is_head in zip(self._sizes, inside, strict=True) if not is_head)
        if inside != sorted(inside):
            raise IsthmusError(
                f"the head {self._head!r} of {type(self._module).__name__} is not its last part; "
                "define the head's module last"
            )
        self.body, self.head = slice(0, cut), slice(cut, self.size)
        self.stretches = self._find_stretches(owners)  # what normalises and what does not, in turns
        self.weight = self._find_weight(owners)  # of the last weight-owning module, no bias

    def __reduce__(self) -> tuple[type["Flat"], tuple[Callable[[], nn.Module], Head]]:
        return Flat, (self._build, self._head_rule)

    def to(self, device: torch.device) -> "Flat":
        """Builds the same network for vectors on another device."""
        return Flat(self._build, self._head_rule, device)

    def _find_stretches(self, owners: list[str]) -> list[tuple[bool, int]]:
        kinds = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, FrozenNorm)
        flags = [isinstance(self._module.get_submodule(owner), kinds) for owner in owners]
        runs = groupby(zip(flags, self._sizes, strict=True), key=itemgetter(0))
        return [(normalises, sum(size for _, size in run)) for normalises, run in runs]

    def _find_weight(self, owners: list[str]) -> slice:
        first = owners.index(owners[-1])
        begin = sum(self._sizes[:first])
        return slice(begin, begin + self._sizes[first])

    def tensors(self, w: Tensor) -> list[Tensor]:
        """Cuts a vector into views, one per parameter tensor of the module."""
        parts = torch.split(w, self._sizes)
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Evaluates the network with parameters w [P] on inputs x [B, ...], to [B, C]."""
        tensors = self.tensors(w)
        if self._tied or self.recurrent or torch.compiler.is_compiling():
            named = dict(zip(self._names, tensors, strict=True))
            result: Tensor = functional_call(self._module, named, (x,), tie_weights=self._tied)
            return result
        # The same by hand: half of a small network's time would go into looking modules up.
        for (owner, name), tensor in zip(self._places, tensors, strict=True):
            owner[name] = tensor
        try:
            result = self._module(x)
        finally:
            for (owner, name), parameter in zip(self._places, self._parameters, strict=True):
                owner[name] = parameter
        return result

    def features(self, w: Tensor, x: Tensor) -> Tensor:
        """Gives what enters the head, [B, D]."""
        return self.features_and_logits(w, x)[0]

    def features_and_logits(self, w: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gives what enters the head, [B, D], and the logits, [B, C], of one evaluation."""
        self._seen = []
        try:
            logits = self.logits(w, x)
        finally:
            seen, self._seen = self._seen, None
        if not seen:
            raise IsthmusError(
                f"the head {self._head!r} of {type(self._module).__name__} is not called as a "
                "module, and this method looks at what enters it; expected a call; end the network "
                "with a Linear layer"
            )
        return seen[0].flatten(1), logits

    def _record_features(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if self._seen is not None:
            self._seen.append(inputs[0])

    def fresh(self, seed: int) -> Tensor:
        """Draws new parameters [P] as the module's constructor does, all from one stream."""
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed looks for devices too
            module = self._build()
        return self.flatten(module).to(self.layer.device)

    def flatten(self, module: nn.Module) -> Tensor:
        """Copies a module's parameters into one vector."""
        with torch.no_grad():
            return torch.cat([parameter.flatten() for parameter in module.parameters()])

    def load(self, w: Tensor) -> nn.Module:
        """Builds a plain module with the parameters w."""
        with torch.random.fork_rng(devices=[]):
            module = self._build()
        with torch.no_grad():
            for parameter, value in zip(module.parameters(), self.tensors(w), strict=True):
                parameter.copy_(value)
        return module


def _build_checked(build: Callable[[], nn.Module]) -> nn.Module:
    if isinstance(build, nn.Module) or not callable(build):
        given = type(build).__name__
        raise IsthmusError(
            f"model is a finished {given}; expected something that builds one, so that every "
            f"client can draw its own start; pass the class, or lambda: {given}(...)"
        )
    module = build()
    if not isinstance(module, nn.Module):
        raise IsthmusError(
            f"model() gave {type(module).__name__}; expected a torch.nn.Module; return the network"
        )
    name = type(module).__name__
    buffers = [
        f"{key}.{buffer}".removeprefix(".")
        for key, part in module.named_modules()
        if not isinstance(part, FrozenNorm)  # whose buffers never change
        for buffer, _ in part.named_buffers(recurse=False)
    ]
    if buffers:
        raise IsthmusError(
            f"{name} keeps the buffer {buffers[0]!r}; expected parameters only, since a buffer "
            "belongs to no single point of a path; use GroupNorm, or track_running_stats=False"
        )
    for key, part in module.named_modules():
        # A recurrent or attention module keeps the p of its own dropout in an attribute.
        inner = isinstance(part, nn.RNNBase | nn.MultiheadAttention)
        p = part.dropout if inner else getattr(part, "p", 0.0)
        if p > 0 and (inner or isinstance(part, nn.modules.dropout._DropoutNd)):
            raise IsthmusError(
                f"{name}.{key} is dropout with p={p}; expected a network without random "
                "numbers of its own, so that every engine computes the same; remove it"
            )
    if not any(True for _ in module.parameters()):
        raise IsthmusError(f"{name} has no parameters; expected at least one; nothing to train")
    return module


def _find_head(module: nn.Module, owners: list[str], head: Head) -> str:
    if head == "last":
        return owners[-1]
    if not hasattr(module, "classifier"):
        raise IsthmusError(
            f"head='classifier' asks for a submodule of that name, which "
            f"{type(module).__name__} has not; name its last block 'classifier', or set head='last'"
        )
    return "classifier"
