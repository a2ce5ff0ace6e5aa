"""What bounds requests: their rates, what they hold unread or open, and their connections."""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from orchestrator.ground.errors import CapacityExhaustedError, PaddockError, RateLimitedError
from orchestrator.ground.limits import (
    HANDLE_REQUESTS,
    OPEN_REQUESTS,
    REQUESTS,
    UNREAD_BYTES,
    UNREAD_REQUESTS,
    TokenBucket,
)
from orchestrator.ground.serving.connections import ServedConnections
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


_RETRY_SECONDS = 1
# Whose requests are counted: everybody's, those of all handles of a key, a handle's, a key's own.
_Holder = tuple[str, str]
_ALL: _Holder = ("all", "")


class UnreadLimits(NamedTuple):
    """Limits of one caller, of all handles of a key, and of all callers."""

    bytes: tuple[int, int, int] = (16 * 2**20, 32 * 2**20, 96 * 2**20)
    requests: tuple[int, int, int] = (32, 64, 256)
    # Requests that are served, or whose bodies arrive. A session has up to 16 commands, 64 streams.
    open: tuple[int, int, int] = (256, 4096, 8192)
    # A key itself serves all its sessions.
    open_of_key: int = 4096


UNREAD_LIMITS = UnreadLimits()


class Unread:
    """Counts bodies while they arrive. A body is in memory until it is whole."""

    def __init__(self, limits: UnreadLimits = UNREAD_LIMITS) -> None:
        self._limits = limits
        self.bytes: Counter[_Holder] = Counter()
        self.requests: Counter[_Holder] = Counter()
        self.open: Counter[_Holder] = Counter()

    @contextmanager
    def request(self, principal: Principal) -> Iterator[None]:
        """Counts a request until the end of the block. Raises: as `UnreadBody.add`."""
        holders = _holders(principal)
        most = self._limits.open
        if principal.role is not Role.HANDLE:
            most = (self._limits.open_of_key, *most[1:])
        self._take(self.open, holders, 1, most, OPEN_REQUESTS)
        try:
            yield
        finally:
            _give_back(self.open, holders, 1)

    @contextmanager
    def body(self, principal: Principal) -> Iterator["UnreadBody"]:
        """Counts one body until the end of the block. Raises: as `UnreadBody.add`."""
        holders = _holders(principal)
        self._take(self.requests, holders, 1, self._limits.requests, UNREAD_REQUESTS)
        body = UnreadBody(self, holders)
        try:
            yield body
        finally:
            _give_back(self.requests, holders, 1)
            _give_back(self.bytes, holders, body.size)

    def add(self, holders: tuple[_Holder, ...], size: int) -> None:
        """Counts bytes. Raises: as `UnreadBody.add`."""
        self._take(self.bytes, holders, size, self._limits.bytes, UNREAD_BYTES)

    def _take(
        self,
        held: Counter[_Holder],
        holders: tuple[_Holder, ...],
        more: int,
        most: tuple[int, int, int],
        limit: str,
    ) -> None:
        for holder in holders:
            if held[holder] + more > most[_RANKS[holder[0]]]:
                raise _refusal(holder, limit, most[_RANKS[holder[0]]])
        for holder in holders:
            held[holder] += more


class UnreadBody:
    """One body that arrives."""

    def __init__(self, unread: Unread, holders: tuple[_Holder, ...]) -> None:
        self._unread, self._holders = unread, holders
        self.size = 0

    def add(self, size: int) -> None:
        """Counts more bytes of it.

        Raises: RateLimitedError if the caller's bodies hold too much, CapacityExhaustedError if
        everybody's do.
        """
        self._unread.add(self._holders, size)
        self.size += size


_RANKS = {"handle": 0, "key": 0, "handles": 1, "all": 2}
_WHAT = {
    OPEN_REQUESTS: "requests are open",
    UNREAD_REQUESTS: "bodies have not arrived whole",
    UNREAD_BYTES: "bytes of bodies that have not arrived whole are held",
}
_WHOSE = {
    "handle": "this session's handle",
    "key": "this key",
    "handles": "all handles of this session's key",
}


def _holders(principal: Principal) -> tuple[_Holder, ...]:
    if principal.role is not Role.HANDLE:
        return (("key", principal.account), _ALL)
    own = ("handle", principal.session_key or "")
    return (own, ("handles", principal.account), _ALL)


def _refusal(holder: _Holder, limit: str, most: int) -> PaddockError:
    what = _WHAT[limit]
    if holder == _ALL:
        return CapacityExhaustedError(
            f"{most} {what}, the most of all callers: try again", retry_after=_RETRY_SECONDS
        )
    return RateLimitedError(
        f"{limit} of {_WHOSE[holder[0]]} is {most}, and so many {what}: finish some first",
        limit=limit,
        retry_after=_RETRY_SECONDS,
    )


def _give_back(held: Counter[_Holder], holders: tuple[_Holder, ...], size: int) -> None:
    for holder in holders:
        held[holder] -= size
        if not held[holder]:
            del held[holder]


class Bounds(NamedTuple):
    """What bounds requests: their rates, what they hold, and their connections."""

    rates: RequestRates
    unread: Unread
    connections: ServedConnections
