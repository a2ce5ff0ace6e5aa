"""The HTTP server's own messages: malformed input gives one line now and then, not a traceback."""

import logging
import time
from collections.abc import Callable
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError

# Anyone may send malformed input at any rate, so lines are at least this many seconds apart.
QUIET_SECONDS = 60.0
_MOST_LOGGED = 128

log = logging.getLogger("paddock.http")


class ServerLog(logging.LoggerAdapter[logging.Logger]):
    """The logger of an HTTP server, which receives everything that the server could not answer.

    `count` is called for each malformed request.
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
        """Logs a message; the server uses this level for some malformed requests."""
        if not self._is_malformed(args, more):
            super().debug(msg, *args, **more)

    def exception(self, msg: object, *args: object, exc_info: Any = True, **more: Any) -> None:
        """Logs an error."""
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
