"""How fast an API key may ask."""

import time
from collections.abc import Callable

from orchestrator.config import Settings
from orchestrator.errors import RateLimitedError
from orchestrator.keys import KeyRing, Principal, Role
from orchestrator.limits import REQUESTS, TokenBucket


class RequestRates:
    """One bucket of requests for each key; a handle's come out of its session's owner's."""

    def __init__(
        self, settings: Settings, keys: KeyRing, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = settings.key_requests_per_second
        self._burst_seconds = settings.key_burst_seconds
        self._keys = keys
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}

    def spend(self, principal: Principal) -> None:
        """Counts one request. Raises: RateLimitedError when the key has none left."""
        limits = principal.limits
        if principal.role is Role.HANDLE:
            limits = self._keys.limits(principal.account)
        rate = limits.requests_per_second or self._rate
        burst = max(1.0, rate * self._burst_seconds)
        now = self._clock()
        bucket = self._buckets.get(principal.account)
        if bucket is None:
            bucket = self._buckets[principal.account] = TokenBucket(burst, now)
        wait = bucket.take(now, rate, burst)
        if wait > 0:
            raise RateLimitedError(
                f"{REQUESTS} of this key is {rate:g}: ask again in {wait:.3g} s",
                limit=REQUESTS,
                retry_after=wait,
            )
