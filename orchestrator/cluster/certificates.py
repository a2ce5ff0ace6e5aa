"""A small certificate authority for the connections between gateways and nodes.

It is for operators who have none. Its key belongs on no node and no gateway. A gateway's
certificate has the name `gateway` and is for clients only, so nothing can be asked of it. A node's
is for both, because nodes move sessions to each other; its name says that it is no gateway.
"""

import ipaddress
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.serving import certificates
from orchestrator.ground.serving.certificates import Issuer, certificate_text, key_text
from orchestrator.ground.store.directories import write_file

GATEWAY = "gateway"
_CA = "ca"
_CA_LIFE, _LIFE = timedelta(days=3650), timedelta(days=825)


class IssuedFiles(NamedTuple):
    """A certificate, its key, and the certificate of its authority."""

    certificate: Path
    key: Path
    authority: Path


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
        key = certificates.new_key()
        gateway = name == GATEWAY
        # Gateways ask for the node's name, whatever its address is called.
        names = dict.fromkeys([name, *([] if gateway else hosts)])
        certificate = certificates.signed(
            authority,
            name,
            key.public_key(),
            [_subject(each) for each in names],
            # A node asks other nodes, too.
            [ExtendedKeyUsageOID.CLIENT_AUTH]
            if gateway
            else [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH],
            _LIFE,
        )
        write_file(files.key, key_text(key))
        write_file(files.certificate, certificate_text(certificate))
    except OSError as error:
        raise ConfigError(f"{error.filename or directory}: {error.strerror}") from None
    return files


def _authority(directory: Path) -> Issuer:
    """Makes it at first. Raises: OSError, ConfigError."""
    key_file, certificate_file = directory / f"{_CA}.key", directory / f"{_CA}.pem"
    if not key_file.exists() and not certificate_file.exists():
        made = certificates.new_issuer("Paddock cluster", _CA_LIFE)
        write_file(key_file, key_text(made.key))
        write_file(certificate_file, certificate_text(made.certificate))
        return made
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        return certificates.read_issuer(key_file.read_bytes(), certificate)
    except (ValueError, TypeError):
        raise ConfigError(
            f"{key_file}, {certificate_file}: must be a private key and its certificate, in PEM"
        ) from None


def _subject(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise ConfigError(f"--host: {host!r} is no name or address of a host") from None
