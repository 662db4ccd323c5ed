"""How a federation begins, and how sites get into it and out of it.

A site makes its key and keeps it; a request travels, and a signed package comes back. What makes
the package believable is the authority's fingerprint, which travels by another way: a telephone.
"""

import datetime as dt
import ipaddress
import json
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from isthmus.errors import IsthmusError, nearest, quote
from isthmus_sites.flare import keys, kits
from isthmus_sites.flare.archives import FORMAT, read_archive, read_head, refuse, write_archive
from isthmus_sites.folders import (
    ServerFolder,
    SiteFolder,
    check_name,
    find_server,
    find_site,
    hold,
    make_private,
    read_table,
    write_table,
)

REQUEST = ("request.json", "request.csr")
PACKAGE = ("package.json", "site.crt", "authority.crt", "signature")
ASKING, ADMITTING = "isthmus join request", "isthmus serve admit"
HOST = re.compile(r"(?=.{1,253}$)[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?")
SOON = dt.timedelta(days=30)


class Admission(NamedTuple):
    """A site that was admitted, as the server keeps it."""

    certificate: str  # the hash of the one that counts
    admitted: dt.datetime
    until: dt.datetime
    revoked: bool = False
    left: dt.datetime | None = None  # when it said that it takes part no more


def begin_federation(folder: Path, host: str, port: int) -> str:
    """Create an authority, the server's kit and the lead's key; return the fingerprint."""
    _check_place(host, port)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise IsthmusError(f"{folder} is not empty; name a new folder")
    server = ServerFolder(folder)
    make_private(folder)
    signer = keys.make_key()
    authority = keys.make_authority(signer)
    keys.write_key(server.authority / "key", signer)
    (server.authority / "authority.crt").write_bytes(keys.to_pem(authority))
    _issue_server(server, authority, signer, host)
    finger = keys.format_fingerprint(authority)
    made = dt.datetime.now(dt.UTC).replace(microsecond=0)
    write_table(server.sites, {})
    settings = {"host": host, "port": port, "fingerprint": finger, "made": made}
    write_table(server.settings, settings)
    return finger


def move_server(folder: Path, host: str = "", port: int = 0) -> tuple[str, list[str]]:
    """Change a server's address; return it, and the sites that need new packages."""
    server = find_server(folder)
    settings = read_table(server.settings)
    host, port = host or str(settings["host"]), port or int(settings["port"])
    _check_place(host, port)
    authority, signer = _open_authority(server)
    busy = f"{folder} is being served; stop it with `isthmus serve stop` first"
    with hold(server.lock, 0, busy):
        _issue_server(server, authority, signer, host)
        write_table(server.settings, {**settings, "host": host, "port": port})
    return f"{host}:{port}", [n for n, site in read_sites(server).items() if not site.revoked]


def renew_server(server: ServerFolder) -> str:
    """Sign new certificates for the server and its lead when theirs end soon; return a note."""
    certificate = _read_certificate(kits.find_startup(server.kit) / "server.crt")
    if certificate.not_valid_after_utc - SOON > dt.datetime.now(dt.UTC):
        return ""
    until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    if not (server.authority / "key").exists():
        if not keys.is_valid_now(certificate):
            raise IsthmusError(
                f"the server's certificate ended on {until}; bring back {server.authority / 'key'} "
                "to sign another"
            )
        return f"the server's certificate ends on {until}, and the authority's key is not here"
    authority, signer = _open_authority(server)
    _issue_server(server, authority, signer, str(read_table(server.settings)["host"]))
    return f"the server's certificate ended on {until}: there is a new one"


def request_admission(folder: Path, name: str, *, again: bool = False) -> Path:
    """Create a key that stays here; return the file of the request that travels."""
    check_name(name)
    site = SiteFolder(folder)
    if site.settings.exists():
        there = str(read_table(site.settings).get("name"))
        if there != name:
            raise IsthmusError(f"{folder} is the folder of {there}; name another with --folder")
        if not again:
            raise IsthmusError(
                f"{name} has asked already; send {name}.request.zip, or make a new key with --renew"
            )
    else:
        write_table(site.settings, {"name": name})
    key = keys.make_key()
    keys.write_key(_find_new(site), key)
    head = json.dumps({"format": FORMAT, "name": name}).encode()
    request = folder / f"{name}.request.zip"
    write_archive(request, dict(zip(REQUEST, (head, keys.make_request(name, key)), strict=True)))
    return request


