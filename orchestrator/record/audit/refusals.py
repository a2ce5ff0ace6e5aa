"""Records the refusals of a session. Above a rate, identical ones share one event."""

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.events import EventDraft, EventError
from orchestrator.ground.task_scope import TaskScope
from orchestrator.state.session import Session
from sandbox_agent.decide.repeats import Repeats

log = logging.getLogger(__name__)

# Identical refusals of one session that are recorded individually: per second, and in a burst.
_RATE, _BURST = 20, 100
# Counted refusals are recorded after this time, or retried.
_SECONDS = 1.0
_RETRY_SECONDS = 5.0

Record = Callable[[Session, EventDraft], Awaitable[object]]


class Marks(Protocol):
    """A durable mark while refusals are only counted."""

    async def set(self, session_key: str) -> None:
        """Sets the mark. Raises: AuditUnavailableError."""

    async def clear(self, session_key: str) -> None:
        """Removes the mark. Raises: AuditUnavailableError."""


@dataclass(slots=True, eq=False)
class _Counted:
    """The counted refusals of one session, and the task that records them."""

    session: Session
    repeats: Repeats[EventDraft] = field(default_factory=lambda: Repeats(_RATE, _BURST))
    # One task records at a time, and one sets or removes a mark at a time.
    recording: asyncio.Lock = field(default_factory=asyncio.Lock)
    marking: asyncio.Lock = field(default_factory=asyncio.Lock)
    marked: bool = False
    task: asyncio.Task[None] | None = None


class UnrecordedRefusals:
    """Refusals of an ended session that could not be recorded."""

    def __init__(self, counted: _Counted | None) -> None:
        self._counted = counted
        self._counts = [] if counted is None else _counts(counted)
        self.number = sum(count for _, count in self._counts)

    def settle(self) -> None:
        """Notes that their number is recorded."""
        if self._counted is not None:
            for like, count in self._counts:
                self._counted.repeats.mark_reported(like, count)


class Refusals:
    """Refusals are free, so a client could otherwise have the same one recorded endlessly.

    A counted refusal stays counted until it is recorded; each is recorded at least once.
    """

    def __init__(self, record: Record, marks: Marks | None = None) -> None:
        """`record` records one refusal of a session. Raises: AuditUnavailableError.

        Without `marks`, a later control plane does not learn that refusals were counted.
        """
        self._record = record
        self._marks = marks
        self._counted: dict[str, _Counted] = {}
        self._closing = asyncio.Event()
        self._tasks = TaskScope("counted refusals")

    async def record(self, session: Session, draft: EventDraft, *, alone: bool = True) -> None:
        """Records a refusal, or counts it: then it is recorded a second later, or with the end.

        Not `alone`: it is always counted. The draft contains no secrets and is as short as what is
        recorded. Raises: AuditUnavailableError.
        """
        counted = self._counted.get(session.key) or self._begin(session)
        like = _like(draft)
        if not alone:
            counted.repeats.count(like, draft)
        elif counted.repeats.take(like, draft, time.monotonic()):
            await self._record(session, draft)
            return
        if counted.task is None:
            counted.task = self._tasks.spawn(self._record_later(counted))
        await self._mark(counted)

    def _begin(self, session: Session) -> _Counted:
        counted = self._counted[session.key] = _Counted(session)
        session.over.add_done_callback(lambda _: self._forget(counted))
        return counted

    def _forget(self, counted: _Counted) -> None:
        """Forgets an ended session, or has the task that still records for it do so afterwards."""
        if counted.task is None:
            self._counted.pop(counted.session.key, None)

    async def end(self, session: Session) -> UnrecordedRefusals:
        """Ends a session: records counted refusals, and returns those that remain unrecorded."""
        counted = self._counted.get(session.key)
        if counted is not None:
            await self._record_counted(counted)
        return UnrecordedRefusals(counted)

    async def close(self) -> None:
        """Records all counted refusals as far as possible."""
        self._closing.set()
        await self._tasks.drain()

    async def _record_later(self, counted: _Counted) -> None:
        seconds = _SECONDS
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._closing.wait()
                await self._record_counted(counted)
                await self._unmark(counted)
                if self._closing.is_set() or not counted.repeats.counted():
                    return
                seconds = _RETRY_SECONDS
        finally:
            counted.task = None
            if counted.session.over.done():
                self._forget(counted)

    async def _record_counted(self, counted: _Counted) -> None:
        async with counted.recording:
            for like, draft, count in counted.repeats.counted():
                repeated = draft._replace(args={**draft.args, "repeats": count})
                try:
                    await self._record(counted.session, repeated)
                except PaddockError as error:
                    log.error("refusals of session %s: %s", counted.session.id, error.detail)
                    return
                except EventError as error:  # identical ones were recorded, so this never happens
                    log.error("refusals of session %s: %s", counted.session.id, error)
                counted.repeats.mark_reported(like, count)

    async def _mark(self, counted: _Counted) -> None:
        """Makes durable that refusals are being counted. Raises: AuditUnavailableError."""
        async with counted.marking:
            if self._marks is not None and not counted.marked:
                await self._marks.set(counted.session.key)
                counted.marked = True

    async def _unmark(self, counted: _Counted) -> None:
        """Removes the mark if nothing is counted; a mark that stays reports what may be missing."""
        async with counted.marking:
            if self._marks is None or not counted.marked or counted.repeats.counted():
                return
            with suppress(PaddockError):
                await self._marks.clear(counted.session.key)
                counted.marked = False


def _counts(counted: _Counted) -> list[tuple[str, int]]:
    return [(like, count) for like, _, count in counted.repeats.counted()]


def _like(draft: EventDraft) -> str:
    """What identical refusals have in common; each command has its own id."""
    args = {name: value for name, value in draft.args.items() if name != "command_id"}
    alike = draft._replace(args=args, command_id=None)
    return hashlib.sha256(json.dumps(alike, sort_keys=True, default=str).encode()).hexdigest()
