"""A run on disk, opened: its clients' personal models, and clients that join it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from isthmus import tree
from isthmus.client import Client, Point
from isthmus.cohort import Clients, Round
from isthmus.context import ClientFunction, RunContext
from isthmus.data.federation import Federation
from isthmus.engines.base import one_thread
from isthmus.errors import IsthmusError, nearest, quote
from isthmus.evaluation import choose_for_all, place_model
from isthmus.experiment.settings import Experiment
from isthmus.method import State
from isthmus.metrics.score import Tally, figures, tally
from isthmus.run.build import OwnParts
from isthmus.run.loop import open_run
from isthmus.run.newcomers import SHOTS, Newcomers, join
from isthmus.run.store import BestModels, Progress, Store
from isthmus.shelf import Shelf

WHICH = ("best", "last")
SPLITS = ("train", "validation", "test")

Tell = Callable[[str, int, int], None]  # what is measured, how much of it is, how much there is


def ignore(what: str, done: int, total: int) -> None:
    """Do nothing."""


class Cross(NamedTuple):
    """Personal models, each measured on the data of all of M clients."""

    clients: NDArray[np.int64]  # [M]: whose models, and whose data
    rounds: NDArray[np.int64]  # [M]: after which round each model is
    which: str  # of the models of a client: the last, or the best on its validation data
    split: str  # which part of the data
    n: NDArray[np.int64]  # [M]: examples in it
    top1: NDArray[np.float64]  # [M, M]: a row for each model, a column for each client's data
    loss: NDArray[np.float64]  # [M, M]


class Personal:
    """One client's personal model: call it on inputs [B, ...] as the network wants them."""

    def __init__(
        self, setting: RunContext, i: int, at: Tensor, w: Tensor, round: int | None = None
    ):
        self.i = i
        self.round = round  # after which it is, where that is known
        self.at = at.tolist()  # its place on the method's path; empty where there is none
        self.w = w  # [P]; of two networks, as their method puts them together
        self._setting = setting
        self._module = setting.method.networks().module(setting.task, setting.kind(i), w)

    def __call__(self, x: Any) -> Tensor:
        """Return logits [B, C]."""
        with torch.no_grad():
            logits: Tensor = self._module(torch.as_tensor(x))
            return logits

    def module(self) -> nn.Module:
        """Return it as a plain module."""
        return self._module

    def tally(self, split: str = "test") -> Tally:
        """Return its sums on a part of the client's own data, also by bins of confidence."""
        x, y = self._setting.federation.split(self.i, split)
        with one_thread():
            return tally(self(x), y, batch=self._setting.task.calibrated)

    def top1(self, split: str = "test") -> float:
        """Measure its accuracy on a part of the client's own data."""
        return float(figures(self.tally(split)).top1)


