"""How much of the control plane one API key may use. Decisions only: no clock, no I/O."""

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from orchestrator.errors import RateLimitedError

# Sessions end, and creations are over, after a while that nobody knows.
RETRY_SECONDS = 10
# Sums of cores are compared to this precision.
_CPU_DIGITS = 6

REQUESTS = "requests_per_second"
WAITING = "waiting_creations"

Ticket = TypeVar("Ticket")


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What one key may use: sessions at once, their cores and bytes together, requests.

    None: nothing is said about it.
    """

    max_sessions: int | None = None
    max_cpus: float | None = None
    max_memory_bytes: int | None = None
    requests_per_second: float | None = None

    def over(self, defaults: "KeyLimits") -> "KeyLimits":
        """These limits, and the defaults' where nothing is said."""
        own = {name: getattr(self, name) for name in LIMIT_FIELDS}
        return KeyLimits(
            **{n: getattr(defaults, n) if value is None else value for n, value in own.items()}
        )


LIMIT_FIELDS = tuple(field.name for field in fields(KeyLimits))
# Every name that a refusal may give.
LIMIT_NAMES = (*LIMIT_FIELDS, WAITING)


def parse_limits(values: Mapping[str, Any]) -> KeyLimits:
    """Limits as a file has them. Raises: ValueError naming the field."""
    for name, value in values.items():
        whole = name in ("max_sessions", "max_memory_bytes")
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise ValueError(f"{name} must be {'an integer' if whole else 'a number'}")
        if not 0 <= value < math.inf or (name == REQUESTS and value == 0):
            raise ValueError(f"{name} must be over 0" if value == 0 else f"{name} is out of range")
    return KeyLimits(**values)


@dataclass(frozen=True, slots=True)
class Usage:
    """What sessions hold, or are to get more: their number, cores and bytes of memory."""

    sessions: int = 0
    cpus: float = 0
    memory_bytes: int = 0


def check_quota(limits: KeyLimits, used: Usage, more: Usage) -> None:
    """Raises: RateLimitedError naming the limit where `more` on top of `used` is too much.

    What does not grow is not refused, also when it is over a limit that was lowered.
    """
    for name, most, has, wanted in (
        ("max_sessions", limits.max_sessions, used.sessions, more.sessions),
        ("max_cpus", limits.max_cpus, used.cpus, more.cpus),
        ("max_memory_bytes", limits.max_memory_bytes, used.memory_bytes, more.memory_bytes),
    ):
        if most is not None and wanted > 0 and round(has + wanted - most, _CPU_DIGITS) > 0:
            raise RateLimitedError(
                f"{name} of this key is {most:g}, its sessions hold {has:g} and this needs "
                f"{wanted:g} more: close sessions, or ask for less",
                limit=name,
                retry_after=RETRY_SECONDS,
            )


@dataclass(slots=True)
class TokenBucket:
    """Requests that may be made now; `at` is when `tokens` was true, in seconds of any clock."""

    tokens: float
    at: float

    def take(self, now: float, rate: float, burst: float) -> float:
        """Takes one token (0.0), or says in how many seconds there will be one.

        `rate` tokens come each second, up to `burst`, which is at least 1.
        """
        self.tokens = min(burst, self.tokens + max(0.0, now - self.at) * rate)
        self.at = now
        if self.tokens >= 1:
            self.tokens -= 1
            return 0.0
        return (1 - self.tokens) / rate


class Turns(Generic[Ticket]):
    """Who may do heavy work now: `most` tickets in all, `most_per_key` of each key.

    Keys take turns, whatever the number of their tickets; each key's own are served in
    their order. At most `most_waiting` of a key wait.
    """

    def __init__(self, most: int, most_per_key: int, most_waiting: int) -> None:
        self._most = most
        self._most_per_key = most_per_key
        self._most_waiting = most_waiting
        # In the order of their turns.
        self._waiting: dict[str, deque[Ticket]] = {}
        self._working: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """Tickets that wait."""
        return sum(map(len, self._waiting.values()))

    @property
    def working(self) -> int:
        """Tickets that were given their turn and have not finished."""
        return self._working.total()

    def ask(self, key: str, ticket: Ticket) -> None:
        """Adds a ticket. Raises: RateLimitedError when too many of the key's wait."""
        queue = self._waiting.get(key, ())
        if len(queue) >= self._most_waiting:
            raise RateLimitedError(
                f"{len(queue)} creations of this key wait already: create fewer at once",
                limit=WAITING,
                retry_after=RETRY_SECONDS,
            )
        self._waiting.setdefault(key, deque()).append(ticket)

    def withdraw(self, key: str, ticket: Ticket) -> None:
        """Takes a ticket back, if it waits."""
        queue = self._waiting.get(key)
        if queue is not None and ticket in queue:
            queue.remove(ticket)
            if not queue:
                del self._waiting[key]

    def next(self) -> tuple[str, Ticket] | None:
        """The key and ticket whose turn it is now, which works from now on; None: nobody's."""
        if self.working >= self._most:
            return None
        for key, queue in self._waiting.items():
            if self._working[key] < self._most_per_key:
                ticket = queue.popleft()
                del self._waiting[key]
                if queue:  # behind the others
                    self._waiting[key] = queue
                self._working[key] += 1
                return key, ticket
        return None

    def finish(self, key: str) -> None:
        """One of the key's tickets does not work any more."""
        self._working[key] -= 1
        if not self._working[key]:
            del self._working[key]
