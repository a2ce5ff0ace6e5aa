"""The limits of the way out."""

from typing import NamedTuple


class EgressLimits(NamedTuple):
    """Limits of one session, except where another owner is named."""

    connections: int = 64
    # Connections of all sessions of one key.
    key_connections: int = 256
    # The pace of new connections: after a burst, one in so many seconds.
    pace_seconds: float = 0.02
    burst: int = 100
    head_bytes: int = 16 * 1024
    # The time for the head, and for the first TLS message.
    head_seconds: float = 10.0
    connect_seconds: float = 10.0
    # The time without a byte in either direction.
    idle_seconds: float = 300.0
    # The bytes of one connection in each direction.
    transfer_bytes: int = 16 * 1024**3


EGRESS_LIMITS = EgressLimits()