def admit_site(
    folder: Path, request: Path, out: Path, *, again: bool = False, days: float = keys.SITE_DAYS
) -> tuple[Path, str]:
    """Sign what a site asks for; return its package and the authority's fingerprint."""
    server = find_server(folder)
    settings = read_table(server.settings)
    name, key = _read_request(request)
    with _hold(server):
        sites = read_sites(server)
        if name in sites and not again:
            state = "revoked" if sites[name].revoked else "admitted already"
            raise IsthmusError(
                f"{name} is {state}; for a new key or certificate of the same site, use --renew"
            )
        authority, signer = _open_authority(server)
        certificate = keys.sign_certificate(authority, signer, name, key, days=days)
        head = {"format": FORMAT, "name": name, "host": settings["host"], "port": settings["port"]}
        parts = [json.dumps(head).encode(), keys.to_pem(certificate), keys.to_pem(authority)]
        members = dict(zip(PACKAGE, parts, strict=False))
        members["signature"] = keys.sign_bytes(signer, _join_members(members))
        package = out / f"{name}.package.zip"
        write_archive(package, members)
        now = dt.datetime.now(dt.UTC).replace(microsecond=0)
        hashed = keys.hash_certificate(certificate)
        sites[name] = Admission(hashed, now, certificate.not_valid_after_utc)
        _write_sites(server, sites)
    return package, keys.format_fingerprint(authority)


def accept_admission(folder: Path, package: Path, fingerprint: str) -> SiteFolder:
    """Check a package against the fingerprint and this site's key, and put it in its place."""
    site = find_site(folder)
    name = str(read_table(site.settings)["name"])
    members = read_archive(package, PACKAGE, ADMITTING)
    authority = _load(package, members["authority.crt"])
    if not keys.same_fingerprint(authority, fingerprint):
        raise IsthmusError(
            f"{package} has another fingerprint than {quote(fingerprint)}; ask the server's people "
            "for it by telephone, and do not accept the package otherwise"
        )
    signature = members.pop("signature")
    if not keys.is_signed(authority, signature, _join_members(members)):
        refuse(package, "it was changed after it was signed", ADMITTING)
    kinds = {"name": str, "host": str, "port": int}
    head = read_head(package, members["package.json"], kinds, ADMITTING)
    certificate = _load(package, members["site.crt"])
    if head["name"] != name or keys.name_of(certificate.subject) != name:
        refuse(package, f"it is for {quote(head['name'])}, and this site is {name}", ADMITTING)
    if not keys.was_signed_by(certificate, authority):
        refuse(package, "its certificate is signed by another authority", ADMITTING)
    if not keys.is_valid_now(certificate) or not keys.is_valid_now(authority):
        last = f"{min(c.not_valid_after_utc for c in (certificate, authority)):%Y-%m-%d}"
        refuse(package, f"its certificate is valid until {last}, by this clock", ADMITTING)
    _install_key(site, certificate, package)
    kits.write_site_kit(site, head["host"], head["port"], certificate, authority)
    settings = {"name": name, "host": head["host"], "port": head["port"]}
    finger, until = keys.format_fingerprint(authority), certificate.not_valid_after_utc
    write_table(site.settings, {**settings, "fingerprint": finger, "until": until})
    return site


def revoke_site(folder: Path, name: str) -> None:
    """Revoke a site's certificate; a current run drops the site at once."""
    server = find_server(folder)
    with _hold(server):
        sites = read_sites(server)
        if name not in sites:
            known = nearest(name, list(sites)) if sites else "nobody was"
            raise IsthmusError(f"{quote(name)} was not admitted here; {known}")
        _write_sites(server, {**sites, name: sites[name]._replace(revoked=True)})


def note_leaving(server: ServerFolder, name: str, *, left: bool) -> None:
    """Record that a site has left, or that it is back."""
    with _hold(server):
        sites = read_sites(server)
        if name in sites and (sites[name].left is not None) != left:
            when = dt.datetime.now(dt.UTC).replace(microsecond=0) if left else None
            _write_sites(server, {**sites, name: sites[name]._replace(left=when)})


