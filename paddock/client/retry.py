"""Decides when a request is sent again, and after how long. No I/O."""

import random
import time
from dataclasses import dataclass

from paddock.client.errors import (
    CapacityExhaustedError,
    ClusterUnavailableError,
    ConnectionLostError,
    EngineUnavailableError,
    NoAnswerError,
    NodeUnavailableError,
    PaddockError,
    RateLimitedError,
    SandboxUnavailableError,
    UnreachableError,
)

# Errors that may be gone a little later.
PASSING = (
    UnreachableError,
    ConnectionLostError,
    NoAnswerError,
    SandboxUnavailableError,
    EngineUnavailableError,
    ClusterUnavailableError,
    NodeUnavailableError,
    RateLimitedError,
)
_FIRST_SECONDS = 0.1
_MOST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`gets`: how often a GET is retried; `capacity`: seconds to wait for capacity."""

    gets: int = 2
    capacity: float = 0.0

    def delay(self, method: str, error: PaddockError, failures: int, waited: float) -> float | None:
        """Seconds until the request is sent again, or None if the error is final.

        `failures` counts this request's failures, this one included; `waited`: seconds since the
        first. A request that may have had an effect is never sent again.
        """
        if isinstance(error, CapacityExhaustedError):
            pause = max(error.retry_after or 1.0, _FIRST_SECONDS)
            return pause if waited + pause <= self.capacity else None
        if method != "GET" or failures > self.gets or not isinstance(error, PASSING):
            return None
        return max(backoff(failures), _asked_for(error))


class Patience:
    """How long a stream tries to reconnect: `seconds` without any event."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._failures = 0
        self._since: float | None = None

    def renew(self) -> None:
        """Something arrived."""
        self._failures, self._since = 0, None

    def delay(self, error: PaddockError) -> float:
        """Seconds until the next attempt. Raises: the error, if it has lasted too long."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        self._failures += 1
        pause = max(backoff(self._failures), _asked_for(error))
        if now - self._since + pause > self._seconds:
            raise error
        return pause


def backoff(failures: int) -> float:
    """Seconds to wait after so many failures in a row: doubling, with random variation."""
    longest = min(_MOST_SECONDS, _FIRST_SECONDS * (1 << min(failures - 1, 16)))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret


def _asked_for(error: PaddockError) -> float:
    return (error.retry_after or 0.0) if isinstance(error, RateLimitedError) else 0.0
