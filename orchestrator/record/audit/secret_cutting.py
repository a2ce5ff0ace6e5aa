"""Removes secrets from values that may be long, without delaying others."""

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.ground.fair_queue import FairQueue
from orchestrator.ground.threads import Threads
from orchestrator.state.session import Session
from sandbox_agent.decide.escapes import Span
from sandbox_agent.decide.redaction import Window

T = TypeVar("T")

# Shorter texts are searched at once. That takes 4 ms at worst (64 secrets, a text of nothing but
# escapes), and usually less than handing them to a thread and back.
MOST_AT_ONCE = 8 * 1024
# One thread, which holds at most one text of each session. The number of others that may wait.
_MOST_WAITING = 32
_SECONDS = 60.0


class SecretCutting:
    """A thread for long texts, which serves sessions round robin."""

    def __init__(self, kind: str = "long requests", most_waiting: int = _MOST_WAITING) -> None:
        """`kind` names the texts in errors; `most_waiting` of a session may wait."""
        self._threads = Threads("texts that are searched for secrets", 1)
        self._queue = FairQueue(1, 1, most_waiting, kind)

    async def value(self, session: Session, value: Any) -> Any:
        """The JSON value without the session's secrets.

        The session may have ended meanwhile. Raises: RateLimitedError if too many of its values
        wait; SandboxUnavailableError if it takes too long.
        """
        redactor = session.secrets.redactor
        if not redactor or _is_short(value):
            return redactor.value(value)
        return await self._in_thread(session.key, lambda: redactor.value(value))

    async def spans(
        self, session_key: str, window: Window, spent: Callable[[float], object]
    ) -> list[Span]:
        """The positions of secrets in a part of a stream; `spent` receives the thread's seconds.

        Raises: RateLimitedError if too much of the session waits; SandboxUnavailableError if it
        takes too long.
        """
        if not window.redactor or len(window.data) <= MOST_AT_ONCE:
            return window.spans()

        def timed() -> tuple[list[Span], float]:
            began = time.thread_time()
            return window.spans(), time.thread_time() - began

        spans, seconds = await self._in_thread(session_key, timed)
        spent(seconds)
        return spans

    async def _in_thread(self, session_key: str, work: Callable[[], T]) -> T:
        with await self._queue.take(session_key):
            try:
                return await self._threads.call(work, _SECONDS)
            except TimeoutError:
                detail = "long texts could not be searched for secrets in time: try again"
                raise SandboxUnavailableError(detail) from None


def _is_short(value: Any) -> bool:
    """Whether all of its texts together are short."""
    left = MOST_AT_ONCE
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