def read_sites(server: ServerFolder) -> dict[str, Admission]:
    """Read who was admitted, in the order in which they were."""
    try:
        return {name: Admission(**row) for name, row in read_table(server.sites).items()}
    except TypeError:
        raise IsthmusError(f"{server.sites} is damaged; restore it from a backup") from None


def _write_sites(server: ServerFolder, sites: Mapping[str, Admission]) -> None:
    rows = {name: site._asdict() for name, site in sites.items()}
    told = {name: {k: v for k, v in row.items() if v is not None} for name, row in rows.items()}
    write_table(server.sites, told)


def _hold(server: ServerFolder) -> AbstractContextManager[None]:
    """Hold the lock of the process that changes who is admitted."""
    return hold(
        server.root / "sites.lock",
        10,
        f"{server.sites} is being changed by another process; try again",
    )


def _read_request(path: Path) -> tuple[str, rsa.RSAPublicKey]:
    """Return the name and the key of a request that its own key signed."""
    members = read_archive(path, REQUEST, ASKING)
    head = read_head(path, members["request.json"], {"name": str}, ASKING)
    name = check_name(head["name"])
    try:
        request = x509.load_pem_x509_csr(members["request.csr"])
        key, right = request.public_key(), request.is_signature_valid
    except (ValueError, TypeError):
        refuse(path, "there is no request for a certificate in it", ASKING)
    if not right:
        refuse(path, "its signature is not that of its key", ASKING)
    if keys.name_of(request.subject) != name:
        refuse(path, f"it says {name} outside and something else inside", ASKING)
    if not isinstance(key, rsa.RSAPublicKey) or not keys.BITS <= key.key_size <= 8192:
        refuse(path, "its key is of another kind or size", ASKING)
    return name, key


def _issue_server(
    server: ServerFolder, authority: x509.Certificate, signer: rsa.RSAPrivateKey, host: str
) -> None:
    """Write keys and certificates for the server and for its lead."""
    for place, kind, name, purpose, where, role in (
        (server.kit, "server", keys.SERVER, keys.FOR_SERVERS, host, ""),
        (server.lead, "client", keys.LEAD, keys.FOR_CLIENTS, "", "lead"),
    ):
        startup, key = kits.find_startup(place), keys.make_key()
        certificate = keys.sign_certificate(
            authority, signer, name, key.public_key(), purpose, where, role, keys.SERVER_DAYS
        )
        keys.write_key(startup / f"{kind}.key", key)
        (startup / f"{kind}.crt").write_bytes(keys.to_pem(certificate))
        (startup / "rootCA.pem").write_bytes(keys.to_pem(authority))


def _open_authority(server: ServerFolder) -> tuple[x509.Certificate, rsa.RSAPrivateKey]:
    return (
        _read_certificate(server.authority / "authority.crt"),
        keys.read_key(server.authority / "key"),
    )


def _install_key(site: SiteFolder, certificate: x509.Certificate, package: Path) -> None:
    """Install the key of a certificate: a new one, or the one that is in use."""
    for path in (_find_new(site), site.key):
        if path.exists() and keys.same_key(certificate, keys.read_key(path)):
            path.replace(site.key)
            return
    refuse(package, "it is for another key than the one that was made here", ADMITTING)


def _find_new(site: SiteFolder) -> Path:
    """Return where a key waits until a certificate for it comes: the old one works meanwhile."""
    return site.key.with_name("key.asked")


def _join_members(members: Mapping[str, bytes]) -> bytes:
    """Join what is signed so that no two packages are joined to the same bytes."""
    parts = [(name.encode(), members[name]) for name in PACKAGE if name in members]
    return b"".join(
        len(part).to_bytes(8, "big") + part for part in (part for pair in parts for part in pair)
    )


def _load(path: Path, data: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError:
        refuse(path, "there is no certificate in it", ADMITTING)


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        raise IsthmusError(f"{path} holds no certificate; restore it from a backup") from None


def _check_place(host: str, port: int) -> None:
    if not HOST.fullmatch(host) or (re.fullmatch(r"[0-9.]+", host) and not _is_address(host)):
        raise IsthmusError(
            f"--host must be a name or an IPv4 address that sites can reach, not {quote(host)}"
        )
    if not 0 < port < 2**16:
        raise IsthmusError(f"--port must be 1 to 65535, not {port}")


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.IPv4Address(text))
    except ValueError:
        return False
