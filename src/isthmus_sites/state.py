"""What a site keeps of a run: its own state, exactly once for each round that the server accepted.

A new own state is written before the reply leaves, beside the one that counts. The next call says
by its digest which of them the server counts on: that one stays, the others are dropped. Whoever
dies when, both sides agree.
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
from isthmus.method import State
from isthmus.run.database import Database, is_blank
from isthmus.run.open import Personal
from isthmus.system.files import write_bytes, write_text
from isthmus_sites.folders import make_private

KEPT, ROUND = b"kept", b"round"
PENDING = b"pending/"  # and the digest
PINNED = b"pinned/"  # and a name


class UnknownStateError(IsthmusError):
    """Says that the server counts on a state that this site does not hold."""


class SiteStates:
    """The own states of one client, in its site's store."""

    def __init__(self, path: Path):
        make_private(path.parent)
        new = not path.exists() or is_blank(path)
        self._database = Database(path, new=new)

    @property
    def round(self) -> int:
        """The latest round in which it answered; -1: none."""
        return int(self._database.read(ROUND) or b"-1")

    def find(self, committed: str, accepted: str, like: State) -> State | None:
        """Gives the own state of a digest; None where it is the one of the start.

        Raises UnknownStateError where either is not here: this site, or the server, was restored
        from an older copy, or the run was begun anew.
        """
        kept, _ = self._read_kept()
        for digest in (committed, accepted):
            if digest != kept and PENDING + digest.encode() not in self._database:
                raise UnknownStateError(
                    f"the server counts on the own state {digest or 'of the start'}; this site "
                    f"holds {kept or 'that of the start'}; expected the same; is one of them an "
                    "older copy?"
                )
        packed = self._read(accepted)
        return None if packed is None else tree.unpack(packed, like=like)

    def answer(self, t: int, committed: str, accepted: str, own: State) -> str:
        """Writes the state after a call, and lets the one that counts stay; gives its digest."""
        changes: dict[bytes, bytes | None] = {ROUND: str(t).encode()}
        digest = tree.digest([own]) if own != () else ""
        kept, _ = self._read_kept()
        if committed != kept:
            changes[KEPT] = committed.encode().ljust(16) + (self._read(committed) or b"")
        for key in self._database.keys(PENDING):
            if key != PENDING + accepted.encode():
                changes[key] = None
        if own != ():
            changes[PENDING + digest.encode()] = tree.pack(own)
        self._database.write(changes)
        return digest

    def pin(self, name: bytes, value: bytes) -> bytes:
        """Keeps a value the first time, and gives that one ever after."""
        known = self._database.read(PINNED + name)
        if known is None:
            self._database.write({PINNED + name: value})
        return value if known is None else known

    def replace(self, t: int, own: State) -> None:
        """Keeps what a newcomer made in place of all before: no server counts on it."""
        changes: dict[bytes, bytes | None] = {ROUND: str(t).encode()}
        changes[KEPT] = tree.digest([own]).encode().ljust(16) + tree.pack(own)
        self._database.write(changes)

    def finalize(self, committed: str) -> None:
        """Lets the state that counts stay, and drops the others."""
        changes: dict[bytes, bytes | None] = dict.fromkeys(self._database.keys(PENDING))
        kept, _ = self._read_kept()
        if committed != kept:
            changes[KEPT] = committed.encode().ljust(16) + (self._read(committed) or b"")
        self._database.write(changes)

    def digest(self) -> str:
        """Names the own state that counts, as of the last call; empty: that of the start."""
        return self._read_kept()[0]

    def list_held(self) -> set[str]:
        """Lists the digests of all own states here: the one that counts, those that may yet."""
        pending = {key.removeprefix(PENDING).decode() for key in self._database.keys(PENDING)}
        return {self.digest(), *pending}

    def close(self) -> None:
        """Closes the store."""
        self._database.close()

    def _read_kept(self) -> tuple[str, bytes]:
        value = self._database.read(KEPT) or b""
        return value[:16].decode().strip(), value[16:]

    def _read(self, digest: str) -> bytes | None:
        kept, packed = self._read_kept()
        if digest == kept:
            return packed or None
        return self._database.read(PENDING + digest.encode())


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
