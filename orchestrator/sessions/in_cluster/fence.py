"""When this node's sessions that others may take over must stand still. Pure.

A renewal is sent, then stored by the database, then acknowledged here. The lease lasts for 15 s
from the storing on, and others wait 5 s more. This node counts from the sending on, by a clock that
goes on while the machine sleeps. So it closes the fence at least 8 s before anybody takes over, of
which it needs some to freeze; the difference also covers clocks that differ by a third in speed.
"""

from typing import NamedTuple

# From the sending of the last renewal on.
FENCE_SECONDS = 12.0
# From the end of a lease on, by the database's clock; see `LEASE_SECONDS`.
TAKEOVER_SECONDS = 5.0


class Fence(NamedTuple):
    """Whether it is closed, and in how many seconds it closes if no renewal follows."""

    closed: bool
    seconds: float


def decide(sent: float, now: float) -> Fence:
    """The fence at a moment; both are of the same clock, in seconds.

    `sent` is when the last renewal that was acknowledged was sent; -inf: none was. A clock that
    has gone back says nothing, so the fence is closed.
    """
    left = sent + FENCE_SECONDS - now
    return Fence(left <= 0 or now < sent, max(0.0, left))
