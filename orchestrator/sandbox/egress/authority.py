"""This instance's own certificate authority, for connections that are inspected.

Its key never leaves this directory. Sandboxes get `public/` only: the certificate, and a bundle of
it with the roots that this host trusts.
"""

import os
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.serving import certificates
from orchestrator.ground.serving.certificates import certificate_text, key_text
from orchestrator.ground.store import directories
from sandbox_agent.decide.protocol import CA_BUNDLE_NAME, CA_NAME

_KEY_FILE, _LEAF_FILE, _PUBLIC = "ca.pem", "leaf.pem", "public"
_LIFE, _RENEWED_BEFORE = timedelta(days=730), timedelta(days=90)
_LEAF_LIFE = timedelta(days=7)
# The files in which systems keep all roots that they trust.
_ROOTS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def authority_directory(state_dir: Path) -> Path:
    """Where an instance keeps its authority."""
    return state_dir / "egress-ca"


def public_directory(state_dir: Path) -> Path:
    """The part of it that sandboxes get."""
    return authority_directory(state_dir) / _PUBLIC


class Authority:
    """Its methods use the disk, and are called in one thread at a time."""

    def __init__(self, state_dir: Path, trusted: Path | None = None) -> None:
        """Made at the first start. `trusted` has more roots for the bundle, in PEM.

        Raises: ConfigError.
        """
        self._directory = authority_directory(state_dir)
        self._public = public_directory(state_dir)
        self._trusted = trusted
        self._leaf_key = certificates.new_key()
        path = self._directory / _KEY_FILE
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            self._public.mkdir(exist_ok=True)
            self._public.chmod(0o755)
            if not path.exists():
                self._make()
            self._load(path.read_bytes())
            self._publish()
            self._renew()
        except OSError as error:
            raise ConfigError(f"{error.filename or path}: {error.strerror}") from None
        except (ValueError, TypeError):
            raise ConfigError(f"{path}: must be a private key and a certificate in PEM") from None

    def context(self, host: str) -> ssl.SSLContext:
        """A context for the server of a host, with a certificate for its name. Raises: OSError."""
        self._renew()
        certificate = self._leaf(host)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Sessions of earlier versions would be kept here.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols(["http/1.1"])
        leaf = self._directory / _LEAF_FILE
        _write(leaf, key_text(self._leaf_key) + certificate_text(certificate), 0o600)
        context.load_cert_chain(leaf)
        return context

    def _load(self, data: bytes) -> None:
        """Raises: ValueError, TypeError."""
        certificate, *self._former = x509.load_pem_x509_certificates(data)
        self._issuer = certificates.read_issuer(data, certificate)

    def _renew(self) -> None:
        """Makes another one before this one expires; both are trusted then. Raises: OSError."""
        own = self._issuer.certificate
        if own.not_valid_after_utc - datetime.now(UTC) < _RENEWED_BEFORE:
            self._make(own)
            self._load((self._directory / _KEY_FILE).read_bytes())
            self._publish()

    def _make(self, *former: x509.Certificate) -> None:
        """Raises: OSError."""
        made = certificates.new_issuer("Paddock inspection", _LIFE)
        path = self._directory / _KEY_FILE
        text = key_text(made.key) + certificate_text(made.certificate, *former)
        directories.write_file(path, text)

    def _leaf(self, host: str) -> x509.Certificate:
        return certificates.signed(
            self._issuer,
            "Inspected",
            self._leaf_key.public_key(),
            [x509.DNSName(host)],
            [ExtendedKeyUsageOID.SERVER_AUTH],
            _LEAF_LIFE,
        )

    def _publish(self) -> None:
        """Raises: OSError."""
        own = certificate_text(self._issuer.certificate, *self._former)
        more = [] if self._trusted is None else [self._trusted]
        roots = [path.read_bytes().rstrip() + b"\n" for path in (*_system_roots(), *more)]
        _write(self._public / CA_NAME, own, 0o644)
        _write(self._public / CA_BUNDLE_NAME, b"".join([own, *roots]), 0o644)


def _system_roots() -> Iterable[Path]:
    found = ssl.get_default_verify_paths().cafile
    places = [Path(place) for place in (found, *_ROOTS) if place is not None]
    return [path for path in places if path.is_file()][:1]


def _write(path: Path, data: bytes, mode: int) -> None:
    """Replaces the file at once. Raises: OSError."""
    draft = path.with_name(f".{path.name}.draft")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(draft, flags, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
    draft.replace(path)
