"""A small certificate authority for the connections between gateways and nodes.

It is for operators who have none. Its key belongs on no node and no gateway. A gateway's
certificate has the name `gateway` and is for clients only; a node's is for servers only, so that a
node can't be taken for a gateway.
"""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.store.directories import write_file

GATEWAY = "gateway"
_CA = "ca"
_CA_LIFE, _LIFE = timedelta(days=3650), timedelta(days=825)
# Clocks differ.
_BEFORE = timedelta(hours=1)


class IssuedFiles(NamedTuple):
    """A certificate, its key, and the certificate of its authority."""

    certificate: Path
    key: Path
    authority: Path


class _Authority(NamedTuple):
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def issue(
    directory: Path, name: str, hosts: Sequence[str], *, replace: bool = False
) -> IssuedFiles:
    """Writes a certificate and its key, 0600, and first the authority if there is none.

    The name `gateway` makes a gateway's, any other one a node's, for its name, by which gateways
    know it, and for these host names or addresses.
    Raises: ConfigError, also if there is one with the name and it is not to be replaced.
    """
    files = IssuedFiles(
        directory / f"{name}.pem", directory / f"{name}.key", directory / f"{_CA}.pem"
    )
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if files.certificate.exists() and not replace:
            raise ConfigError(f"{files.certificate} is there already: --replace makes another one")
        authority = _authority(directory)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _leaf(authority, key.public_key(), name, hosts)
        write_file(files.key, _private(key))
        write_file(files.certificate, _pem(certificate))
    except OSError as error:
        raise ConfigError(f"{error.filename or directory}: {error.strerror}") from None
    return files


def _authority(directory: Path) -> _Authority:
    """Makes it at first. Raises: OSError, ConfigError."""
    key_file, certificate_file = directory / f"{_CA}.key", directory / f"{_CA}.pem"
    if not key_file.exists() and not certificate_file.exists():
        made = _made()
        write_file(key_file, _private(made.key))
        write_file(certificate_file, _pem(made.certificate))
        return made
    try:
        key = load_pem_private_key(key_file.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
    except (ValueError, TypeError):
        raise ConfigError(f"{key_file}, {certificate_file}: must be a key and a certificate") from (
            None
        )
    if not isinstance(key, ec.EllipticCurvePrivateKey) or (
        key.public_key() != certificate.public_key()
    ):
        raise ConfigError(f"{key_file} is not the key of {certificate_file}")
    return _Authority(key, certificate)


def _made() -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Paddock cluster")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(name, name, key.public_key(), _CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, SHA256())
    )
    return _Authority(key, certificate)


def _leaf(
    authority: _Authority, key: ec.EllipticCurvePublicKey, name: str, hosts: Sequence[str]
) -> x509.Certificate:
    gateway = name == GATEWAY
    purpose = ExtendedKeyUsageOID.CLIENT_AUTH if gateway else ExtendedKeyUsageOID.SERVER_AUTH
    # Gateways ask for the node's name, whatever its address is called.
    names = [_subject(each) for each in dict.fromkeys([name, *([] if gateway else hosts)])]
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return (
        _builder(authority.certificate.subject, _name(name), key, _LIFE)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(signer, critical=False)
        .sign(authority.key, SHA256())
    )


def _subject(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise ConfigError(f"--host: {host!r} is no name or address of a host") from None


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey, life: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + life)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)
