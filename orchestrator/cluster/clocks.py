"""Whether this machine's clock and the database's agree. Pure."""

from datetime import datetime, timedelta
from typing import NamedTuple

# More than clocks that NTP sets differ, and far less than what certificates allow.
_ALLOWED = timedelta(seconds=5)


class Apart(NamedTuple):
    """How far they are apart, and what to do."""

    detail: str
    remedy: str


def clocks_apart(database: datetime, asked: datetime, answered: datetime) -> Apart | None:
    """Compares what the database said with this clock before and after; None: they agree.

    All times have zones.
    """
    if asked - _ALLOWED <= database <= answered + _ALLOWED:
        return None
    ahead = asked - database if asked > database else database - answered
    side = "ahead of" if asked > database else "behind"
    return Apart(
        f"this machine's clock is {ahead.total_seconds():.0f} s {side} that of the cluster's"
        " database",
        "set both by NTP: leases don't depend on them, but the order of lists does, and when keys"
        " and certificates end",
    )
