"""The last answers to each session's requests, for clients that repeat one.

A client that has lost a connection sends the request again with its `X-Request-ID`, so nothing is
done twice. Memory is bounded for each session, for each key, and for all of them: a session pays
for its own answers, a key for those of its sessions, and for too much of all the key with most.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from aiohttp import web

# Of one session, of the sessions of one key, and of all keys.
MOST_ANSWERS = 32
MOST_BYTES = 2 * 2**20
MOST_SESSIONS_OF_KEY = 256
MOST_BYTES_OF_KEY = 16 * 2**20
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


@dataclass(eq=False)
class _OfKey:
    """The sessions of a key, in order of use."""

    used: float
    sessions: OrderedDict[str, _OfSession] = field(default_factory=OrderedDict)
    bytes: int = 0

    def of(self, session: str, now: float) -> _OfSession:
        """The requests of a session that is used now."""
        kept = self.sessions.setdefault(session, _OfSession(now))
        self.used = kept.used = now
        self.sessions.move_to_end(session)
        return kept

    def forget_oldest(self) -> None:
        """Forgets the session that was used least recently."""
        _, kept = self.sessions.popitem(last=False)
        self.bytes -= kept.bytes

    def forget_unused(self, since: float) -> None:
        """Forgets sessions that were not used since then, and the oldest ones above the bounds."""
        while len(self.sessions) > 1:
            over = self.bytes > MOST_BYTES_OF_KEY or len(self.sessions) > MOST_SESSIONS_OF_KEY
            if not over and next(iter(self.sessions.values())).used > since:
                return
            self.forget_oldest()


class LastAnswers:
    """What was answered to the last requests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # In order of use.
        self._keys: OrderedDict[str, _OfKey] = OrderedDict()

    def __len__(self) -> int:
        return sum(
            len(each.requests)
            for of_key in self._keys.values()
            for each in of_key.sessions.values()
        )

    @property
    def bytes(self) -> int:
        """The size of all answers."""
        return sum(of_key.bytes for of_key in self._keys.values())

    async def once(
        self,
        key: str,
        session: str,
        name: str,
        serve: Callable[[], Awaitable[Answer]],
        lost: Answer,
    ) -> Answer:
        """The answer of `serve`, which is not called again for a request of the same name.

        The session belongs to the `key`. `lost` is the answer if the client left before there was
        one. If `serve` raises, the request may be made again.
        """
        of_key = self._of(key)
        kept = of_key.of(session, of_key.used)
        of_key.forget_unused(of_key.used - _SECONDS)
        request = kept.requests.get(name)
        if request is not None:
            await request.done.wait()
            if request.answer is not None:
                return request.answer
        request = kept.requests[name] = _Request()
        try:
            answer = await serve()
        except asyncio.CancelledError:
            self._keep(of_key, session, kept, request, lost)
            raise
        except BaseException:
            kept.requests.pop(name, None)
            raise
        else:
            self._keep(of_key, session, kept, request, answer)
            return answer
        finally:
            request.done.set()

    def _of(self, key: str) -> _OfKey:
        """What is kept for a key that is used now; keys that nobody uses are forgotten."""
        now = self._clock()
        of_key = self._keys.setdefault(key, _OfKey(now))
        of_key.used = now
        self._keys.move_to_end(key)
        while (oldest := next(iter(self._keys))) != key:
            if self._keys[oldest].used > now - _SECONDS:
                break
            del self._keys[oldest]
        return of_key

    def _keep(
        self, of_key: _OfKey, session: str, kept: _OfSession, request: _Request, answer: Answer
    ) -> None:
        before = kept.bytes
        request.answer = answer
        kept.bytes += len(answer.body)
        # The last answer is kept, whatever its size: operations bound it.
        while len(kept.requests) > MOST_ANSWERS or kept.bytes > MOST_BYTES:
            if kept.bytes == len(answer.body) or not kept.forget_oldest():
                break
        if of_key.sessions.get(session) is not kept:
            return  # it is forgotten by now
        of_key.bytes += kept.bytes - before
        of_key.forget_unused(self._clock() - _SECONDS)
        while self.bytes > MOST_BYTES_OF_ALL:
            most = max(self._keys.values(), key=lambda each: each.bytes)
            if len(most.sessions) == 1:
                break
            most.forget_oldest()
