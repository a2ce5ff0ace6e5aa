"""Credentials that expire: renewed before requests, and while one is under way."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol, runtime_checkable

from paddock.client.errors import PaddockError
from paddock.client.local_directory import off_loop
from paddock.client.loop_thread import on_loop
from paddock.connect.address import find_address
from paddock.connect.errors import NoAddressError

# Before a renewal that has failed is tried again. Until then, the token so far is sent.
_PAUSE_SECONDS = 5.0
# `loop.call_later` takes no longer time.
_MOST_SECONDS = 86_400.0


@runtime_checkable
class RenewedKey(Protocol):
    """A token that is renewed, such as that of `paddock login --sso`."""

    @property
    def key(self) -> str:
        """The token as it is now."""

    @property
    def due(self) -> float:
        """When it must be renewed, in seconds since 1970; infinity: never."""

    def renew(self) -> None:
        """Renews it, if nobody else has; it may take some seconds.

        Raises: NoAddressError if its user must sign in again, or the issuer does not answer.
        """


def address_of(
    url: str | None, key: str | RenewedKey | None, context: str | None
) -> tuple[str, str | RenewedKey]:
    """The address, and the key or token for it. Raises: NoAddressError."""
    if url is not None and key is not None:
        return url, key
    given = key if key is None or isinstance(key, str) else key.key
    address = find_address(url, given, context=context)
    return address.url, key or address.token or address.key


class Renewing:
    """Keeps a token valid while anything uses it."""

    def __init__(self, token: RenewedKey, present: Callable[[], Awaitable[None]]) -> None:
        """`present` shows a new token to the control plane, so that nothing of the old one ends."""
        self._token = token
        self._present = present
        self._uses = 0
        self._quiet_until = 0.0
        self._renewing: asyncio.Lock | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """The token is valid meanwhile."""
        await on_loop()
        await self._renew()
        self._uses += 1
        self._arm()
        try:
            yield
        finally:
            self._uses -= 1
            if not self._uses:
                self._disarm()

    async def _renew(self) -> bool:
        """Renews it if that is due; returns whether there is another one."""
        if self._renewing is None:
            self._renewing = asyncio.Lock()
        async with self._renewing:
            before, now = self._token.key, time.time()
            if max(self._token.due, self._quiet_until) > now:
                return False
            try:
                # Others wait for the issuer, and the loop does not.
                await off_loop(self._token.renew)
            except NoAddressError:
                # What the control plane says of the old one tells the user what to do.
                self._quiet_until = now + _PAUSE_SECONDS
            return self._token.key != before

    def _arm(self) -> None:
        if self._timer is not None or self._task is not None:
            return
        seconds = max(self._token.due, self._quiet_until) - time.time()
        if seconds > _MOST_SECONDS:
            return
        self._timer = asyncio.get_running_loop().call_later(max(0.0, seconds), self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        try:
            if await self._renew() and self._uses:
                with suppress(PaddockError):
                    await self._present()
        finally:
            self._task = None
            if self._uses:
                self._arm()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # A renewal that has begun ends by itself: its refresh token is good for one answer.
