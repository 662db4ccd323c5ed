"""The personal model of each client that was best on its validation data, beside the last state.

A model is stored under the name of its bits, so that clients with the same one share it; what
each client's is, is written with the round that brought it. A model that nobody's best is goes with
the next round that is committed: also one that a killed process left behind.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

import torch

from isthmus import tree
from isthmus.client import Point
from isthmus.errors import IsthmusError
from isthmus.run.database import Database

KEPT, MODEL = b"kept/", b"model/"  # and a client's number; and the digest of a model
TOGETHER = 64 * 2**20  # bytes of models that wait for their round; more are written before it


class BestModelEntry(NamedTuple):
    """Which model of a client is its best: after which round, its validation loss, its digest."""

    round: int
    loss: float
    model: str


class BestModels:
    """The best models of a run's clients, in its store."""

    def __init__(self, database: Database):
        self._database = database
        self._known: dict[int, BestModelEntry] = {}
        for key in database.keys(KEPT):
            entry = BestModelEntry(*json.loads(database.read(key) or b"[]"))
            self._known[int(key.removeprefix(KEPT))] = entry
        self._new: dict[int, BestModelEntry] = {}
        self._waiting: dict[bytes, bytes | None] = {}

    @property
    def known(self) -> Mapping[int, BestModelEntry]:
        """What each client's best is, of those that were evaluated."""
        return self._known

    def consider(self, round: int, i: int, loss: float, point: Point) -> None:
        """Keeps the model of a client if its validation loss is the lowest so far."""
        if i in self._known and not loss < self._known[i].loss:
            return
        digest = tree.digest([point])
        key = MODEL + digest.encode()
        self._new[i] = BestModelEntry(round, loss, digest)
        if key not in self._waiting and key not in self._database:
            self._waiting[key] = tree.pack(point)
        if sum(len(packed or b"") for packed in self._waiting.values()) > TOGETHER:
            self._database.write(self._waiting)
            self._waiting = {}

    def flush(self) -> dict[bytes, bytes | None]:
        """Gives what the round's transaction has to write, and takes it for written."""
        self._known |= self._new
        changes: dict[bytes, bytes | None] = dict(self._waiting)
        for i, entry in self._new.items():
            changes[KEPT + b"%012d" % i] = json.dumps(entry).encode()
        wanted = {MODEL + entry.model.encode() for entry in self._known.values()}
        changes |= {key: None for key in self._database.keys(MODEL) if key not in wanted}
        self._new, self._waiting = {}, {}
        return changes

    def read(self, i: int) -> Point:
        """Reads the best model of a client."""
        if i not in self._known:
            raise IsthmusError(
                f"client {i} has no best model yet; expected an evaluation of its model; resume "
                "the run, or take --which last"
            )
        packed = self._database.read(MODEL + self._known[i].model.encode())
        blank = torch.empty(0)
        return tree.unpack(packed or b"", like=Point(blank, blank))
