"""Certificates: authorities of our own, what they sign, and their texts.

Keys are of the curve P-256. Every certificate is valid from an hour ago, because clocks differ.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
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
from cryptography.x509.oid import NameOID

_BEFORE = timedelta(hours=1)


class Issuer(NamedTuple):
    """An authority: its certificate, and the key that belongs to it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def new_key() -> ec.EllipticCurvePrivateKey:
    """A private key."""
    return ec.generate_private_key(ec.SECP256R1())


def new_issuer(name: str, life: timedelta) -> Issuer:
    """An authority that signs itself; it may sign certificates of servers and clients only."""
    key = new_key()
    certificate = (
        _builder(_name(name), _name(name), key.public_key(), life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, SHA256())
    )
    return Issuer(key, certificate)


def read_issuer(key: bytes, certificate: x509.Certificate) -> Issuer:
    """An authority whose key is in PEM. Raises: ValueError, TypeError."""
    private = load_pem_private_key(key, None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ValueError("not a key of an elliptic curve")
    if private.public_key() != certificate.public_key():
        raise ValueError("not the certificate's key")
    return Issuer(private, certificate)


def signed(
    issuer: Issuer,
    name: str,
    key: ec.EllipticCurvePublicKey,
    hosts: Sequence[x509.GeneralName],
    purposes: Sequence[x509.ObjectIdentifier],
    life: timedelta,
) -> x509.Certificate:
    """A certificate of a server or a client, as `purposes` say, for these hosts."""
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
    return (
        _builder(issuer.certificate.subject, _name(name), key, life)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(signer, critical=False)
        .sign(issuer.key, SHA256())
    )


def certificate_text(*certificates: x509.Certificate) -> bytes:
    """Certificates in PEM, one after the other."""
    return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)


def key_text(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key in PEM, not encrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


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
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    """`signs`: certificates, otherwise handshakes."""
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
