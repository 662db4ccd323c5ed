"""A run that is on disk, open: its clients' personal models, and clients that join it.

The one way from a server's state to a client's model is `Method.evaluate`, which delivers the state
and scores what each client would deploy. The cohort below stands in for the one that scores, and
takes a model out instead; in isthmus.training.newcomers another one lets newcomers build theirs.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from isthmus import tree
from isthmus.client import Client, Point
from isthmus.cohort import Clients, Each, Round, one_for_all
from isthmus.config.experiment import Experiment
from isthmus.config.registry import read_network
from isthmus.context import ClientFunction, Setting
from isthmus.data.federation import Federation
from isthmus.engines.base import one_thread
from isthmus.evaluation import Evaluation, has_path, selects, splits_of
from isthmus.method import State
from isthmus.metrics.score import Tally, figures, tally
from isthmus.models.card import save
from isthmus.shelf import Shelf
from isthmus.storage.store import Progress, Store
from isthmus.training.federate import reopen
from isthmus.training.newcomers import SHOTS, Newcomers, adapt


class Personal:
    """One client's personal model: call it on inputs [B, ...] as the network wants them."""

    def __init__(self, setting: Setting, i: int, at: Tensor, w: Tensor):
        self.i = i
        self.at = at.tolist()  # its place on the method's path; empty where there is none
        self.w = w  # [P]; of two networks, as their method puts them together
        self._setting = setting
        self._module = setting.method.module(setting.task, setting.kind(i), w)

    def __call__(self, x: Any) -> Tensor:
        """Gives logits [B, C]."""
        with torch.no_grad():
            logits: Tensor = self._module(torch.as_tensor(x))
            return logits

    def module(self) -> nn.Module:
        """Gives it as a plain module."""
        return self._module

    def tally(self, split: str = "test") -> Tally:
        """Sums up how it does on a part of the client's own data, also bin by bin of confidence."""
        x, y = self._setting.federation.part(self.i, split)
        with one_thread():
            return tally(self(x), y, batch=self._setting.task.calibrated)

    def top1(self, split: str = "test") -> float:
        """Measures its accuracy on a part of the client's own data."""
        return float(figures(self.tally(split)).top1)


class Opened:
    """A run that is open; close it, or use it in a `with` block, to let others in."""

    def __init__(self, experiment: Experiment, setting: Setting, store: Store):
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
        """Lets others in."""
        self._store.release()

    def client(self, i: int) -> Personal:
        """Gives client i's personal model."""
        return next(self.clients([i]))

    def clients(self, ids: Sequence[int] | None = None) -> Iterator[Personal]:
        """Yields the personal models of these clients, or of all of them, one at a time."""
        for i in range(len(self)) if ids is None else ids:
            yield Personal(self.setting, i, *self._taken(i))

    def path(self, i: int) -> Point | None:
        """Gives all models of client i's path with their places, where its method has one."""
        return self._taken(i, self.setting.method.path) if has_path(self.setting) else None

    def _taken(self, i: int, f: ClientFunction | None = None) -> Point:
        if not 0 <= i < len(self):
            raise IndexError(f"no client {i}; the run has clients 0 to {len(self) - 1}")
        takeout = Takeout(self.setting, self.progress, i, f)
        with one_thread():
            self.setting.method.evaluate(self.progress.server, takeout)
        return takeout.model

    def adapt(self, data: Federation, shots: Sequence[int | None] = SHOTS) -> list[Newcomers]:
        """Lets clients that took part in no round join the finished run."""
        return adapt(self.setting, self.progress, data, shots)


def open(
    path: Path | str,
    *,
    data: Federation | None = None,
    model: Callable[[], nn.Module] | None = None,
    others: Sequence[Callable[[], nn.Module]] = (),
    data_root: Path | str = "data",
) -> Opened:
    """Opens a run; own data and own models are given as they were to `federate`."""
    return Opened(*reopen(path, None, data, model, Path(data_root), others, device="cpu"))


class Takeout(Clients):
    """Stands in for the cohort of an evaluation, and takes one client's personal model out.

    Or what another function makes of what the client has and receives: its path.
    """

    def __init__(
        self, setting: Setting, progress: Progress, i: int, f: ClientFunction | None = None
    ):
        shelf = Shelf(progress.shelf)
        Clients.__init__(self, [i], Round(setting, progress.t - 1, progress.own, shelf=shelf))
        self.model = Point(torch.zeros(0), torch.zeros(0))
        self._f = f

    def score(self, common: Tensor | None, *shared: State, each: Each = None) -> Evaluation:
        """Takes the model instead of scoring it."""
        setting = self._round.setting

        def deployed(client: Client, own: State, *received: State) -> Point:
            model = setting.method.personal(client, own, *received)
            return model if isinstance(model, Point) else Point(model.new_zeros(0), model)

        choice = one_for_all(self.all, shared, each)
        if each is not None and not callable(each):
            each = tree.map(lambda rows: rows[self.ids], each)
        ((self.model,),) = self.visits(self._f or deployed, shared, each, choice)
        return Evaluation((), None)


def export(opened: Opened, folder: Path, ids: Sequence[int] | None = None) -> Iterator[Path]:
    """Writes clients' personal models, each with a card; yields the cards' paths."""
    experiment, setting = opened.experiment, opened.setting
    shape, names = setting.federation.shape, setting.method.others()
    for personal in opened.clients(ids):
        n, *_ = setting.federation.sizes(personal.i)
        splits = splits_of(setting)
        card = {
            "client": personal.i,
            "name": setting.federation.name(personal.i),
            "method": dict(experiment.method),
            "at": [round(number, 6) for number in personal.at],
            "selection": experiment.selection if selects(setting) else None,
            "chosen_on_test_data": selects(setting) and experiment.rule.on_test,
            "top1": {split: personal.top1(split) for split in splits},
            "train_examples": n,
            "model": dict(experiment.model),
            "beside": read_network(names[setting.kind(personal.i)], shape) if names else None,
            "shape": list(shape),
            "classes": setting.federation.classes,
            **{name: getattr(setting.federation.arrays, name) for name in ("scale", "mean", "std")},
            "labels": list(setting.federation.arrays.labels),
            "columns": [column._asdict() for column in setting.federation.arrays.columns],
            "rounds": opened.progress.t,
            "experiment": hashlib.sha256(experiment.toml().encode()).hexdigest()[:16],
            "federation": setting.federation.digest(),
            "isthmus": version("isthmus"),
        }
        yield save(personal.module(), card, folder, f"client-{personal.i}")
