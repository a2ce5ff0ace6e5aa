"""Resource limits of one API key. Decisions only: no clock and no I/O."""

from collections import Counter, deque
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

from orchestrator.ground.errors import RateLimitedError

# Sessions end and creations finish after an unknown time.
RETRY_SECONDS = 10
# Sums of cores are compared with this precision.
_CPU_DIGITS = 6

REQUESTS = "requests_per_second"
HANDLE_REQUESTS = "handle_requests_per_second"
AUDIT_BYTES = "max_audit_bytes"
EGRESS_BYTES = "max_egress_bytes_per_day"
WAITING = "waiting_creations"
SESSION_STREAMS = "session_max_streams"
KEY_STREAMS = "key_max_streams"
OPEN_REQUESTS = "max_open_requests"
UNREAD_BYTES = "max_unread_bytes"
UNREAD_REQUESTS = "max_unread_requests"

Ticket = TypeVar("Ticket")


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits of one key; None means that a limit is not set.

    They count live sessions and their cores and bytes of memory in total; workspaces, including
    kept ones, and the bytes that they may grow to; requests with the key, and with the handle of
    each of its sessions; bytes of the ledger, including those of ended sessions; and bytes to and
    from the outside on one day.
    """

    max_sessions: int | None = None
    max_cpus: float | None = None
    max_memory_bytes: int | None = None
    max_workspaces: int | None = None
    max_workspace_bytes: int | None = None
    requests_per_second: float | None = None
    handle_requests_per_second: float | None = None
    max_audit_bytes: int | None = None
    max_egress_bytes_per_day: int | None = None

    def over(self, defaults: "KeyLimits") -> "KeyLimits":
        """These limits, with the defaults for those that are not set."""
        own = {name: getattr(self, name) for name in LIMIT_FIELDS}
        return KeyLimits(
            **{n: getattr(defaults, n) if value is None else value for n, value in own.items()}
        )


LIMIT_FIELDS = tuple(field.name for field in fields(KeyLimits))
# Every name that a refusal may contain.
LIMIT_NAMES = (
    *LIMIT_FIELDS,
    *(WAITING, SESSION_STREAMS, KEY_STREAMS, OPEN_REQUESTS, UNREAD_BYTES, UNREAD_REQUESTS),
)


@dataclass(frozen=True, slots=True)
class KeyUsage:
    """What a key's sessions and workspaces use, or would additionally use, in `KeyLimits` units."""

    sessions: int = 0
    cpus: float = 0
    memory_bytes: int = 0
    workspaces: int = 0
    workspace_bytes: int = 0


_CLOSE = "close sessions, or ask for less"


def check_quota(limits: KeyLimits, used: KeyUsage, more: KeyUsage, kept: str | None = None) -> None:
    """Raises RateLimitedError that names the limit if `more` on top of `used` exceeds it.

    A value that does not grow is accepted, even above a limit that was lowered. `kept` is the id of
    a workspace that no session uses: purging it makes room.
    """
    for name, most, has, wanted, remedy in (
        ("max_sessions", limits.max_sessions, used.sessions, more.sessions, _CLOSE),
        ("max_cpus", limits.max_cpus, used.cpus, more.cpus, _CLOSE),
        ("max_memory_bytes", limits.max_memory_bytes, used.memory_bytes, more.memory_bytes, _CLOSE),
        ("max_workspaces", limits.max_workspaces, used.workspaces, more.workspaces, _purge(kept)),
        (
            "max_workspace_bytes",
            limits.max_workspace_bytes,
            used.workspace_bytes,
            more.workspace_bytes,
            _purge(kept),
        ),
    ):
        if most is not None and wanted > 0 and round(has + wanted - most, _CPU_DIGITS) > 0:
            raise RateLimitedError(
                f"{name} of this key is {most:.15g}, it holds {has:.15g} and this needs "
                f"{wanted:.15g} more: {remedy}",
                limit=name,
                retry_after=RETRY_SECONDS,
            )


def _purge(kept: str | None) -> str:
    if kept is None:
        return "close a session and purge its workspace: `paddock sessions close SESSION --purge`"
    return f"purge a kept workspace, such as the oldest: `paddock sessions close {kept} --purge`"


@dataclass(slots=True)
class TokenBucket:
    """Requests that may be made now; `at` is the time of `tokens`, in seconds of any clock."""

    tokens: float
    at: float
    # Seconds until it is full, as of the last request.
    fills_in: float = 0.0

    def take(self, now: float, rate: float, burst: float) -> float:
        """Takes one token and returns 0.0, or returns the seconds until there is one.

        `rate` tokens are added per second, up to `burst`, which is at least 1.
        """
        self.tokens = min(burst, self.tokens + max(0.0, now - self.at) * rate)
        self.at, self.fills_in = now, burst / rate
        if self.tokens >= 1:
            self.tokens -= 1
            return 0.0
        return (1 - self.tokens) / rate


class FairSlots(Generic[Ticket]):
    """Decides who may do heavy work: `most` tickets in all, `most_per_key` of each key.

    Keys are served round robin, however many tickets each has; a key's own tickets are served in
    order. At most `most_waiting` of a key's tickets wait.
    """

    def __init__(
        self, most: int, most_per_key: int, most_waiting: int, kind: str = "creations"
    ) -> None:
        """`kind` names the work in errors."""
        self._kind = kind
        self._most = most
        self._most_per_key = most_per_key
        self._most_waiting = most_waiting
        # In the order in which keys are served.
        self._waiting: dict[str, deque[Ticket]] = {}
        self._working: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """The number of waiting tickets."""
        return sum(map(len, self._waiting.values()))

    @property
    def working(self) -> int:
        """The number of tickets that have a slot."""
        return self._working.total()

    def ask(self, key: str, ticket: Ticket) -> None:
        """Adds a ticket. Raises: RateLimitedError if too many of the key's tickets wait."""
        queue = self._waiting.get(key, ())
        if len(queue) >= self._most_waiting:
            raise RateLimitedError(
                f"{len(queue)} {self._kind} of this key already wait: request fewer at once",
                limit=WAITING,
                retry_after=RETRY_SECONDS,
            )
        self._waiting.setdefault(key, deque()).append(ticket)

    def withdraw(self, key: str, ticket: Ticket) -> None:
        """Removes a ticket if it is waiting."""
        queue = self._waiting.get(key)
        if queue is not None and ticket in queue:
            queue.remove(ticket)
            if not queue:
                del self._waiting[key]

    def next(self) -> tuple[str, Ticket] | None:
        """Starts and returns the next key and ticket; None if none can start."""
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
        """Ends the work of one of the key's tickets."""
        self._working[key] -= 1
        if not self._working[key]:
            del self._working[key]
