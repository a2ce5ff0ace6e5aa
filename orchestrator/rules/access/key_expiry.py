"""Expires keys at their time instead of at their next request."""

import asyncio
from datetime import UTC, datetime, timedelta

from orchestrator.rules.access.keys import KeyRing
from orchestrator.rules.access.users import SignedInUsers


class KeyExpiry:
    """One timer at the earliest expiry of all keys. When it fires, it notifies the keys' listeners.

    Call `start` to begin and `close` to end.
    """

    def __init__(self, keys: KeyRing, users: SignedInUsers | None = None) -> None:
        """`users` are those that the keys know, if any."""
        self._keys = keys
        if users is not None:
            users.on_sign_in(self._arm)
        self._timer: asyncio.TimerHandle | None = None
        self._ignore = keys.on_change(self._arm)

    def start(self) -> None:
        """Waits for the next expiry, including those of keys that are added later."""
        self._arm()

    def clock_changed(self, _forward: timedelta) -> None:
        """Waits for the same moment by the clock as it is now."""
        self._arm()

    def close(self) -> None:
        """Stops waiting."""
        self._ignore()
        self._cancel()

    def _arm(self) -> None:
        self._cancel()
        moment = self._keys.next_expiry
        if moment is not None:
            seconds = (moment - datetime.now(UTC)).total_seconds()
            loop = asyncio.get_running_loop()
            # The event loop's clock may be slightly ahead of the wall clock.
            self._timer = loop.call_later(max(0.0, seconds) + 0.001, self._keys.announce)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
