"""Sandboxes that wait, and which of them should not. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.sandbox.sandboxes.parts import Assembly
from orchestrator.state.shapes import Shape


@dataclass(slots=True, eq=False)
class Waiting:
    """A sandbox that waits, since `since` on the pool's clock."""

    shape: Shape
    parts: Assembly
    since: float
    ended: bool = False

    @property
    def fit(self) -> bool:
        """Whether a session may have it."""
        return not self.ended and self.parts.plan.link.connected

    def old(self, now: float, age: float) -> bool:
        """Whether it has waited for at least `age` seconds."""
        return now - self.since >= age


def suitable(waiting: Sequence[Waiting], shape: Shape, now: float, age: float) -> Waiting | None:
    """The oldest that a session with that shape may have."""
    for each in waiting:
        if each.shape == shape and each.fit and not each.old(now, age):
            return each
    return None


def unwanted(
    waiting: Sequence[Waiting], wanted: Counter[Shape], now: float, age: float
) -> list[Waiting]:
    """What is not fit, has waited for `age` seconds, or is more than what is wanted.

    `waiting` begins with the oldest, which go first.
    """
    left = wanted.copy()
    found = []
    for each in reversed(waiting):
        if not each.fit or each.old(now, age) or left[each.shape] <= 0:
            found.append(each)
        else:
            left[each.shape] -= 1
    return found
