"""Whether a certificate would be accepted at the other end, tried by a handshake in memory.

What OpenSSL compares in a real handshake, it compares here: authority, dates, purpose and name.
"""

import ssl
from contextlib import suppress
from pathlib import Path

from orchestrator.cluster.tls import GATEWAY, names_in, reason_of

# A handshake has three flights.
_MOST_FLIGHTS = 8


def refused_as_node(cert: Path, key: Path, authority: Path, name: str) -> str | None:
    """Why gateways that trust the authority would refuse the node of that name; None: they accept.

    Raises: OSError, ssl.SSLError if a file can't be used, ValueError if the key has a passphrase.
    """
    gateway = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    gateway.load_verify_locations(authority)
    node = _shown(ssl.PROTOCOL_TLS_SERVER, cert, key)
    try:
        _shake(node, gateway, name)
    except ssl.SSLError as error:
        return reason_of(error)
    return None


def refused_as_gateway(cert: Path, key: Path, authority: Path) -> str | None:
    """Why nodes that trust the authority would refuse a gateway; None: they accept. Raises: as
    `refused_as_node`.
    """
    gateway = _shown(ssl.PROTOCOL_TLS_CLIENT, cert, key)
    gateway.check_hostname = False
    gateway.verify_mode = ssl.CERT_NONE
    # The node's own certificate is not looked at, so it may be any.
    node = _shown(ssl.PROTOCOL_TLS_SERVER, cert, key)
    node.load_verify_locations(authority)
    node.verify_mode = ssl.CERT_REQUIRED
    try:
        names = names_in(_shake(node, gateway, None).getpeercert())
    except ssl.SSLError as error:
        return reason_of(error)
    if GATEWAY not in names:
        return f"its name is {', '.join(sorted(names)) or 'none'}, not {GATEWAY}"
    return None


def _shown(kind: int, cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.load_cert_chain(cert, key, password=_no_password)
    return context


def _no_password() -> str:
    raise ValueError("the key must have no passphrase")


def _shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None) -> ssl.SSLObject:
    """The server's side of a handshake that both sides accept. Raises: ssl.SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(down, up, server_hostname=name),
        server.wrap_bio(up, down, server_side=True),
    )
    for _ in range(_MOST_FLIGHTS):
        for side in sides:
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return sides[1]
