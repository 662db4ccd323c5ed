"""What a site keeps of a run: its own state, exactly once for each round that the server accepted.

A new own state is written before the reply leaves, beside the one that counts. The next call says
by its digest which of them the server counts on: that one stays, the others are dropped. Whoever
dies when, both sides agree.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from isthmus import tree
from isthmus.errors import IsthmusError
from isthmus.method import State
from isthmus.storage.database import Database, is_blank
from isthmus.system.files import write_text

KEPT, ROUND = b"kept", b"round"
PENDING = b"pending/"  # and the digest
FIGURES = b"figures/"  # and the round
MODEL = b"model/"  # and "last" or "best"


class UnknownStateError(IsthmusError):
    """Says that the server counts on a state that this site does not hold."""


class Snapshot(NamedTuple):
    """All that a personal model is made of: an own state, what was received, a place on a path."""

    own: State
    received: tuple[State, ...]
    choice: int | None
    t: int


class SiteStates:
    """The own states of one client, in its site's store."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists() or is_blank(path)
        self._path = path
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

    def settle(self, committed: str) -> None:
        """Lets the state that counts stay, and drops the others."""
        changes: dict[bytes, bytes | None] = dict.fromkeys(self._database.keys(PENDING))
        kept, _ = self._read_kept()
        if committed != kept:
            changes[KEPT] = committed.encode().ljust(16) + (self._read(committed) or b"")
        self._database.write(changes)

    def keep_model(self, snapshot: Snapshot, figures: dict[str, Any], loss: float | None) -> None:
        """Writes what was evaluated, and whether it is the best on validation data so far."""
        head = {"t": snapshot.t, "choice": snapshot.choice, "loss": loss, "figures": figures}
        packed = tree.pack((snapshot.own, snapshot.received))
        value = json.dumps(head).encode() + b"\n" + packed
        changes: dict[bytes, bytes | None] = {MODEL + b"last": value}
        changes[FIGURES + b"%012d" % snapshot.t] = json.dumps(head).encode()
        best = self.read_model_facts("best")
        if loss is not None and (best is None or loss < best["loss"]):
            changes[MODEL + b"best"] = value
        self._database.write(changes)
        keys = self._database.keys(FIGURES)
        rows = [json.loads(self._database.read(key) or b"{}") for key in keys]
        write_text(name_figures(self._path), json.dumps(rows, indent=1) + "\n")

    def read_model_facts(self, which: str) -> dict[str, Any] | None:
        """Reads of which round the last or the best model is, and how it did."""
        value = self._database.read(MODEL + which.encode())
        if value is None:
            return None
        facts: dict[str, Any] = json.loads(value.partition(b"\n")[0])
        return facts

    def read_model(self, which: str, like: tuple[State, tuple[State, ...]]) -> Snapshot:
        """Reads what the last or the best personal model is made of."""
        value, facts = self._database.read(MODEL + which.encode()), self.read_model_facts(which)
        if value is None or facts is None:
            raise IsthmusError(
                f"this site has no {which} model yet; expected a run that was evaluated; wait for "
                "its next evaluation"
            )
        own, received = tree.unpack(value.partition(b"\n")[2], like=like)
        return Snapshot(own, received, facts["choice"], facts["t"])

    def digest(self) -> str:
        """Names the own state that counts, as of the last call; empty: that of the start."""
        return self._read_kept()[0]

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


def name_figures(path: Path) -> Path:
    """Names the file beside a store that anybody may read while its run goes on."""
    return path.with_suffix(".figures.json")


def read_figures(path: Path) -> list[dict[str, Any]]:
    """Reads how a site's models did after each round that was evaluated."""
    try:
        rows: list[dict[str, Any]] = json.loads(name_figures(path).read_text("utf-8"))
    except (OSError, ValueError):
        return []
    return rows
