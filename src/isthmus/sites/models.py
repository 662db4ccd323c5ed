"""The personal models of a site: the last that was evaluated, and the best on its validation data.

They lie in files beside the site's store, so that its people can look at them, and predict with
them, while the run goes on. A file has all that the model is made of: the own state, what was
received, and the place on the method's path.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isthmus import tree
from isthmus.context import Call, Request, Setting
from isthmus.data.scaling import Scales
from isthmus.errors import IsthmusError
from isthmus.method import State
from isthmus.runs.opened import Personal, deploy
from isthmus.sites.forms import SCORE, Forms
from isthmus.system.files import write_bytes, write_text

WHICH = ("best", "last")


class Snapshot(NamedTuple):
    """All that a personal model is made of, and after which round it was."""

    own: State
    received: tuple[State, ...]
    choice: int | None
    t: int
    scales: Scales | None = None  # of its inputs, where they were learned


class SiteModels:
    """The models of one run at a site; `store` is the path of its own states."""

    def __init__(self, store: Path):
        self._store = store

    def keep(self, snapshot: Snapshot, figures: dict[str, Any], loss: float | None) -> None:
        """Keeps the model that was evaluated, and its figures; `loss` is on validation data."""
        head: dict[str, Any] = {
            "t": snapshot.t,
            "choice": snapshot.choice,
            "loss": loss,
            "figures": figures,
        }
        if snapshot.scales is not None:
            head["scales"] = [part.tolist() for part in snapshot.scales]
        packed = json.dumps(head).encode() + b"\n" + tree.pack((snapshot.own, snapshot.received))
        before = [row for row in self.read_figures() if row["t"] < snapshot.t]
        losses = [row["loss"] for row in before if row["loss"] is not None]
        if loss is None or loss < min(losses, default=float("inf")):
            write_bytes(self._name("best.model"), packed, sync=True)
        write_bytes(self._name("last.model"), packed, sync=True)
        row = {key: value for key, value in head.items() if key != "scales"}
        text = json.dumps([*before, row], indent=1) + "\n"
        write_text(self._name("figures.json"), text, sync=True)

    def read_figures(self) -> list[dict[str, Any]]:
        """Reads how the models did after each round that was evaluated."""
        try:
            rows: list[dict[str, Any]] = json.loads(self._name("figures.json").read_text("utf-8"))
        except (OSError, ValueError):
            return []
        return rows

    def open(self, which: str, setting: Setting, client: int, forms: Forms) -> Personal:
        """Opens the best or the last model."""
        (form, *_) = forms.find(SCORE, "evaluate")
        shared, each, *_ = form.received
        own = setting.method.own(setting.task, client)
        snapshot = self._read(which, (own, (*shared, *each)))
        call = Call(deploy, snapshot.received, snapshot.t, "evaluate", 0, snapshot.choice)
        request = Request(client, snapshot.own, ())
        ((_, point),) = setting.engine.run(setting, call, iter([request]))
        return Personal(setting, client, *point)

    def read_scales(self, which: str) -> Scales | None:
        """Reads what the inputs of the best or the last model are scaled by."""
        scales = json.loads(self._load(which)[0]).get("scales")
        return None if scales is None else Scales(*map(np.array, scales))

    def _read(self, which: str, like: Any) -> Snapshot:
        head, packed = self._load(which)
        facts = json.loads(head)
        own, received = tree.unpack(packed, like=like)
        return Snapshot(own, received, facts["choice"], facts["t"])

    def _load(self, which: str) -> tuple[bytes, bytes]:
        if which not in WHICH:
            raise IsthmusError(f"which={which}; expected best or last; for example --which best")
        try:
            head, _, packed = self._name(f"{which}.model").read_bytes().partition(b"\n")
        except OSError:
            raise IsthmusError(
                f"this site has no {which} model yet; expected a run that was evaluated; wait for "
                "its next evaluation"
            ) from None
        return head, packed

    def _name(self, suffix: str) -> Path:
        return self._store.with_suffix(f".{suffix}")
