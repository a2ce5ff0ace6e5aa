"""When this node's sessions that others may take over must stand still. Pure.

A renewal is sent, then stored by the database, then acknowledged here. The lease lasts for 15 s
from the storing on, and others wait `LOST_SECONDS` more. This node counts from the sending on, by a
clock that goes on while the machine sleeps. So it closes the fence at least 8 s before anybody
takes over: it needs some to freeze, and the rest covers clocks that differ by a tenth in speed.
"""

from typing import NamedTuple

# From the sending of the last renewal on.
FENCE_SECONDS = 12.0


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


def seconds_open(sent: float, now: float) -> float:
    """For how long it stays open without another renewal; 0: it is closed."""
    found = decide(sent, now)
    return 0.0 if found.closed else found.seconds


def passed_over(seen: float, sent: float) -> bool:
    """Whether it closed and opened again between two renewals, with nobody there to see it.

    So it is after a process that was stopped, or whose machine slept, goes on. `seen` is the one
    that was seen last, `sent` the newest; both are of the same clock, in seconds.
    """
    return sent - seen >= FENCE_SECONDS
