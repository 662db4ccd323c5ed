"""Where things lie in the folder of a server, and in that of a site."""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from isthmus.errors import IsthmusError, quote
from isthmus.system.files import explain_unwritable, open_regular, write_bytes

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
TAKEN = {"server", "lead", "admin", "authority", "localhost", "all", "isthmus"}  # mean others


class ServerFolder(NamedTuple):
    """The folder of a server, made by `isthmus serve init`."""

    root: Path

    @property
    def settings(self) -> Path:
        """The host and port that sites are told, and the authority's fingerprint."""
        return self.root / "federation.toml"

    @property
    def authority(self) -> Path:
        """The key that signs, and its certificate: who has them decides who is a site."""
        return self.root / "authority"

    @property
    def kit(self) -> Path:
        """What the server's process runs from."""
        return self.root / "kit"

    @property
    def lead(self) -> Path:
        """The right to start and end runs, used by this machine alone."""
        return self.root / "lead"

    @property
    def sites(self) -> Path:
        """Who was admitted, with which certificate, until when, and who was revoked."""
        return self.root / "sites.toml"

    @property
    def plan(self) -> Path:
        """The experiment that is run, and how long the server waits for sites."""
        return self.root / "plan.toml"

    @property
    def run(self) -> Path:
        """The run's directory, an ordinary one."""
        return self.root / "run"

    @property
    def call(self) -> Path:
        """The call that is under way: who was asked, who has answered."""
        return self.root / "call.json"

    @property
    def events(self) -> Path:
        """What happened, one JSON object per line."""
        return self.root / "serve.jsonl"


class SiteFolder(NamedTuple):
    """The folder of a site, made by `isthmus join request`."""

    root: Path

    @property
    def settings(self) -> Path:
        """The site's name; once it is accepted, its server and the authority's fingerprint."""
        return self.root / "site.toml"

    @property
    def key(self) -> Path:
        """The private key, made here; it never leaves."""
        return self.root / "key"

    @property
    def kit(self) -> Path:
        """What the site's process runs from."""
        return self.root / "kit"

    @property
    def data(self) -> Path:
        """The data that are registered here, by name."""
        return self.root / "data.toml"

    @property
    def agreements(self) -> Path:
        """What this site consented to."""
        return self.root / "agreements"

    @property
    def state(self) -> Path:
        """Own states, personal models and figures."""
        return self.root / "state"

    @property
    def events(self) -> Path:
        """What the people of the site should know, one JSON object per line."""
        return self.root / "join.jsonl"

    @property
    def audit(self) -> Path:
        """Every call that was answered or refused, one line each."""
        return self.root / "audit.jsonl"


def find_server(folder: Path) -> ServerFolder:
    """Finds the federation in a folder."""
    if not ServerFolder(folder).settings.is_file():
        raise IsthmusError(
            f"{folder} holds no federation; expected the folder that `isthmus serve init` made; "
            "go there, or name it with --folder"
        )
    return ServerFolder(folder)


def find_site(folder: Path, *, accepted: bool = False) -> SiteFolder:
    """Finds the site in a folder; one that is accepted already, if that is asked for."""
    site = SiteFolder(folder)
    if not site.settings.is_file():
        raise IsthmusError(
            f"{folder} is no site's folder; expected the one where `isthmus join request` was "
            "called; go there, or name it with --folder"
        )
    if accepted and "host" not in read_table(site.settings):
        raise IsthmusError(
            f"{folder} belongs to a site that is not accepted; expected the package of its server; "
            "call `isthmus join accept PACKAGE --fingerprint F` first"
        )
    return site


def check_name(name: str) -> str:
    """Refuses what cannot name a site."""
    if not NAME.fullmatch(name) or name in TAKEN:
        raise IsthmusError(
            f"a site cannot be called {quote(name)}; expected at most 63 small letters, digits and "
            f"hyphens, beginning with a letter or digit, and none of {', '.join(sorted(TAKEN))}; "
            "for example hospital-a"
        )
    return name


def read_table(path: Path) -> dict[str, Any]:
    """Reads a TOML file of a folder."""
    try:
        with open_regular(path) as file:
            return tomllib.loads(file.read(2**20).decode())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise IsthmusError(
            f"{path} cannot be read ({reason}); expected it as isthmus wrote it; "
            "restore it from a backup"
        ) from None


def write_table(path: Path, table: Mapping[str, Any]) -> None:
    """Writes a TOML file of a folder."""
    import tomli_w

    write_bytes(path, tomli_w.dumps(table).encode(), sync=True)


def make_private(path: Path) -> None:
    """Makes a directory that its owner alone may look into."""
    with explain_unwritable(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_private(path: Path, data: bytes) -> None:
    """Writes a file that its owner alone may read, from its first instant on."""
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
