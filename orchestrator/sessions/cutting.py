"""Cuts secrets out of what may be long, so that nobody else waits for it."""

from collections.abc import Iterator
from typing import Any

from orchestrator.errors import SandboxUnavailableError
from orchestrator.fair_queue import FairQueue
from orchestrator.sessions.session import Session
from orchestrator.threads import Threads

# Shorter texts take less than to hand them to a thread, and back.
_MOST_AT_ONCE = 16 * 1024
# One thread, in which each session has one text at most. What else waits of it is refused.
_MOST_WAITING = 32
_SECONDS = 60.0


class Cutting:
    """A thread for long texts, which sessions have in turns."""

    def __init__(self) -> None:
        self._threads = Threads("texts that are searched for secrets", 1)
        self._turns = FairQueue(1, 1, _MOST_WAITING, "long requests")

    async def value(self, session: Session, value: Any) -> Any:
        """The JSON value without the session's secrets.

        Raises: RateLimitedError where too many of it wait, SandboxUnavailableError where it takes
        too long, what `Session.check_live` does where it ended meanwhile.
        """
        redactor = session.secrets.redactor
        if not redactor or _is_short(value):
            return redactor.value(value)
        with await self._turns.take(session.key):
            try:
                cut = await self._threads.call(lambda: redactor.value(value), _SECONDS)
            except TimeoutError:
                detail = "long texts could not be searched for secrets in time: try again"
                raise SandboxUnavailableError(detail) from None
        session.check_live()
        return cut


def _is_short(value: Any) -> bool:
    """Whether all of its texts together are."""
    left = _MOST_AT_ONCE
    for size in _sizes(value):
        left -= size
        if left < 0:
            return False
    return True


def _sizes(value: Any) -> Iterator[int]:
    if isinstance(value, str):
        yield len(value) + 1
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _sizes(name)
            yield from _sizes(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _sizes(item)
