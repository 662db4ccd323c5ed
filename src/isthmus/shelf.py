"""What a server keeps beside its state: tensors under names, each read only when it is looked at.

A server's state is read and written whole in every round. A method that holds more than that allows
(a model per client, the uploads of past rounds) puts it on the shelf: of a shelf, what a round
changed is written, and nothing else is read.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from types import MappingProxyType

from torch import Tensor

EMPTY: Mapping[str, Tensor] = MappingProxyType({})


class Shelf(MutableMapping[str, Tensor]):
    """The shelf of one round: what is stored, and what the round puts there or takes away.

    >>> shelf = Shelf()
    >>> shelf["uploads/3"] = Tensor([1.0])
    >>> sorted(shelf), shelf.changed
    (['uploads/3'], {'uploads/3': tensor([1.])})
    """

    def __init__(self, stored: Mapping[str, Tensor] = EMPTY):
        self._stored = stored
        self.changed: dict[str, Tensor | None] = {}  # None: taken away

    def __getitem__(self, name: str) -> Tensor:
        tensor = self.changed[name] if name in self.changed else self._stored[name]
        if tensor is None:
            raise KeyError(name)
        return tensor

    def __setitem__(self, name: str, tensor: Tensor) -> None:
        self.changed[name] = tensor

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self.changed[name] = None

    def __contains__(self, name: object) -> bool:
        if name in self.changed:
            return self.changed[str(name)] is not None
        return name in self._stored

    def __iter__(self) -> Iterator[str]:
        return (name for name in {**dict.fromkeys(self._stored), **self.changed} if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def after(stored: Mapping[str, Tensor], changed: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """Return what is on a shelf once changes are made."""
    both = {**stored, **changed}
    return {name: tensor for name, tensor in both.items() if tensor is not None}
