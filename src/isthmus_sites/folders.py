"""Where things are in the folder of a server, and in that of a site."""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isthmus.errors import IsthmusError, quote
from isthmus.system.files import (
    explain_unwritable,
    hold_lock,
    open_regular,
    take_lock,
    write_bytes,
)

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
TAKEN = {"server", "lead", "admin", "authority", "localhost", "all", "isthmus"}  # mean others


class ServerFolder:
    """The folder of a server, made by `isthmus serve init`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.settings = root / "federation.toml"  # host and port for sites, the fingerprint
        self.authority = root / "authority"  # the key that signs certificates, and its own
        self.kit = root / "kit"  # what the server's process runs from
        self.lead = root / "lead"  # the right to start and end runs, from this machine only
        self.sites = root / "sites.toml"  # who was admitted, until when, and who was revoked
        self.plan = root / "plan.toml"  # the experiment, and how long the server waits for sites
        self.run = root / "run"  # an ordinary run directory
        self.call = root / "call.json"  # the current call: who was asked, who has answered
        self.events = root / "serve.jsonl"  # what happened, one JSON object per line
        self.lock = root / "serve.lock"  # held by the process that serves the run


class SiteFolder:
    """The folder of a site, made by `isthmus join request`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.settings = root / "site.toml"  # its name; once accepted, its server and fingerprint
        self.key = root / "key"  # the private key, made here; it never leaves
        self.kit = root / "kit"  # what the site's process runs from
        self.data = root / "data.toml"  # registered data, by name
        self.agreements = root / "agreements"  # what this site consented to
        self.state = root / "state"  # own states, personal models and figures
        self.events = root / "join.jsonl"  # what happened, one JSON object per line
        self.audit = root / "audit.jsonl"  # every call, answered or refused, one line each

    def alone(self, digest: str) -> Path:
        """Return the file with the figures of training alone, for the experiment of a digest."""
        return self.state / f"{digest}.alone.json"


def find_server(folder: Path) -> ServerFolder:
    """Return the federation in a folder."""
    if not ServerFolder(folder).settings.is_file():
        raise IsthmusError(f"{folder} holds no federation; name its folder with --folder")
    return ServerFolder(folder)


def find_site(folder: Path, *, accepted: bool = False) -> SiteFolder:
    """Return the site in a folder; with `accepted`, refuse one that no server has accepted."""
    site = SiteFolder(folder)
    if not site.settings.is_file():
        raise IsthmusError(
            f"{folder} is no site's folder; name the one of `isthmus join request` with --folder"
        )
    if accepted and "host" not in read_table(site.settings):
        raise IsthmusError(
            f"{folder} is not accepted by a server yet; call `isthmus join accept PACKAGE`"
        )
    return site


def check_name(name: str) -> str:
    """Return the name of a site, or refuse it."""
    if not NAME.fullmatch(name) or name in TAKEN:
        raise IsthmusError(
            f"a site cannot be called {quote(name)}; use up to 63 small letters, digits and "
            f"hyphens, as in hospital-a, but none of {', '.join(sorted(TAKEN))}"
        )
    return name


def read_table(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file of a folder."""
    try:
        with open_regular(path) as file:
            return tomllib.loads(file.read(2**20).decode())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise IsthmusError(f"{path} cannot be read ({reason}); restore it from a backup") from None


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; None where there is none that can be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def write_table(path: Path, table: Mapping[str, Any]) -> None:
    """Write a TOML file of a folder."""
    import tomli_w

    write_bytes(path, tomli_w.dumps(table).encode(), sync=True)


def make_private(path: Path) -> None:
    """Make a directory that only its owner can open."""
    with explain_unwritable(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, from the moment it exists."""
    with explain_unwritable(path):
        make_private(path.parent)
        draft = path.with_name(f"{path.name}.new")
        draft.unlink(missing_ok=True)
        number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)


@contextmanager
def hold(path: Path, seconds: float, busy: str) -> Iterator[None]:
    """Hold a lock file; raise an error with this text if another process does for longer."""
    try:
        with hold_lock(path, seconds, lambda: None):
            yield
    except TimeoutError:
        raise IsthmusError(busy) from None


def is_held(path: Path) -> bool:
    """Whether a process holds a lock file; one that was killed leaves the file behind, unlocked."""
    try:
        with path.open("rb") as file:
            take_lock(file)
    except BlockingIOError:
        return True
    except OSError:  # there is no file, or the disk has no locks
        return False
    return False
