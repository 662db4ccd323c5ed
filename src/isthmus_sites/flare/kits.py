"""What NVFlare's processes run from: their addresses, keys and rules, all inside our folders.

The files lie in `files`, as NVFlare reads them: a server requires signed jobs and lets its lead, on
the same machine, submit and manage them; a site lets a job name one class, and nobody run code or a
shell, or read its logs. They are written again at each start, so that none can be out of date.
"""

import json
from importlib.resources import files
from pathlib import Path
from string import Template

from cryptography import x509

from isthmus.system.files import explain_unwritable, write_text
from isthmus_sites.flare import keys
from isthmus_sites.folders import ServerFolder, SiteFolder, make_private

BEAT = 5.0  # seconds between heartbeats of a site; a server takes six missing ones for its end
EXECUTOR = "isthmus_sites.flare.executor.SiteExecutor"  # what a job may name at a site
CONTROLLER = "isthmus_sites.flare.controller.RoundController"  # and at the server


def find_startup(kit: Path) -> Path:
    """Return where a kit has its keys and addresses."""
    return kit / "startup"


def write_server_kit(server: ServerFolder, host: str, port: int, lead_port: int) -> None:
    """Write what the server's process, and its lead on the same machine, need beside keys."""
    values = {"root": server.root, "host": host, "port": port, "lead_port": lead_port}
    for name, kit in (("server", server.kit), ("lead", server.lead)):
        _write_files(f"{name}/startup", find_startup(kit), **values)
        _write_files(f"{name}/local", kit / "local", **values)
    make_private(server.lead / "transfer")


def write_site_kit(
    site: SiteFolder,
    host: str,
    port: int,
    certificate: x509.Certificate,
    authority: x509.Certificate,
) -> None:
    """Write what a site's process needs: where its server is, its keys, and what it refuses."""
    startup = find_startup(site.kit)
    make_private(startup)
    with explain_unwritable(startup):
        (startup / "client.crt").write_bytes(keys.to_pem(certificate))
        (startup / "rootCA.pem").write_bytes(keys.to_pem(authority))
        link = startup / "client.key"
        link.unlink(missing_ok=True)
        link.symlink_to(Path("..") / ".." / site.key.name)  # one copy of a private key is enough
    name = keys.name_of(certificate.subject)
    _write_files("site/startup", startup, host=host, port=port, name=name)
    write_site_rules(site)


def write_site_rules(site: SiteFolder) -> None:
    """Write what a site allows: one class, no code, no shell, no logs to anybody."""
    _write_files("site/local", site.kit / "local")


def _write_files(kind: str, folder: Path, **values: object) -> None:
    """Write the files of a kind into a folder, with values in place of their $names."""
    quoted = {name: json.dumps(str(value))[1:-1] for name, value in values.items()}
    for file in (files("isthmus_sites.flare") / "files" / kind).iterdir():
        text = Template(file.read_text("utf-8")).substitute(quoted)
        write_text(folder / file.name, text)