class Opened:
    """A run that is open, for this process alone; close it, or use it in a `with` block."""

    def __init__(self, experiment: Experiment, setting: RunContext, store: Store):
        self.experiment = experiment
        self.setting = setting
        self.progress: Progress = store.progress
        self._store = store

    def __len__(self) -> int:
        return len(self.setting.federation)

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the run's store."""
        self._store.release()

    def find(self, client: str) -> int:
        """Find a client by its name or its number."""
        names, last = self.setting.federation.names, len(self) - 1
        if client in names:
            return names.index(client)
        # A number of too many digits is no client's, and int would not read it.
        if client.isascii() and client.isdigit() and len(client) < 10 and int(client) <= last:
            return int(client)
        hint = nearest(client, list(names)) if names else f"the run has clients 0 to {last}"
        raise IsthmusError(f"no client {quote(client)} in this run; {hint}")

    def client(self, i: int, which: str = "last") -> Personal:
        """Return client i's personal model: the last, or the best on its validation data."""
        return next(self.clients([i], which))

    def clients(self, ids: Sequence[int] | None = None, which: str = "last") -> Iterator[Personal]:
        """Yield the personal models of these clients, or of all of them, one at a time.

        They are the last ones, or the best on validation data: the latter where the run kept them.
        """
        best = self._find_best(which)
        for i in range(len(self)) if ids is None else ids:
            if best is None:
                point, round = self._visit(i, deploy, self.progress.own), self.progress.t
            else:
                point, round = best.read(i), best.known[i].round
            yield Personal(self.setting, i, *point, round)

    def _find_best(self, which: str) -> BestModels | None:
        if which not in WHICH:
            raise IsthmusError(f"which must be best or last, not {which}; for example --which best")
        if which == "best" and self._store.best_models is None:
            raise IsthmusError(
                "the run kept no best models; take --which last, or start a run with --keep-best"
            )
        return self._store.best_models if which == "best" else None

    def path(self, i: int) -> Point | None:
        """Return all models of client i's path with their places, if its method has one."""
        path = self.setting.method.path()
        return None if path is None else self._visit(i, path.points, self.progress.own)

    def fresh_path(self) -> Point | None:
        """Return the path of a client that never took part, from the server's state alone."""
        path = self.setting.method.path()
        return None if path is None else self._visit(0, path.points, {})

    def common(self) -> Tensor | None:
        """Return the shared model, if there is one."""
        return self.setting.method.common(self.progress.server)

    def _visit(self, i: int, f: ClientFunction, own: Mapping[int, State]) -> Point:
        """Run f for client i on what an evaluation would deliver to it."""
        if not 0 <= i < len(self):
            raise IndexError(f"no client {i}; the run has clients 0 to {len(self) - 1}")
        setting, progress = self.setting, self.progress
        one = Clients([i], Round(setting, progress.t - 1, own, shelf=Shelf(progress.shelf)))
        with one_thread():
            delivery = setting.method.deliver(progress.server, one)
            (found,) = one.visit(f, delivery, self._choice)
        return Point(*found[i])

    @cached_property
    def _choice(self) -> int | None:
        """The point of the path that all clients take, where there is one for all."""
        setting, progress = self.setting, self.progress
        round = Round(setting, progress.t - 1, progress.own, shelf=Shelf(progress.shelf))
        everybody = Clients(range(len(self)), round)
        delivery = setting.method.deliver(progress.server, everybody)
        return choose_for_all(setting, everybody, delivery)

    def cross(
        self,
        ids: Sequence[int] | None = None,
        split: str = "test",
        tell: Tell = ignore,
        which: str = "last",
    ) -> Cross:
        """Measure the personal model of each of these clients on the data of each of them.

        A client's inputs are scaled as at that client, whose model it may be.
        """
        federation, everybody = self.setting.federation, range(len(self))
        parts = {i: federation.split(i, split) for i in (everybody if ids is None else ids)}
        empty = [i for i, part in parts.items() if not len(part.y)]
        if len(parts) < 2 or (empty and ids is not None):
            given = f"client {empty[0]} has no {split} part" if empty else f"{len(parts)} clients"
            raise IsthmusError(
                f"{given}, and at least two clients with a {split} part are needed; name others, "
                "or another part"
            )
        parts = {i: part for i, part in parts.items() if i not in empty}
        top1, loss, rounds = [], [], []
        for k, model in enumerate(self.clients([*parts], which), start=1):
            with one_thread():
                found = figures(tree.stack([tally(model(x), y) for x, y in parts.values()]))
            top1.append(found.top1)
            loss.append(found.loss)
            rounds.append(model.round or 0)
            tell("models on the data of all clients", k, len(parts))
        n = np.array([len(part.y) for part in parts.values()])
        tables = np.array(top1), np.array(loss)
        return Cross(np.array([*parts]), np.array(rounds), which, split, n, *tables)

    def join(self, data: Federation, shots: Sequence[int | None] = SHOTS) -> list[Newcomers]:
        """Have clients that took part in no round join the finished run."""
        return join(self.setting, self.progress, data, shots)

    def record(self, found: Sequence[Newcomers], data: Federation, file: Path | str) -> None:
        """Add to newcomers.csv how clients did whose data came in a file."""
        self._store.add_newcomers(found, data.digest(), str(Path(file).resolve()))


def open(path: Path | str, *, data_root: Path | str = "data", **own: Unpack[OwnParts]) -> Opened:
    """Open a run to inspect it; custom parts are passed as they were to `federate`."""
    built, store = open_run(
        Path(path), device="cpu", data_root=data_root, may_be_readonly=True, **own
    )
    return Opened(*built, store)


def deploy(client: Client, own: State, *received: State) -> Point:
    """Return a client's personal model and its place."""
    return place_model(client.method.personal(client, own, *received))
