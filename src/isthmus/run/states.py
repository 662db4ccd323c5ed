"""Own states and the shelf in a store, as mappings: nothing is read before it is asked for."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from isthmus import tree
from isthmus.context import RunContext
from isthmus.method import State
from isthmus.run.database import Database

SHELF = b"shelf/"


class StoredShelf(Mapping[str, Tensor]):
    """A shelf in a store: nothing is read before it is asked for."""

    def __init__(self, database: Database):
        self._database = database

    def __getitem__(self, name: str) -> Tensor:
        packed = self._database.read(SHELF + name.encode())
        if packed is None:
            raise KeyError(name)
        return tree.unpack(packed, like=torch.empty(0))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and SHELF + name.encode() in self._database

    def __iter__(self) -> Iterator[str]:
        return (key.removeprefix(SHELF).decode() for key in self._database.keys(SHELF))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class StoredStates(Mapping[int, State]):
    """The clients' own states in a store: nothing is read before it is asked for."""

    def __init__(self, database: Database, setting: RunContext):
        self._database = database
        self._setting = setting
        self._shapes: dict[int, State] = {}  # by kind

    def __getitem__(self, i: int) -> State:
        packed = self._database.read(name_own(i))
        if packed is None:
            raise KeyError(i)
        method = self._setting.method
        kind = method.networks().kind(i)
        if kind not in self._shapes:
            self._shapes[kind] = self._setting.own_like(i)
        return tree.unpack(packed, like=self._shapes[kind])

    def __contains__(self, i: object) -> bool:
        return isinstance(i, int) and name_own(i) in self._database

    def __iter__(self) -> Iterator[int]:
        return (int(key.removeprefix(b"own/")) for key in list(self._database.keys(b"own/")))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def name_own(i: int) -> bytes:
    """Gives the key of a client's own state."""
    return b"own/%012d" % i
