"""TLS between gateways and nodes: each side shows a certificate of the cluster's own authority.

A node answers only certificates with the name `gateway`, and other nodes where sessions move. Who
asks a node asks only what has a certificate with the node's own name. A handshake that fails is one
line in the log, and nothing of a request is read. Which of a node's applications is meant is a part
of the handshake, too (ALPN), so that no header can say it.
"""

import logging
import ssl
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from orchestrator.ground.config_error import ConfigError

# The name in the certificates of all gateways.
GATEWAY = "gateway"

# Anybody may try to connect at any rate, so lines about it are at least so many seconds apart.
_QUIET_SECONDS = 1.0

log = logging.getLogger(__name__)


class Face(StrEnum):
    """Which of a node's applications a gateway means, as the handshake names it."""

    API = "paddock-api"
    PREVIEWS = "paddock-previews"
    # For other nodes, which move sessions here; no gateway is heard there.
    NODES = "paddock-nodes"


def node_context(cert: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """For a node that listens for gateways.

    Raises: ConfigError if a file is not what it should be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _fill(context, "PADDOCK_NODE", cert, key, authority)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols([face.value for face in Face])
    context.sslobject_class = _only_gateways(_Refusals())
    # A resumed handshake would not show the certificate again.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context


def gateway_context(cert: Path, key: Path, authority: Path, face: Face) -> ssl.SSLContext:
    """For a gateway that asks nodes for one of their applications. Raises: ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _fill(context, "PADDOCK_GATEWAY", cert, key, authority)
    context.set_alpn_protocols([face.value])
    return context


def peer_context(cert: Path, key: Path, authority: Path, face: Face) -> ssl.SSLContext:
    """For a node that asks another one, with its own certificate. Raises: ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _fill(context, "PADDOCK_NODE", cert, key, authority)
    context.set_alpn_protocols([face.value])
    return context


def public_context(cert: Path, key: Path) -> ssl.SSLContext:
    """For a gateway that listens for clients. Raises: ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _fill(context, "PADDOCK_GATEWAY_TLS", cert, key, None)
    context.set_alpn_protocols(["http/1.1"])
    return context


def names_in(certificate: Any) -> set[str]:
    """The common name and the DNS names of a certificate, as `getpeercert` shows it."""
    shown = certificate or {}
    subject = {
        value for part in shown.get("subject", ()) for name, value in part if name == "commonName"
    }
    return subject | {value for kind, value in shown.get("subjectAltName", ()) if kind == "DNS"}


class _Refusals:
    """Says in the log why connections are refused, now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet_until = float("-inf")
        self._unsaid = 0

    def say(self, reason: str) -> None:
        now = self._clock()
        if now < self._quiet_until:
            self._unsaid += 1
            return
        more = f", and {self._unsaid} more" if self._unsaid else ""
        self._quiet_until, self._unsaid = now + _QUIET_SECONDS, 0
        log.warning(
            "a connection for gateways was refused: %s%s; a gateway needs a certificate of the name"
            " %s by an authority in PADDOCK_NODE_CA",
            *(reason, more, GATEWAY),
        )


def _only_gateways(refusals: _Refusals) -> type[ssl.SSLObject]:
    """A node's side of connections, whose handshakes succeed with gateways only."""

    class FromGateway(ssl.SSLObject):
        def do_handshake(self) -> None:
            """Raises: ssl.SSLError, before anything that was sent is read."""
            try:
                super().do_handshake()
                _check_peer(names_in(self.getpeercert()), self.selected_alpn_protocol())
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                refusals.say(reason_of(error))
                raise

    return FromGateway


def _check_peer(names: set[str], face: str | None) -> None:
    """Gateways are not heard where nodes are, nor nodes elsewhere. Raises: ssl.SSLError."""
    shown = ", ".join(sorted(names))[:128] or "nobody"
    if face == Face.NODES:
        if GATEWAY in names or not names:
            raise ssl.SSLCertVerificationError(f"its certificate is that of {shown}, not of a node")
    elif GATEWAY not in names:
        raise ssl.SSLCertVerificationError(f"its certificate is that of {shown}, not of {GATEWAY}")


def reason_of(error: ssl.SSLError) -> str:
    """Why a handshake failed, in plain words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return getattr(error, "verify_message", None) or str(error.args[-1])
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it shows no certificate"
    return (error.reason or str(error)).lower().replace("_", " ")


def _fill(
    context: ssl.SSLContext, prefix: str, cert: Path, key: Path, authority: Path | None
) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if authority else ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except OSError as error:
        what = _what(error, "is no certificate in PEM, or not that of the key")
        raise ConfigError(f"{prefix}_CERT, {prefix}_KEY: {cert}, {key}: {what}") from None
    except ValueError:
        raise ConfigError(f"{prefix}_KEY: {key}: must have no passphrase") from None
    if authority is None:
        return
    try:
        context.load_verify_locations(authority)
    except OSError as error:
        what = _what(error, "is no certificate in PEM")
        raise ConfigError(f"{prefix}_CA: {authority}: {what}") from None


def _what(error: OSError, otherwise: str) -> str:
    return otherwise if isinstance(error, ssl.SSLError) else error.strerror or str(error)


def _no_password() -> str:
    raise ValueError
