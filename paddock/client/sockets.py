"""Sockets to the control plane."""

import socket
from typing import Any

CONNECT_SECONDS = 5.0
# A host that vanished silently is detected after about a minute.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


def lasting_socket(address: Any) -> socket.socket:
    """A socket for an address of `getaddrinfo` that finds out when the other host vanished."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
