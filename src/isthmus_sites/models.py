"""The personal models of a site: the last that was evaluated, and the best on its validation data.

They lie in files beside the site's store, so that its people can look at them, and predict with
them, while the run goes on. A file has the parameters, and their place on the method's path: what
chooses or tunes them are the site's data as they were then.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from isthmus import tree
from isthmus.client import Point
from isthmus.context import RunContext
from isthmus.data.scaling import Scales
from isthmus.errors import IsthmusError
from isthmus.run.open import Personal
from isthmus.system.files import write_bytes, write_text

WHICH = ("best", "last")


class Snapshot(NamedTuple):
    """A personal model, and after which round it was."""

    point: Point
    t: int
    scales: Scales | None = None  # of its inputs, where they were learned


class SiteModels:
    """The models of one run at a site; `store` is the path of its own states."""

    def __init__(self, store: Path):
        self._store = store

    def keep(self, snapshot: Snapshot, figures: dict[str, Any], loss: float | None) -> None:
        """Keeps the model that was evaluated, and its figures; `loss` is on validation data."""
        head: dict[str, Any] = {"t": snapshot.t, "loss": loss, "figures": figures}
        if snapshot.scales is not None:
            head["scales"] = [part.tolist() for part in snapshot.scales]
        packed = json.dumps(head).encode() + b"\n" + tree.pack(snapshot.point)
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

    def open(self, which: str, setting: RunContext, client: int) -> Personal:
        """Opens the best or the last model."""
        head, packed = self._load(which)
        if "choice" in json.loads(head):  # the parameters were not in it
            raise IsthmusError(
                f"the {which} model here was kept by an earlier version; expected one of this "
                "version; wait for the next evaluation"
            )
        blank = torch.empty(0)
        return Personal(setting, client, *tree.unpack(packed, like=Point(blank, blank)))

    def read_scales(self, which: str) -> Scales | None:
        """Reads what the inputs of the best or the last model are scaled by."""
        scales = json.loads(self._load(which)[0]).get("scales")
        return None if scales is None else Scales(*map(np.array, scales))

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
