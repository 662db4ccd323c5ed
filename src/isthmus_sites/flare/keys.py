"""Keys and certificates: made, signed, compared. NVFlare's processes want RSA."""

import base64
import datetime as dt
import ipaddress
import re
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from isthmus.errors import IsthmusError
from isthmus.system.files import open_regular
from isthmus_sites.folders import write_private

SERVER, LEAD, ORGANISATION = "isthmus-server", "lead@isthmus", "isthmus"
FOR_SERVERS, FOR_CLIENTS = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
AUTHORITY_DAYS, SERVER_DAYS, SITE_DAYS = 3650, 730, 365
SKEW = dt.timedelta(days=1)  # a clock may be wrong, by hours
BITS = 3072
LOOPBACK = "127.0.0.1"
USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.MAX_LENGTH)


def make_key() -> rsa.RSAPrivateKey:
    """Return a private key."""
    return rsa.generate_private_key(public_exponent=65537, key_size=BITS)


def write_key(path: Path, key: rsa.RSAPrivateKey) -> None:
    """Write a private key where its owner alone may read it."""
    form = serialization.PrivateFormat.TraditionalOpenSSL
    data = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    write_private(path, data)


def read_key(path: Path) -> rsa.RSAPrivateKey:
    """Read a private key."""
    try:
        with open_regular(path) as file:
            key = serialization.load_pem_private_key(file.read(2**16), password=None)
    except (OSError, ValueError, TypeError):
        key = None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise IsthmusError(
            f"{path} holds no private key; restore it from a backup, or make a new request"
        )
    return key


def to_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def same_key(
    certificate: x509.Certificate | x509.CertificateSigningRequest, key: rsa.RSAPrivateKey
) -> bool:
    """Whether a certificate, or the request for one, is about a key."""
    return certificate.public_key() == key.public_key()


def name_of(subject: x509.Name) -> str:
    """Return the one common name of a subject; nothing if there are more, or none."""
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def make_authority(key: rsa.RSAPrivateKey) -> x509.Certificate:
    """Return the certificate of an authority, signed by itself."""
    name = _name_subject("isthmus-authority")
    usage = _build_usage(signs_certificates=True)
    return (
        _begin(name, name, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(_identify(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def sign_certificate(
    authority: x509.Certificate,
    signer: rsa.RSAPrivateKey,
    name: str,
    key: rsa.RSAPublicKey,
    purpose: ObjectIdentifier = FOR_CLIENTS,
    host: str = "",
    role: str = "",
    days: float = SITE_DAYS,
) -> x509.Certificate:
    """Sign a certificate that says whose a key is, and for what."""
    issuer = authority.public_key()
    assert isinstance(issuer, rsa.RSAPublicKey)
    # Its own machine, where the lead is, reaches a server by the loopback.
    others = [_name_host(each) for each in dict.fromkeys((host, LOOPBACK))] if host else []
    plain = x509.DNSName(name.replace("@", "."))
    return (
        _begin(_name_subject(name, role), authority.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_build_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectAlternativeName([*others, plain]), critical=False)
        .add_extension(_identify(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
        .sign(signer, hashes.SHA256())
    )


def was_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether an authority signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def is_valid_now(certificate: x509.Certificate) -> bool:
    """Whether a certificate is valid by this machine's clock."""
    now = dt.datetime.now(dt.UTC)
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def make_request(name: str, key: rsa.RSAPrivateKey) -> bytes:
    """Return a request for a certificate, signed with the key that it is about."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name_subject(name))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def sign_bytes(key: rsa.RSAPrivateKey, data: bytes) -> bytes:
    """Return a signature of some bytes."""
    return key.sign(data, PSS, hashes.SHA256())


def is_signed(certificate: x509.Certificate, signature: bytes, data: bytes) -> bool:
    """Whether the key of a certificate signed these bytes."""
    key = certificate.public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        return False
    try:
        key.verify(signature, data, PSS, hashes.SHA256())
    except InvalidSignature:
        return False
    return True


def hash_certificate(certificate: x509.Certificate) -> str:
    """Return the hash of a certificate."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def hash_text(data: bytes) -> str:
    """Return the hash of a certificate in PEM; empty if it is none."""
    try:
        return hash_certificate(x509.load_pem_x509_certificate(data))
    except ValueError:
        return ""


def format_fingerprint(certificate: x509.Certificate) -> str:
    """Return a fingerprint of a certificate that two people can compare by telephone.

    Eight groups of four, 160 bits of SHA-256, in letters and digits that look and sound apart.
    """
    text = base64.b32encode(certificate.fingerprint(hashes.SHA256())[:20]).decode()
    return "-".join(re.findall("....", text))


def same_fingerprint(certificate: x509.Certificate, text: str) -> bool:
    """Whether a typed fingerprint is right: case, hyphens and spaces do not count."""
    typed = re.sub(r"[\s-]", "", text).upper()
    return typed == format_fingerprint(certificate).replace("-", "")


def _begin(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPublicKey, days: float
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _name_subject(name: str, role: str = "") -> x509.Name:
    """Return a subject as NVFlare reads it: an unstructured name is the role of a lead."""
    parts = [(NameOID.COMMON_NAME, name), (NameOID.ORGANIZATION_NAME, ORGANISATION)]
    parts += [(NameOID.UNSTRUCTURED_NAME, role)] if role else []
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])


def _name_host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _identify(key: rsa.RSAPublicKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key)


def _build_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    granted = {"digital_signature": True, "key_encipherment": not signs_certificates}
    granted |= {"key_cert_sign": signs_certificates, "crl_sign": signs_certificates}
    return x509.KeyUsage(**dict.fromkeys(USES, False) | granted)
