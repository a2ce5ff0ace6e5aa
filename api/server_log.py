"""What the HTTP server says itself: of what is not HTTP one line now and then, not a traceback."""

import logging
import time
from collections.abc import Callable
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError

# Anybody may send what is not HTTP, as often as they like: so many seconds between two lines.
QUIET_SECONDS = 60.0
_MOST_LOGGED = 128

log = logging.getLogger("paddock.http")


class ServerLog(logging.LoggerAdapter[logging.Logger]):
    """The logger of an HTTP server, which is given all that the server could not answer.

    `count` is called for each request that was not HTTP.
    """

    def __init__(
        self, count: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(log, None)
        self._count = count
        self._clock = clock
        self._quiet_until = float("-inf")
        self._unsaid = 0

    def debug(self, msg: object, *args: object, **more: Any) -> None:
        """As a logger's; the server takes what begins like no request for less of an error."""
        if not self._is_malformed(args, more):
            super().debug(msg, *args, **more)

    def exception(self, msg: object, *args: object, exc_info: Any = True, **more: Any) -> None:
        """As a logger's."""
        if not self._is_malformed(args, {"exc_info": exc_info}):
            super().exception(msg, *args, exc_info=exc_info, **more)

    def _is_malformed(self, args: tuple[object, ...], more: dict[str, Any]) -> bool:
        error = more.get("exc_info")
        if not isinstance(error, HttpProcessingError):
            return False
        self._count()
        now = self._clock()
        if now < self._quiet_until:
            self._unsaid += 1
            return True
        reason = " ".join(error.message.split())[:_MOST_LOGGED]
        client = args[0] if args else None
        fields = {"client": str(client), "reason": reason, "unsaid": self._unsaid}
        self._quiet_until, self._unsaid = now + QUIET_SECONDS, 0
        log.warning("a request was not HTTP", extra=fields)
        return True
