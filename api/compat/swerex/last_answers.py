"""The last answers to each session's requests, for clients that repeat one.

A client that has lost a connection sends the request again with its `X-Request-ID`, so nothing is
done twice. Memory is bounded for each session and for all of them.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from aiohttp import web

# Of one session, and of all sessions.
MOST_ANSWERS = 32
MOST_BYTES = 2 * 2**20
MOST_SESSIONS = 1024
MOST_BYTES_OF_ALL = 64 * 2**20
_SECONDS = 600.0


class Answer(NamedTuple):
    """A response."""

    status: int
    body: bytes

    def response(self) -> web.Response:
        """The response, once more."""
        return web.Response(
            status=self.status, body=self.body, content_type="application/json", charset="utf-8"
        )


@dataclass(eq=False)
class _Request:
    answer: Answer | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class _OfSession:
    """The requests of a session, the oldest first. Those without an answer are being served."""

    used: float
    requests: OrderedDict[str, _Request] = field(default_factory=OrderedDict)
    bytes: int = 0

    def forget_oldest(self) -> bool:
        """Forgets the oldest answer; False if there is none."""
        for name, request in self.requests.items():
            if request.answer is not None:
                self.bytes -= len(request.answer.body)
                del self.requests[name]
                return True
        return False


class LastAnswers:
    """What was answered to the last requests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # In order of use.
        self._sessions: OrderedDict[str, _OfSession] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return sum(len(each.requests) for each in self._sessions.values())

    async def once(
        self, session: str, name: str, serve: Callable[[], Awaitable[Answer]], lost: Answer
    ) -> Answer:
        """The answer of `serve`, which is not called again for a request of the same name.

        `lost` is the answer if the client left before there was one. If `serve` raises, the request
        may be made again.
        """
        kept = self._of(session)
        request = kept.requests.get(name)
        if request is not None:
            await request.done.wait()
            if request.answer is not None:
                return request.answer
        request = kept.requests[name] = _Request()
        try:
            answer = await serve()
        except asyncio.CancelledError:
            self._keep(session, kept, request, lost)
            raise
        except BaseException:
            kept.requests.pop(name, None)
            raise
        else:
            self._keep(session, kept, request, answer)
            return answer
        finally:
            request.done.set()

    def _of(self, session: str) -> _OfSession:
        now = self._clock()
        kept = self._sessions.setdefault(session, _OfSession(now))
        kept.used = now
        self._sessions.move_to_end(session)
        self._forget_unused(now)
        return kept

    def _keep(self, session: str, kept: _OfSession, request: _Request, answer: Answer) -> None:
        before = kept.bytes
        request.answer = answer
        kept.bytes += len(answer.body)
        # The last answer is kept, whatever its size: operations bound it.
        while len(kept.requests) > MOST_ANSWERS or kept.bytes > MOST_BYTES:
            if kept.bytes == len(answer.body) or not kept.forget_oldest():
                break
        if self._sessions.get(session) is kept:  # it may be forgotten by now
            self.bytes += kept.bytes - before
            self._forget_unused(self._clock())

    def _forget_unused(self, now: float) -> None:
        """Forgets sessions that are not used, and while all hold too much, the oldest ones."""
        while len(self._sessions) > 1:
            session, kept = next(iter(self._sessions.items()))
            over = self.bytes > MOST_BYTES_OF_ALL or len(self._sessions) > MOST_SESSIONS
            if not over and now - kept.used < _SECONDS:
                return
            self.bytes -= kept.bytes
            del self._sessions[session]
