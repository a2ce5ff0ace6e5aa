"""Request rates of API keys and session handles."""

import time
from collections import OrderedDict
from collections.abc import Callable

from orchestrator.ground.errors import RateLimitedError
from orchestrator.ground.limits import HANDLE_REQUESTS, REQUESTS, TokenBucket
from orchestrator.rules.access.keys import KeyRing, Principal, Role
from orchestrator.settings.settings import Settings


class RequestRates:
    """Token buckets for keys, and separate ones for handles, which don't use up the key's.

    Each handle has its own bucket, and all handles of a key share another one, so that the owner of
    many sessions gets at most twice a key's share.
    """

    def __init__(
        self, settings: Settings, keys: KeyRing, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._defaults = settings.key_limits
        self._burst_seconds = settings.key_burst_seconds
        self._keys = keys
        self._clock = clock
        # In order of use.
        self._buckets: OrderedDict[tuple[str, str], TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        """The number of buckets that are not full."""
        return len(self._buckets)

    def spend(self, principal: Principal) -> None:
        """Counts one request. Raises: RateLimitedError if none is left."""
        account = principal.account
        if principal.role is not Role.HANDLE:
            rate = principal.limits.requests_per_second or self._defaults.requests_per_second
            self._take(("key", account), rate, REQUESTS, f"{REQUESTS} of this key")
            return
        limits = self._keys.limits(account).over(self._defaults)
        own = ("handle", principal.session_key or "")
        rate = limits.handle_requests_per_second
        self._take(own, rate, HANDLE_REQUESTS, f"{HANDLE_REQUESTS} of this session")
        whose = f"{REQUESTS} of all handles of the session's key"
        self._take(("handles", account), limits.requests_per_second, REQUESTS, whose)

    def _take(self, name: tuple[str, str], rate: float | None, limit: str, whose: str) -> None:
        if rate is None:
            return
        now, burst = self._clock(), max(1.0, rate * self._burst_seconds)
        self._forget_full(now)
        bucket = self._buckets.setdefault(name, TokenBucket(burst, now))
        self._buckets.move_to_end(name)
        wait = bucket.take(now, rate, burst)
        if wait > 0:
            raise RateLimitedError(
                f"{whose} is {rate:g}: ask again in {wait:.3g} s", limit=limit, retry_after=wait
            )

    def _forget_full(self, now: float) -> None:
        """Drops buckets that are full again, as sessions come and go."""
        while self._buckets:
            name, bucket = next(iter(self._buckets.items()))
            if now - bucket.at < bucket.fills_in:
                return
            del self._buckets[name]
