"""Bytes of a key that the cluster lends to a node: what is lent, used, and left. Pure.

A limit holds for the cluster: nodes use only what they were lent, and all that is lent together is
within the limit. Amounts are whole ones, no differences, so that a message that comes twice, or
whose answer was lost, lends nothing twice.
"""

from dataclasses import dataclass

# A loan is at most this part of the limit.
PORTIONS = 16


@dataclass(frozen=True, slots=True)
class Lent:
    """What a node has of a key's bytes: `granted` by the cluster in all, `used` of it."""

    granted: int = 0
    used: int = 0

    @property
    def counted(self) -> int:
        """What counts against the limit. What stops is recorded above it, too."""
        return max(self.granted, self.used)


def portion_of(limit: int) -> int:
    """The most that is lent at once."""
    return max(1, limit // PORTIONS)


def granted(limit: int, others: int, mine: Lent, wanted: int) -> int:
    """What a node has been granted after it has asked for `wanted` in all.

    `others` is what counts of all other nodes together. A node that wants less gives back.
    """
    if wanted <= mine.granted:
        return max(wanted, mine.used)
    most = min(wanted, mine.counted + portion_of(limit), limit - others)
    return max(mine.granted, most)


class Loan:
    """What this process may use of a key's bytes, in one window of time.

    `begun`: the cluster has said what was granted before. `answered`: it has said that there is no
    more. `away`: it did not answer when it was asked last.
    """

    def __init__(self, kind: str, granted: int = 0, used: int = 0) -> None:
        self.kind = kind
        self.granted = granted
        self.used = used
        self.begun = False
        self.answered = False
        self.away = False

    @property
    def left(self) -> int:
        """Bytes that may be used now."""
        return max(0, self.granted - self.used)

    @property
    def spent(self) -> bool:
        """Whether nothing is left, and nothing more is to be had now."""
        return self.left == 0 and (self.answered or self.away)

    def begin(self, before: int, *, counted: bool) -> None:
        """Takes over what was granted before; `counted`: `used` has what was used of it.

        Otherwise all of it is taken as used: an earlier run may have been killed.
        """
        self.begun = True
        self.used = self.used if counted else before + self.used
        self.granted = max(before, self.granted)

    def wants(self, limit: int) -> bool:
        """Whether more is to be asked for, ahead of need."""
        return self.left < portion_of(limit) // 2 + 1

    def asks_for(self, limit: int) -> int:
        """What it asks for, in all."""
        return max(self.granted, self.used) + portion_of(limit)

    def give_back(self) -> int:
        """What is kept. The rest may not be used any more."""
        self.granted = min(self.granted, self.used)
        return self.granted
