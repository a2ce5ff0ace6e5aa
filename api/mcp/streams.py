"""Streams of messages: they are kept a while, so that a client can read on after a break."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

from api.shape.answers import HEARTBEAT_SECONDS, Event
from orchestrator.ground.errors import ValidationError
from paddock.contract.mcp import McpReply

# Messages of one stream, and their bytes. The latest one is kept whatever its size, so that a
# client that reads too slowly misses progress, but not the answer.
MOST_MESSAGES = 64
MOST_BYTES = 512 * 1024
# Streams of one conversation that have ended, and their bytes.
MOST_ENDED = 32
MOST_ENDED_BYTES = 1024 * 1024
# How long an answer that nobody reads is worked on, and how long one that has come is kept.
RESUME_SECONDS = 60.0
# When a client whose connection broke is to connect again.
RETRY_MILLISECONDS = 1000
# An event's id has the number of its stream, and its own in it.
_PLACES = 10**9


class _Kept(NamedTuple):
    number: int
    message: McpReply
    size: int


class Stream:
    """The messages of one request, or those to a client that listens, in their order.

    It has one reader at a time. `work` is what it tells about; it is None where nothing ends with
    the stream. With `primed`, the client can read on, and is told so by the first event.
    """

    def __init__(self, number: int, *, primed: bool) -> None:
        self.number = number
        self.work: asyncio.Task[None] | None = None
        self.ended_at: float | None = None
        self.size = 0
        self._primed = primed
        self._kept: deque[_Kept] = deque()
        # The number of the latest message, and of the latest one that a reader got.
        self._last = 0
        self._read = 0
        self._reader: object | None = None
        self._left: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()

    @property
    def has_reader(self) -> bool:
        """Whether a client reads it."""
        return self._reader is not None

    def add(self, message: McpReply, *, once: bool = False) -> None:
        """Adds a message; with `once`, not if the same one waits for the reader."""
        if self.ended_at is not None:
            return
        if once and any(
            each.number > self._read and each.message == message for each in self._kept
        ):
            return
        self._last += 1
        self._kept.append(_Kept(self._last, message, len(message.encode())))
        self.size += self._kept[-1].size
        while len(self._kept) > 1 and (len(self._kept) > MOST_MESSAGES or self.size > MOST_BYTES):
            self.size -= self._kept.popleft().size
        self._wake()

    def end(self) -> None:
        """No more messages will come."""
        if self.ended_at is None:
            self.ended_at = asyncio.get_running_loop().time()
            self._stay()
            self._wake()

    def cancel(self) -> bool:
        """Cancels the work; returns whether there was any."""
        return self.work is not None and self.work.cancel()

    async def events(
        self, after: int | None = None, stays: Callable[[], bool] = lambda: False
    ) -> AsyncGenerator[Event | None]:
        """The messages after that one, or those that nobody read; None after a silent while.

        Another reader ends this one. A reader that leaves early ends the work: at once, or where it
        may come back (`stays`), if it does not.
        """
        reader = self._reader = object()
        self._stay()
        self._wake()
        position = self._read if after is None else after
        try:
            if self._primed:
                yield Event("message", "", self._id(position), RETRY_MILLISECONDS)
            while self._reader is reader:
                found = next((each for each in self._kept if each.number > position), None)
                if found is not None:
                    position = found.number
                    self._read = max(self._read, position)
                    event_id = self._id(position) if self._primed else None
                    yield Event("message", found.message, event_id)
                elif self.ended_at is not None:
                    return
                elif not await self._news():
                    yield None
        finally:
            if self._reader is reader:
                self._reader = None
                await self._leave(stays)

    async def _leave(self, stays: Callable[[], bool]) -> None:
        work = self.work
        if work is None or work.done():
            return
        if stays():
            loop = asyncio.get_running_loop()
            self._left = loop.call_later(RESUME_SECONDS, work.cancel)
        else:
            work.cancel()
            await asyncio.wait([work])

    def _stay(self) -> None:
        if self._left is not None:
            self._left.cancel()
            self._left = None

    async def _news(self) -> bool:
        """Waits for a change; returns whether there was one."""
        changed = self._changed
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await changed.wait()
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _id(self, number: int) -> int:
        return self.number * _PLACES + number


class Streams:
    """The streams of one conversation. `primed` is as in `Stream`."""

    def __init__(self, *, primed: bool) -> None:
        self.primed = primed
        self.listening = Stream(0, primed=primed)
        self._opened = 0
        self._found: dict[int, Stream] = {}

    def __len__(self) -> int:
        """The number of requests whose streams are kept."""
        return len(self._found)

    def open(self, *, primed: bool) -> Stream:
        """The stream of another request; old ones make room."""
        self._forget()
        self._opened += 1
        stream = Stream(self._opened, primed=primed)
        if primed:
            self._found[stream.number] = stream
        return stream

    def at(self, event_id: int) -> tuple[Stream, int]:
        """The stream of an event, and the event's number in it. Raises: ValidationError."""
        self._forget()
        number, after = divmod(event_id, _PLACES)
        stream = self._found.get(number) if number else self.listening
        if stream is None:
            text = f"no stream with this event is kept; one is for {RESUME_SECONDS:.0f} s"
            raise ValidationError(text, field="Last-Event-ID")
        return stream, after

    def _forget(self) -> None:
        """Drops streams that ended long ago, and the oldest of too many."""
        now = asyncio.get_running_loop().time()
        ended = [each for each in self._found.values() if each.ended_at is not None]
        ended.sort(key=lambda each: each.ended_at or 0.0, reverse=True)
        size = 0
        for position, each in enumerate(ended):
            size += each.size
            old = now - (each.ended_at or 0.0) > RESUME_SECONDS
            if old or position >= MOST_ENDED or size > MOST_ENDED_BYTES:
                del self._found[each.number]
