"""Sockets to the control plane."""

import select
import socket
from typing import Any

CONNECT_SECONDS = 5.0
# Of a connection that is not used. The control plane keeps it longer.
KEPT_SECONDS = 15.0
MOST_KEPT = 128
# A host that vanished silently is detected after about a minute.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class LostError(ConnectionError):
    """The connection ended before the answer was complete.

    Attributes:
        begun: a part of the answer has arrived.
    """

    def __init__(self, reason: str, *, begun: bool) -> None:
        super().__init__(reason)
        self.begun = begun


def sends_again(method: str, error: LostError) -> bool:
    """Whether a request on a connection that was kept is sent again on a new one.

    The server may have closed it for being idle when the request was on its way, but only a GET may
    be taken twice: a PUT can append, and depend on a version.
    """
    return method == "GET" and not error.begun


def readable(descriptor: int) -> bool:
    """Whether something, or the end, has arrived; on a connection that is not used, it is stale."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(0))


def lasting_socket(address: Any) -> socket.socket:
    """A socket for an address of `getaddrinfo` that finds out when the other host vanished."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
