"""Checks of the ways to nodes: whether what answers at an address is the node that has it."""

import asyncio
import ssl
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from orchestrator.cluster.tls import Face, gateway_context, reason_of
from orchestrator.ground.check import Check, failure, ok, warning
from orchestrator.ground.threads import bounded
from orchestrator.operate.checks.in_cluster.certificate import ShownCertificate

WAY = "node address"
_SECONDS = 5.0
_HTTPS_PORT = 443
_ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def check_own_way(url: str, cert: Path, *, runs: bool) -> Check:
    """Whether this node is reached at its URL from here; `runs`: its control plane runs."""
    if not runs:
        return ok(WAY, f"{url} is not tried, because the control plane does not run")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        # What it shows is compared with this node's own.
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols([Face.API])
        async with asyncio.timeout(_SECONDS):
            shown = await _certificate_at(url, context)
        own = await bounded(partial(_own, cert), _SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        return _unreached(WAY, url, error)
    if shown != own:
        detail = f"what answers at {url} shows another certificate than {cert}"
        remedy = (
            "restart the control plane if the certificate was renewed, or mend PADDOCK_NODE_URL"
        )
        return warning(WAY, detail, remedy)
    return ok(WAY, f"this node answers at {url}")


async def check_way(name: str, url: str, ours: ShownCertificate) -> Check:
    """Whether this gateway is heard by the node of that name."""
    about = f"way to {name}"
    try:
        context = gateway_context(ours.cert, ours.key, ours.authority, Face.API)
        async with asyncio.timeout(_SECONDS):
            answer = await _answer_at(url, name, context)
    except (OSError, TimeoutError, ValueError) as error:
        return _unreached(about, url, error)
    if not answer.startswith(b"HTTP/1.1 200"):
        detail = f"the node at {url} closes the connection without an answer"
        remedy = f"see its log: it refuses this certificate, or stops. {ours.renewal}"
        return failure(about, detail, remedy)
    return ok(about, f"{name} answers at {url}")


async def _certificate_at(url: str, context: ssl.SSLContext) -> bytes:
    """The certificate of what listens there. Raises: OSError."""
    _, writer = await _connection(url, context, None)
    try:
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return bytes(found or b"")
    finally:
        writer.transport.abort()


async def _answer_at(url: str, name: str, context: ssl.SSLContext) -> bytes:
    """The first bytes of an answer; none: it was refused. Raises: OSError."""
    reader, writer = await _connection(url, context, name)
    try:
        with suppress(ConnectionError, ssl.SSLError):
            writer.write(_ASKED)
            return await reader.readline()
        return b""
    finally:
        writer.transport.abort()


async def _connection(
    url: str, context: ssl.SSLContext, name: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    at = urlsplit(url)
    host = at.hostname or ""
    return await asyncio.open_connection(
        host, at.port or _HTTPS_PORT, ssl=context, server_hostname=name or host
    )


def _own(path: Path) -> bytes:
    """The first certificate of a file, which is the one that is shown.

    Raises: OSError, ValueError.
    """
    text, end = path.read_text(encoding="ascii"), "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN") : text.index(end) + len(end)])


def _unreached(about: str, url: str, error: Exception) -> Check:
    if isinstance(error, ssl.SSLError):
        reason, remedy = (
            reason_of(error),
            "make its certificate anew, with its name, and restart it",
        )
    elif isinstance(error, TimeoutError):
        reason, remedy = "no answer in time", "see the network and its packet filters"
    else:
        reason = getattr(error, "strerror", None) or str(error)
        remedy = "see whether the node runs, its PADDOCK_NODE_URL and _LISTEN, and the network"
    return failure(about, f"{url} can't be reached: {reason}", remedy)
