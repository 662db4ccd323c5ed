"""What a site keeps of a run: its own state, exactly once for each round that the server accepted.

A new own state is written before the reply leaves, beside the one that counts. The next call says
by its digest which of them the server counts on: that one stays, the others are dropped. Whoever
dies when, both sides agree.
"""

from pathlib import Path

from isthmus import tree
from isthmus.errors import IsthmusError
from isthmus.method import State
from isthmus.run.database import Database, is_blank
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

    def settle(self, committed: str) -> None:
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
