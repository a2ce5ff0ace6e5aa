"""Connections to a node: kept, bounded, and found dead when the way to it is cut."""

import asyncio
import socket
import ssl
from functools import partial

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, hdrs
from aiohttp.connector import AddrInfoType

from orchestrator.ground.http_connector import BoundedHandler

# Read ahead of a client that reads slowly.
_AHEAD_BYTES = 64 * 1024
_MOST_HEAD_BYTES = 128 * 1024
CONNECT_SECONDS = 5.0
# Shorter than a node's own, 75 s, so that no request meets a connection that closes.
_KEEP_SECONDS = 30.0
# A connection without an answer to its probes, or to what was sent, ends within 15 s, which is also
# when a node's lease does.
_PROBES = (
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 15_000),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
)


class _Connector(TCPConnector):
    """No limit of its own: what clients may have open is bounded where they are counted."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__(
            ssl=True if context is None else context,
            limit=0,
            keepalive_timeout=_KEEP_SECONDS,
            socket_factory=_socket,
        )
        loop = asyncio.get_running_loop()
        self._factory = partial(BoundedHandler, loop, _MOST_HEAD_BYTES)  # type: ignore[assignment]


def _socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        for option in _PROBES:
            made.setsockopt(*option)
    except BaseException:
        made.close()
        raise
    return made


def client_of(name: str, context: ssl.SSLContext | None) -> ClientSession:
    """Connections to the node of that name, which its certificate must have.

    It passes bodies on as they are, follows no redirect, and keeps no cookie.
    """
    return ClientSession(
        connector=_Connector(context),
        cookie_jar=DummyCookieJar(),
        timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        skip_auto_headers=(
            *(hdrs.USER_AGENT, hdrs.ACCEPT),
            *(hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE),
        ),
        auto_decompress=False,
        read_bufsize=_AHEAD_BYTES,
        max_line_size=_MOST_HEAD_BYTES // 4,
        max_field_size=_MOST_HEAD_BYTES // 4,
    )
