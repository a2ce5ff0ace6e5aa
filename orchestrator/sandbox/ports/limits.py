"""The limits of ports."""

from typing import NamedTuple


class PortLimits(NamedTuple):
    """Limits of one session, except where another owner is named."""

    # Open ports.
    ports: int = 16
    # Requests and WebSockets that are being served.
    connections: int = 64
    # The same, for all sessions of one key.
    key_connections: int = 256
    # Connections that its sandbox may keep ready.
    ready: int = 8
    # Connections that it makes ready: after a burst, one in so many seconds.
    pace_seconds: float = 0.005
    burst: int = 200
    # Until the port has accepted or refused. A sandbox that starts a program, at its limit of
    # processor time, may take seconds; a page of which one script is missing stays empty.
    connect_seconds: float = 30.0
    # The time without a byte after which a connection ends.
    idle_seconds: float = 600.0
    # The head of an answer, and of what comes before it.
    head_bytes: int = 128 * 1024


PORT_LIMITS = PortLimits()
