"""A network as a function of one vector.

All trained parameters of an `nn.Module` lie in one flat tensor `[P]`, in the order in which the
module defines them: body first, head last. Running statistics lie there too, each layer's after its
parameters. The module stays as it was written; it is called through `torch.func.functional_call` on
views of the vector, so a mixture of two networks is arithmetic on two vectors, whatever they are.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from isthmus.errors import IsthmusError
from isthmus.models import layout
from isthmus.models.recurrent import StackedLSTM
from isthmus.ranges import Head

STATISTICS_ROWS = 1024  # examples at a time whose statistics are found
SHALLOW = 8  # layers up to which convolutions and pooling are faster with channels last


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
        self._module = layout.build_checked(build).to(device)
        entries = list(layout.find_entries(self._module))
        self._names = [entry.path for entry in entries]
        named = self._module.named_parameters(remove_duplicate=False)
        trained = [name for name, parameter in named if parameter.requires_grad]
        # Looking for tied weights costs time in every call.
        self._tied = len(trained) > sum(not entry.statistic for entry in entries)
        self._places = [self._find_place(entry) for entry in entries]
        self._built = [entry.tensor for entry in entries]
        self._shapes = [entry.tensor.shape for entry in entries]
        self._sizes = [entry.tensor.numel() for entry in entries]
        self.size = sum(self._sizes)
        self._moving = [place for place, entry in enumerate(entries) if entry.statistic]
        self.statistics = self._mark_statistics(entries, device)
        parts = list(self._module.modules())
        norms = [part for part in parts if isinstance(part, nn.modules.batchnorm._BatchNorm)]
        self.mixes_examples = bool(norms)  # in training
        self.mixes_at_rest = not all(map(layout.tracks, norms))  # and in evaluation as well
        self.recurrent = any(isinstance(part, nn.RNNBase | StackedLSTM) for part in parts)
        self.convolutional = any(isinstance(part, nn.modules.conv._ConvNd) for part in parts)
        self.pools = layout.pools(self._module)
        self.random = any(map(layout.is_random, parts))
        frozen = [part for part in parts if layout.tracks(part) and layout.is_frozen(part)]
        self._listeners = [part for part in parts if part not in frozen]
        self._learners = list(filter(layout.tracks, self._listeners))
        self._modes = any(map(layout.has_modes, parts))
        self._updates: list[StatisticsUpdate] | None = None  # while somebody collects them
        if self._modes:
            self._module.eval()
            for part in filter(layout.tracks, parts):
                part.num_batches_tracked = None  # models that are averaged have no such count
        owners = [entry.owner for entry in entries]
        order = list(dict.fromkeys(owners))
        self.layers = len(order)  # weight-owning modules
        # Somebody's own forward pass may take the memory's order for granted.
        self.channels_last = (
            self.convolutional and self.layers <= SHALLOW and all(map(layout.is_plain, parts))
        )
        self.layer = torch.repeat_interleave(  # [P]: which of them owns each coordinate
            torch.tensor([order.index(owner) for owner in owners]), torch.tensor(self._sizes)
        ).to(device)
        self._head = _find_head(self._module, entries, head)
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
        """Build the same network for vectors on another device."""
        return Flat(self._build, self._head_rule, device)

    def _find_place(self, entry: layout.Entry) -> tuple[dict[str, Any], str]:
        part = self._module.get_submodule(entry.owner)
        return (part._buffers if entry.statistic else part._parameters), entry.name

    def _mark_statistics(
        self, entries: list[layout.Entry], device: torch.device | str
    ) -> Tensor | None:
        """Return which coordinates [P] are running statistics; None if there are none."""
        if not self._moving:
            return None
        flags = torch.tensor([entry.statistic for entry in entries])
        return torch.repeat_interleave(flags, torch.tensor(self._sizes)).to(device)

    def _find_stretches(self, owners: list[str]) -> list[tuple[bool, int]]:
        flags = [isinstance(self._module.get_submodule(owner), layout.KINDS) for owner in owners]
        runs = groupby(zip(flags, self._sizes, strict=True), key=itemgetter(0))
        return [(normalises, sum(size for _, size in run)) for normalises, run in runs]

    def _find_weight(self, owners: list[str]) -> slice:
        first = owners.index(owners[-1])
        begin = sum(self._sizes[:first])
        return slice(begin, begin + self._sizes[first])

    def tensors(self, w: Tensor) -> list[Tensor]:
        """Cut a vector into views, one per parameter tensor of the module."""
        parts = torch.split(w, self._sizes)
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Evaluate the network with parameters w [P] on inputs x [B, ...], to [B, C]."""
        tensors = self.tensors(w)
        before = [tensors[place] for place in self._moving]
        if self._moving and self._module.training:  # the layers write into their statistics
            for place, tensor in zip(self._moving, before, strict=True):
                tensors[place] = tensor.detach().clone()
        result = self._call(tensors, x)
        if self._updates is not None:
            after = [tensors[place] for place in self._moving]
            self._updates += map(StatisticsUpdate, before, after)
        return result

    def _call(self, tensors: list[Tensor], x: Tensor) -> Tensor:
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
            for (owner, name), tensor in zip(self._places, self._built, strict=True):
                owner[name] = tensor
        return result

    @contextmanager
    def collect_statistics_updates(self) -> Iterator[list["StatisticsUpdate"]]:
        """Collect what forward passes in training make of the running statistics."""
        self._updates = []
        try:
            yield self._updates
        finally:
            self._updates = None

    def train(self, mode: bool) -> None:
        """Begin or end training: layers may do something else then, and statistics move."""
        if self._modes:
            for part in self._listeners:
                part.training = mode

    def find_memory(self, w: Tensor, x: Tensor) -> list[str]:
        """Name the buffers outside the vector that a forward pass writes into."""
        outside = {
            name: (buffer, buffer.clone())
            for name, buffer in self._module.named_buffers()
            if name not in self._names
        }
        self.logits(w, x)
        now = dict(self._module.named_buffers())
        return [
            name
            for name, (buffer, before) in outside.items()
            if now.get(name) is not buffer or not buffer.equal(before)
        ]

    def reestimate_statistics(self, w: Tensor, batches: Iterable[Tensor]) -> Tensor:
        """Set the running statistics of w to those of some batches, weighted by their sizes."""
        total, count = torch.zeros_like(w), 0
        for x in batches:
            met = self._meet(w, x)
            total, count = total + len(x) * met, count + len(x)
        assert self.statistics is not None
        return torch.where(self.statistics, total / count, w)

    def _meet(self, w: Tensor, x: Tensor) -> Tensor:
        """Return w with the statistics of one batch alone; no other layer is in training."""
        tensors = [tensor.clone() for tensor in self.tensors(w)]
        rates = [part.momentum for part in self._learners]
        try:
            for part in self._learners:
                part.training, part.momentum = True, 1.0
            self._call(tensors, x)
        finally:
            for part, rate in zip(self._learners, rates, strict=True):
                part.training, part.momentum = False, rate
        return torch.cat([tensor.flatten() for tensor in tensors])

    def features(self, w: Tensor, x: Tensor) -> Tensor:
        """Return what enters the head, [B, D]."""
        return self.features_and_logits(w, x)[0]

    def features_and_logits(self, w: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return what enters the head, [B, D], and the logits, [B, C], of one evaluation."""
        self._seen = []
        try:
            logits = self.logits(w, x)
        finally:
            seen, self._seen = self._seen, None
        if not seen:
            raise IsthmusError(
                f"the head {self._head!r} of {type(self._module).__name__} is not called as a "
                "module, and this method needs its inputs; end the network with a Linear layer"
            )
        return seen[0].flatten(1), logits

    def _record_features(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if self._seen is not None:
            self._seen.append(inputs[0])

    def fresh(self, seed: int) -> Tensor:
        """Draw new parameters [P] as the module's constructor does, all from one stream."""
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed looks for devices too
            module = self._build()
        return self.flatten(module).to(self.layer.device)

    def flatten(self, module: nn.Module) -> Tensor:
        """Copy what is trained of a module, and its statistics, into one vector."""
        with torch.no_grad():
            return torch.cat([entry.tensor.flatten() for entry in layout.find_entries(module)])

    def load(self, w: Tensor) -> nn.Module:
        """Build a plain module with the parameters w, ready to be evaluated."""
        module = layout.build_alike(self._build).eval()
        with torch.no_grad():
            for entry, value in zip(layout.find_entries(module), self.tensors(w), strict=True):
                entry.tensor.copy_(value)
        return module


class StatisticsUpdate(NamedTuple):
    """Running statistics as they entered a forward pass, and as it left them."""

    before: Tensor
    after: Tensor

    def surrogate_loss(self) -> Tensor:
        """Return a sum whose gradient leads from what was there to what came out."""
        return (self.before * (self.before - self.after).detach()).sum()


def split_evenly(x: Tensor) -> tuple[Tensor, ...]:
    """Cut examples into batches of nearly one size; of one example alone there is no variance."""
    x = torch.cat([x, x]) if len(x) == 1 else x
    return x.tensor_split(-(-len(x) // STATISTICS_ROWS))


def _find_head(module: nn.Module, entries: list[layout.Entry], head: Head) -> str:
    if head == "last":
        return next(entry.owner for entry in reversed(entries) if not entry.statistic)
    if not hasattr(module, "classifier"):
        raise IsthmusError(
            f"head='classifier' asks for a submodule of that name, which "
            f"{type(module).__name__} has not; name its last block 'classifier', or set head='last'"
        )
    return "classifier"
