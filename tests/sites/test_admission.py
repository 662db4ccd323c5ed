"""How sites get into a federation: what the commands make, and what they refuse."""

import itertools
import json
import socket
import stat
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509

from commands import Isthmus
from golden import check, raises
from isthmus.errors import IsthmusError
from isthmus.system.files import hold_lock
from isthmus_sites.flare import keys
from isthmus_sites.flare.admission import (
    accept_admission,
    admit_site,
    begin_federation,
    read_sites,
    renew_server,
    request_admission,
    revoke_site,
)
from isthmus_sites.flare.controller import control_file
from isthmus_sites.flare.supervisor import supervise
from isthmus_sites.folders import ServerFolder, SiteFolder, read_table, write_table


@pytest.fixture(scope="module", autouse=True)
def _quick_keys() -> Iterator[None]:
    """Makes small keys: twenty of full size take as many seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "BITS", 1024)
        yield


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> tuple[ServerFolder, str]:
    folder = tmp_path_factory.mktemp("server") / "federation"
    return ServerFolder(folder), begin_federation(folder, "127.0.0.1", 8002)


class Asked:
    """A site that has asked and was admitted, and has not accepted yet."""

    def __init__(self, server: ServerFolder, place: Path, name: str) -> None:
        self.server, self.site, self.name = server, SiteFolder(place / name), name
        self.site.root.mkdir()
        self.request = request_admission(self.site.root, name)
        self.package, self.finger = admit_site(server.root, self.request, place)


@pytest.fixture(scope="module")
def asked(federation: tuple[ServerFolder, str], tmp_path_factory: pytest.TempPathFactory) -> Asked:
    return Asked(federation[0], tmp_path_factory.mktemp("asked"), "hospital-a")


@pytest.fixture(scope="module")
def other(federation: tuple[ServerFolder, str], tmp_path_factory: pytest.TempPathFactory) -> Asked:
    return Asked(federation[0], tmp_path_factory.mktemp("other"), "hospital-b")


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(path: Path, parts: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def test_from_nothing_to_an_accepted_site_by_commands(isthmus: Isthmus) -> None:
    begun = isthmus("serve", "init", "trial", "--host", "127.0.0.1", "--port", "8002")
    assert begun.code == 0, begun.err
    finger = begun.out.partition("fingerprint: ")[2].split()[0]
    Path("site").mkdir()
    asked = isthmus("join", "request", "--name", "hospital-a", "--folder", "site")
    assert asked.code == 0, asked.err
    admitted = isthmus("serve", "admit", "site/hospital-a.request.zip", "--folder", "trial")
    assert f"telephone: {finger}" in admitted.out
    words = ["join", "accept", "hospital-a.package.zip", "--folder", "site", "--fingerprint"]
    wrong = isthmus(*words, finger[::-1]).mistake
    check(wrong)
    assert finger not in wrong
    check(isthmus(*words, finger.lower().replace("-", " ")).out)
    assert isthmus("serve", "revoke", "hospital-a", "--folder", "trial").code == 0
    assert read_sites(ServerFolder(Path("trial")))["hospital-a"].revoked


def test_private_keys_are_their_owners_alone_and_do_not_travel(asked: Asked) -> None:
    server = asked.server
    for path in (
        server.authority / "key",
        server.kit / "startup" / "server.key",
        server.lead / "startup" / "client.key",
        asked.site.root / "key.asked",
    ):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(server.root.stat().st_mode) == 0o700
    for archive in (asked.request, asked.package):
        assert not any(b"PRIVATE" in data for data in members(archive).values())


def test_a_name_is_taken_once(asked: Asked, tmp_path: Path) -> None:
    with raises(IsthmusError):
        admit_site(asked.server.root, asked.request, tmp_path)


@pytest.mark.parametrize(
    "name", ["", "Hospital", "-a", "a.b", "../a", "a" * 64, "server", "lead", "a\n", "ä"]
)
def test_odd_names_are_refused(tmp_path: Path, name: str) -> None:
    with raises(IsthmusError):
        request_admission(tmp_path, name)
    assert not any(tmp_path.iterdir())


Change = Callable[[dict[str, bytes]], dict[str, bytes]]


def break_signature(parts: dict[str, bytes]) -> dict[str, bytes]:
    request = x509.load_pem_x509_csr(parts["request.csr"])
    data = bytearray(request.public_bytes(keys.serialization.Encoding.DER))
    data[-1] ^= 1
    broken = x509.load_der_x509_csr(bytes(data)).public_bytes(keys.serialization.Encoding.PEM)
    return parts | {"request.csr": broken}


REQUESTS: dict[str, Change] = {
    "another name outside": lambda parts: (
        parts | {"request.json": b'{"format": 1, "name": "hospital-x"}'}
    ),
    "an odd name": lambda parts: parts | {"request.json": b'{"format": 1, "name": "../../etc"}'},
    "another format": lambda parts: (
        parts | {"request.json": b'{"format": 9, "name": "hospital-a"}'}
    ),
    "more than is expected": lambda parts: (
        parts | {"request.json": b'{"format": 1, "name": "a", "b": 1}'}
    ),
    "no JSON": lambda parts: parts | {"request.json": b"[" * 10_000},
    "no request": lambda parts: parts | {"request.csr": b"nothing"},
    "one file more": lambda parts: parts | {"../../evil": b""},
    "one file less": lambda parts: {"request.csr": parts["request.csr"]},
    "a large file": lambda parts: parts | {"request.csr": bytes(2**17)},
    "a broken signature": break_signature,
    "a packed file": lambda parts: parts,  # a few bytes can be zeros without end
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_was_changed_is_refused(asked: Asked, tmp_path: Path, name: str) -> None:
    change = REQUESTS[name]
    method = zipfile.ZIP_DEFLATED if name == "a packed file" else zipfile.ZIP_STORED
    path = pack(tmp_path / "changed.zip", change(members(asked.request)), method)
    before = asked.server.sites.read_bytes()
    with raises(IsthmusError):
        admit_site(asked.server.root, path, tmp_path)
    assert asked.server.sites.read_bytes() == before


@pytest.mark.parametrize("data", [b"", b"no zip", b"PK\x03\x04" + bytes(100)])
def test_what_is_no_archive_is_refused(asked: Asked, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "odd.zip"
    path.write_bytes(data)
    with raises(IsthmusError):
        admit_site(asked.server.root, path, tmp_path)
    with raises(IsthmusError):
        accept_admission(asked.site.root, path, asked.finger)


PACKAGES: dict[str, Callable[[dict[str, bytes], dict[str, bytes]], dict[str, bytes]]] = {
    "another server": lambda own, other: (
        own | {"package.json": own["package.json"].replace(b"127.0.0.1", b"127.0.0.2")}
    ),
    "the certificate of another site": lambda own, other: own | {"site.crt": other["site.crt"]},
    "the signature of another package": lambda own, other: own | {"signature": other["signature"]},
    "no signature": lambda own, other: own | {"signature": b""},
    "members that changed names": lambda own, other: (
        own | {"package.json": own["site.crt"], "site.crt": own["package.json"]}
    ),
}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_that_was_changed_is_refused(
    asked: Asked, other: Asked, tmp_path: Path, name: str
) -> None:
    parts = PACKAGES[name](members(asked.package), members(other.package))
    with raises(IsthmusError):
        accept_admission(asked.site.root, pack(tmp_path / "a.zip", parts), asked.finger)
    assert "host" not in read_table(asked.site.settings)


def test_a_package_is_for_one_name_and_one_key(asked: Asked, other: Asked, tmp_path: Path) -> None:
    with raises(IsthmusError):
        accept_admission(asked.site.root, other.package, asked.finger)
    request_admission(tmp_path, "hospital-a")  # whoever stole the package has no key for it
    with raises(IsthmusError):
        accept_admission(tmp_path, asked.package, asked.finger)
    assert not SiteFolder(tmp_path).kit.exists()


def test_a_package_of_another_authority_is_refused(asked: Asked, tmp_path: Path) -> None:
    """Who sits between can make all of it but the fingerprint."""
    begin_federation(tmp_path / "false", "127.0.0.1", 8002)
    package, finger = admit_site(tmp_path / "false", asked.request, tmp_path)
    assert finger != asked.finger
    with raises(IsthmusError):
        accept_admission(asked.site.root, package, asked.finger)
    parts = members(package) | {"authority.crt": members(asked.package)["authority.crt"]}
    with raises(IsthmusError):
        accept_admission(asked.site.root, pack(tmp_path / "a.zip", parts), asked.finger)


def test_an_expired_certificate_is_refused_and_renewed(
    federation: tuple[ServerFolder, str], tmp_path: Path
) -> None:
    """The key before works until the new certificate is here; afterwards it counts no more."""
    server, finger = federation
    request = request_admission(tmp_path, "clinic")
    ended, _ = admit_site(server.root, request, tmp_path, days=-0.5)
    with raises(IsthmusError):
        accept_admission(tmp_path, ended, finger)
    good, _ = admit_site(server.root, request, tmp_path, again=True)
    site = accept_admission(tmp_path, good, finger)
    first, hashed = site.key.read_bytes(), read_sites(server)["clinic"].certificate
    with raises(IsthmusError):
        request_admission(tmp_path, "clinic")
    request = request_admission(tmp_path, "clinic", again=True)
    assert site.key.read_bytes() == first
    package, _ = admit_site(server.root, request, tmp_path, again=True)
    for _ in range(2):  # as often as one likes
        accept_admission(tmp_path, package, finger)
    assert (site.kit / "startup" / "client.key").read_bytes() == site.key.read_bytes() != first
    assert read_sites(server)["clinic"].certificate != hashed


def test_a_revoked_site_is_admitted_only_when_somebody_says_so(
    federation: tuple[ServerFolder, str], tmp_path: Path
) -> None:
    server, _ = federation
    request = request_admission(tmp_path, "bank")
    admit_site(server.root, request, tmp_path)
    revoke_site(server.root, "bank")
    with raises(IsthmusError):
        admit_site(server.root, request, tmp_path)
    admit_site(server.root, request, tmp_path, again=True)
    assert not read_sites(server)["bank"].revoked
    with raises(IsthmusError):
        revoke_site(server.root, "banc")


@pytest.mark.parametrize("days", [10, -0.5])
def test_a_servers_certificate_is_renewed_with_the_authoritys_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: float
) -> None:
    monkeypatch.setattr(keys, "SERVER_DAYS", days)
    begin_federation(tmp_path / "a", "fl.example.org", 8002)
    monkeypatch.undo()
    server = ServerFolder(tmp_path / "a")
    (server.authority / "key").rename(tmp_path / "drawer")
    if days < 0:
        with raises(IsthmusError):
            renew_server(server)
    else:
        check(renew_server(server))
    (tmp_path / "drawer").rename(server.authority / "key")
    check(renew_server(server))
    assert renew_server(server) == ""


def test_a_server_moves_and_its_sites_follow_with_new_packages(
    isthmus: Isthmus, tmp_path: Path
) -> None:
    """The key of a site, its name and the fingerprint are those of before."""
    folder = tmp_path / "a"
    finger = begin_federation(folder, "fl.example.org", 8002)
    request = request_admission(tmp_path / "site", "ulm")
    package, _ = admit_site(folder, request, tmp_path)
    site = accept_admission(tmp_path / "site", package, finger)
    key = site.key.read_bytes()
    with hold_lock(folder / "serve.lock", 0, lambda: None):
        line = isthmus("serve", "move", "--host", "fl2.example.org", "--folder", "a").mistake
    check(line)
    check(isthmus("serve", "move", "--folder", "a").mistake)
    check(isthmus("serve", "move", "--port", "0", "--folder", "a").mistake)
    check(isthmus("serve", "move", "--host", "fl2.example.org", "--folder", "a").out)
    certificate = (folder / "kit" / "startup" / "server.crt").read_bytes()
    names = x509.load_pem_x509_certificate(certificate).extensions
    assert "fl2.example.org" in names.get_extension_for_class(
        x509.SubjectAlternativeName
    ).value.get_values_for_type(x509.DNSName)
    package, again = admit_site(folder, request, tmp_path, again=True)
    accept_admission(tmp_path / "site", package, finger)
    assert again == finger
    assert site.key.read_bytes() == key
    assert read_table(site.settings)["host"] == "fl2.example.org"


def test_a_site_without_certificate_or_data_or_that_left_does_not_start(
    isthmus: Isthmus, federation: tuple[ServerFolder, str], tmp_path: Path
) -> None:
    server, finger = federation
    assert "not accepted" in _start_anew(isthmus, tmp_path, "factory")
    package, _ = admit_site(server.root, tmp_path / "factory.request.zip", tmp_path)
    site = accept_admission(tmp_path, package, finger)
    unit = isthmus("join", "start", "--unit").out
    assert f'ExecStart="{sys.executable}" -m isthmus join start --folder "{tmp_path}"' in unit
    table = read_table(site.settings)
    ended = table["until"].replace(year=2020)
    write_table(site.settings, {**table, "until": ended})
    check(isthmus("join", "start").mistake)
    write_table(site.settings, table)
    agreed = {"experiment": "", "site": "factory", "data": str(tmp_path / "moved.csv")}
    write_table(site.agreements / "0123.toml", agreed)
    check(isthmus("join", "start").mistake)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    check(isthmus("join", "leave").out)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
    check(isthmus("join", "start").mistake)


def _start_anew(isthmus: Isthmus, folder: Path, name: str) -> str:
    request_admission(folder, name)
    return isthmus("join", "start").mistake


def test_a_server_needs_its_port_and_its_folder_for_itself(
    isthmus: Isthmus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        begin_federation(tmp_path / "a", "127.0.0.1", taken.getsockname()[1])
        check(isthmus("serve", "stop", "--folder", "a").mistake)
        monkeypatch.setattr(time, "monotonic", itertools.count(0.0, 5.0).__next__)
        with raises(IsthmusError):
            supervise(tmp_path / "a", ["hospital-a"], 1.0, say=lambda text: None)
    monkeypatch.undo()
    with hold_lock(tmp_path / "a" / "serve.lock", 0, lambda: None):
        stopping = isthmus("serve", "stop", "--folder", str(tmp_path / "a"))
    check(stopping.out)
    said: list[str] = []
    # Who was asked was killed meanwhile: the wish counts for the next one, and for no other.
    assert supervise(tmp_path / "a", ["hospital-a"], 1.0, said.append) is False
    check(*said)
    assert not control_file(ServerFolder(tmp_path / "a"), "stop").exists()


MISTAKES = {
    "nothing to go on with": ["serve", "resume", "--folder", "full"],
    "nothing to stop": ["serve", "stop"],
    "no federation": ["serve", "admit", "a.zip"],
    "no site": ["join", "accept", "a.zip", "--fingerprint", "A"],
    "an odd host": ["serve", "init", "new", "--host", "a b"],
    "half an address": ["serve", "init", "new", "--host", "10.0.0"],
    "an odd port": ["serve", "init", "new", "--host", "a", "--port", "0"],
    "a folder that is full": ["serve", "init", "full", "--host", "a"],
    "an odd name": ["join", "request", "--name", "A"],
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing(isthmus: Isthmus, name: str) -> None:
    Path("full").mkdir()
    Path("full/precious").touch()
    check(isthmus(*MISTAKES[name]).mistake)
    assert {str(path) for path in Path().rglob("*")} == {"full", "full/precious"}


def test_what_a_site_allows_is_written_at_accept(asked: Asked) -> None:
    """One class, no code, no shell, no logs to anybody, whatever the role."""
    accept_admission(asked.site.root, asked.package, asked.finger)
    local = asked.site.kit / "local"
    resources = json.loads((local / "resources.json").read_text())
    assert resources["class_allow_list"] == ["isthmus_sites.flare.executor.SiteExecutor"]
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["allow_log_streaming"] is False
    roles = json.loads((local / "authorization.json").read_text())["permissions"]
    for role, rights in roles.items():
        given = {right for right, who in rights.items() if who != "none"}
        assert given == ({"submit_job"} if role == "lead" else set())
