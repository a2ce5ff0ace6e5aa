"""Keys that expire: at that moment, not with their next request, they are worth nothing."""

import asyncio
from datetime import UTC, datetime

from orchestrator.access.keys import KeyRing


class KeyExpiry:
    """One timer, at the earliest expiry of all keys: then whoever listens to them is told.

    `start` it, `close` it.
    """

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys
        self._timer: asyncio.TimerHandle | None = None
        self._ignore = keys.on_change(self._arm)

    def start(self) -> None:
        """Waits for the next expiry; also for those of keys that come later."""
        self._arm()

    def close(self) -> None:
        """Waits no more."""
        self._ignore()
        self._cancel()

    def _arm(self) -> None:
        self._cancel()
        moment = self._keys.next_expiry
        if moment is not None:
            seconds = (moment - datetime.now(UTC)).total_seconds()
            loop = asyncio.get_running_loop()
            # The loop's clock may be a little ahead of the calendar's.
            self._timer = loop.call_later(max(0.0, seconds) + 0.001, self._keys.announce)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
