"""Certificates of a cluster, made anew for each test that needs them."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Pair:
    """Files with a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates, and keeps their files in a directory."""

    def __init__(self, directory: Path, name: str = "cluster") -> None:
        self._directory = directory
        self._prefix = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"authority of {name}")
        own = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = directory / f"{name}-ca.pem"
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, *, days: int = 1, in_common_name: bool = False) -> Pair:
        """A certificate with that name; with days below 0 it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name if in_common_name else "somebody")
        builder = _builder(subject, self._name, key.public_key(), days)
        if not in_common_name:
            names = x509.SubjectAlternativeName([x509.DNSName(name)])
            builder = builder.add_extension(names, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        stem = f"{self._prefix}-{name}-{days}"
        pair = Pair(self._directory / f"{stem}.pem", self._directory / f"{stem}.key")
        pair.cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int = 1
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=10))
        .not_valid_after(now + timedelta(days=days))
    )
