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
from isthmus_sites.folders import make_private, read_json

KEPT, ROUND = b"kept", b"round"
PENDING = b"pending/"  # and the digest
PINNED = b"pinned/"  # and a name


class UnknownStateError(IsthmusError):
    """The server counts on a state that this site does not hold."""

    code = "state"  # of `REFUSALS`


class SiteStates:
    """The own states of one client, in its site's store."""

    def __init__(self, path: Path):
        make_private(path.parent)
        self._database = Database(path, new=not path.exists() or is_blank(path))

    @property
    def round(self) -> int:
        """The latest round in which it answered; -1: none."""
        return int(self._database.read(ROUND) or b"-1")

    def find(self, committed: str, accepted: str, like: State) -> State | None:
        """Return the own state of a digest; None where it is the initial one.

        Raises UnknownStateError where either is not here: this site, or the server, was restored
        from an older copy, or the run began again.
        """
        held = self.list_held()
        for digest in (committed, accepted):
            if digest not in held:
                kept = self.digest()
                raise UnknownStateError(
                    f"the server counts on the own state {digest or 'of the start'}; this site "
                    f"holds {kept or 'that of the start'}; one of them is an older copy"
                )
        packed = self._read(accepted)
        return None if packed is None else tree.unpack(packed, like=like)

    def answer(self, t: int, committed: str, accepted: str, own: State) -> str:
        """Write the state after a call, keep the committed one; return the new one's digest."""
        changes = self._keep(committed, but=accepted)
        changes[ROUND] = str(t).encode()
        digest = tree.digest([own]) if own != () else ""
        if own != ():
            changes[PENDING + digest.encode()] = tree.pack(own)
        self._database.write(changes)
        return digest

    def finalize(self, committed: str) -> None:
        """Keep the committed state, and drop the others."""
        self._database.write(self._keep(committed))

    def replace(self, t: int, own: State) -> None:
        """Keep what a newcomer made in place of all before: no server counts on it."""
        kept = tree.digest([own]).encode().ljust(16) + tree.pack(own)
        self._database.write({ROUND: str(t).encode(), KEPT: kept})

    def pin(self, name: bytes, value: bytes) -> bytes:
        """Return the value of a name, which is this one if there was none before."""
        known = self._database.read(PINNED + name)
        if known is None:
            self._database.write({PINNED + name: value})
        return value if known is None else known

    def digest(self) -> str:
        """Return the digest of the kept own state; empty: the initial one."""
        return self._read_kept()[0]

    def list_held(self) -> set[str]:
        """Return the digests of all own states here: the kept one, and those pending."""
        pending = {key.removeprefix(PENDING).decode() for key in self._database.keys(PENDING)}
        return {self.digest(), *pending}

    def close(self) -> None:
        """Close the store."""
        self._database.close()

    def _keep(self, committed: str, but: str = "") -> dict[bytes, bytes | None]:
        """Return the changes that keep the committed state and drop pending ones but one."""
        changes: dict[bytes, bytes | None] = {
            key: None for key in self._database.keys(PENDING) if key != PENDING + but.encode()
        }
        if committed != self.digest():
            changes[KEPT] = committed.encode().ljust(16) + (self._read(committed) or b"")
        return changes

    def _read_kept(self) -> tuple[str, bytes]:
        value = self._database.read(KEPT) or b""
        return value[:16].decode().strip(), value[16:]

    def _read(self, digest: str) -> bytes | None:
        kept, packed = self._read_kept()
        if digest == kept:
            return packed or None
        return self._database.read(PENDING + digest.encode())


# The personal models lie in files beside the store, so that the site's people can look at them and
# predict with them during the run. A file has the parameters, and their place on the
# method's path: what chooses or tunes them are the site's data as they were then.
WHICH = ("best", "last")


class Snapshot(NamedTuple):
    """A personal model, and after which round it was."""

    point: Point
    t: int
    scales: Scales | None = None  # of its inputs, where they were learned


class SiteModels:
    """The personal models of one run at a site; `store` is the path of its own states."""

    def __init__(self, store: Path):
        self._store = store

    def keep(self, snapshot: Snapshot, figures: dict[str, Any], loss: float | None) -> None:
        """Keep the model that was evaluated, and its figures; `loss` is on validation data."""
        row = {"t": snapshot.t, "loss": loss, "figures": figures}
        scales = [part.tolist() for part in snapshot.scales] if snapshot.scales else None
        head = row if scales is None else {**row, "scales": scales}
        packed = json.dumps(head).encode() + b"\n" + tree.pack(snapshot.point)
        before = [row for row in self.read_figures() if row["t"] < snapshot.t]
        losses = [row["loss"] for row in before if row["loss"] is not None]
        if loss is None or loss < min(losses, default=float("inf")):
            write_bytes(self._name("best.model"), packed, sync=True)
        write_bytes(self._name("last.model"), packed, sync=True)
        text = json.dumps([*before, row], indent=1) + "\n"
        write_text(self._name("figures.json"), text, sync=True)

    def read_figures(self) -> list[dict[str, Any]]:
        """Return how the models did after each round that was evaluated."""
        rows: list[dict[str, Any]] = read_json(self._name("figures.json")) or []
        return rows

    def open(self, which: str, setting: RunContext, client: int) -> Personal:
        """Open the best or the last model."""
        _, packed = self._load(which)
        blank = torch.empty(0)
        return Personal(setting, client, *tree.unpack(packed, like=Point(blank, blank)))

    def read_scales(self, which: str) -> Scales | None:
        """Return what the inputs of the best or the last model are scaled by."""
        scales = self._load(which)[0].get("scales")
        return None if scales is None else Scales(*map(np.array, scales))

    def _load(self, which: str) -> tuple[dict[str, Any], bytes]:
        if which not in WHICH:
            raise IsthmusError(f"which={which}; use best or last")
        try:
            head, _, packed = self._name(f"{which}.model").read_bytes().partition(b"\n")
        except OSError:
            raise IsthmusError(
                f"this site has no {which} model yet; wait for its next evaluation"
            ) from None
        return json.loads(head), packed

    def _name(self, suffix: str) -> Path:
        return self._store.with_suffix(f".{suffix}")
