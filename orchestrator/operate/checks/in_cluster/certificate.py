"""The check of a certificate: whether the other end accepts it, and for how long."""

import ssl
import stat
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from orchestrator.cluster.tls import GATEWAY
from orchestrator.cluster.tls_trial import refused_as_gateway, refused_as_node
from orchestrator.ground.check import Check, failure, ok, warning

CERTIFICATE = "cluster certificate"
# Long enough to notice it, and to renew it on every machine.
_EARLY = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class ShownCertificate:
    """The certificate that this machine shows: of the node of that name, or of a gateway.

    `prefix` begins the names of the settings of its files.
    """

    prefix: str
    name: str
    cert: Path
    key: Path
    authority: Path

    @property
    def renewal(self) -> str:
        """How another one is made."""
        who = "--gateway" if self.name == GATEWAY else f"--node {self.name}"
        return f"make another one: `paddock cluster certificates {who} --replace`, and restart this"


def check_certificate(shown: ShownCertificate) -> Check:
    """What gateways or nodes say to it. Blocks."""
    try:
        refusal = _refusal(shown)
        ends = min(_end(shown.cert), _end(shown.authority))
        mode = stat.S_IMODE(shown.key.stat().st_mode)
    except (ssl.SSLError, ValueError):
        files = f"{shown.cert}, {shown.key}, {shown.authority}"
        detail = f"{files}: no PEM, or the key is another certificate's, or has a passphrase"
        return failure(CERTIFICATE, detail, f"mend {shown.prefix}_CERT, _KEY and _CA")
    except OSError as error:
        detail = f"{error.filename or shown.cert}: {error.strerror}"
        return failure(CERTIFICATE, detail, f"mend {shown.prefix}_CERT, _KEY and _CA")
    return certificate_check(shown, refusal, ends, mode, datetime.now(UTC))


def _refusal(shown: ShownCertificate) -> str | None:
    if shown.name == GATEWAY:
        return refused_as_gateway(shown.cert, shown.key, shown.authority)
    return refused_as_node(shown.cert, shown.key, shown.authority, shown.name)


def _end(path: Path) -> datetime:
    """When the first of the certificates there ends. Raises: OSError, ValueError."""
    found = x509.load_pem_x509_certificates(path.read_bytes())
    return min(each.not_valid_after_utc for each in found)


def certificate_check(
    shown: ShownCertificate, refusal: str | None, ends: datetime, mode: int, now: datetime
) -> Check:
    """Judges what was found: the refusal, the end of certificate or authority, the key's rights."""
    if refusal == "certificate is not yet valid":
        return failure(CERTIFICATE, f"{shown.cert}: it is not valid yet", "set this clock by NTP")
    if refusal is not None:
        others = "nodes" if shown.name == GATEWAY else "gateways"
        detail = f"{shown.cert}: {others} with the authority {shown.authority} refuse it: {refusal}"
        return failure(CERTIFICATE, detail, shown.renewal)
    until = f"{shown.cert}, of {shown.name}, is valid until {ends:%Y-%m-%d}"
    if ends - now < _EARLY:
        return warning(CERTIFICATE, f"{until}, or its authority is", shown.renewal)
    if mode & 0o077:
        detail = f"{shown.key} is open to others ({mode:04o})"
        return warning(CERTIFICATE, detail, f"chmod 600 {shown.key}")
    return ok(CERTIFICATE, until)
