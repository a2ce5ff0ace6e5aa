"""Refusals of a session on record: above a rate, like ones are told once with their number."""

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.audit.events import EventDraft, EventError
from orchestrator.errors import PaddockError
from orchestrator.sessions.session import Session
from orchestrator.task_scope import TaskScope
from sandbox_agent.repeats import Repeats

log = logging.getLogger(__name__)

# Of one session: like refusals that are recorded one by one, in a second, and at once.
_RATE, _BURST = 20, 100
# What was counted is on record after so long, or tried again.
_SECONDS = 1.0
_RETRY_SECONDS = 5.0

Record = Callable[[Session, EventDraft], Awaitable[None]]


class Marks(Protocol):
    """What is durable while something is only counted."""

    async def set(self, session_key: str) -> None:
        """Something is. Raises: AuditUnavailableError."""

    async def clear(self, session_key: str) -> None:
        """Nothing is any more. Raises: AuditUnavailableError."""


@dataclass(slots=True, eq=False)
class _Counted:
    """What is counted of one session, and who tells it."""

    session: Session
    repeats: Repeats[EventDraft] = field(default_factory=lambda: Repeats(_RATE, _BURST))
    # One tells at a time, and a mark is set or cleared by one at a time.
    telling: asyncio.Lock = field(default_factory=asyncio.Lock)
    marking: asyncio.Lock = field(default_factory=asyncio.Lock)
    marked: bool = False
    task: asyncio.Task[None] | None = None


class Untold:
    """What of a session could not be put on record, at its end."""

    def __init__(self, counted: _Counted | None) -> None:
        self._counted = counted
        self._counts = [] if counted is None else _counts(counted)
        self.number = sum(count for _, count in self._counts)

    def settle(self) -> None:
        """Their number is on record."""
        if self._counted is not None:
            for like, count in self._counts:
                self._counted.repeats.told(like, count)


class Refusals:
    """Refusals are free, so that a client could have the same one recorded without end.

    What is counted stays so until it is on record; each is told at least once.
    """

    def __init__(self, record: Record, marks: Marks | None = None) -> None:
        """`record` puts one of a session on record. Raises: AuditUnavailableError.

        Without `marks` nothing tells a later control plane that some were counted.
        """
        self._record = record
        self._marks = marks
        self._counted: dict[str, _Counted] = {}
        self._closing = asyncio.Event()
        self._tasks = TaskScope("counted refusals")

    async def record(self, session: Session, draft: EventDraft) -> None:
        """Records it, or counts it: then it is on record a second later, or with the end.

        The draft has no secrets, and is as short as what is recorded. Raises:
        AuditUnavailableError.
        """
        counted = self._counted.get(session.key) or self._begin(session)
        if counted.repeats.take(_like(draft), draft, time.monotonic()):
            await self._record(session, draft)
            return
        if counted.task is None:
            counted.task = self._tasks.spawn(self._tell_later(counted))
        await self._mark(counted)

    def _begin(self, session: Session) -> _Counted:
        counted = self._counted[session.key] = _Counted(session)
        session.over.add_done_callback(lambda _: self._forget(counted))
        return counted

    def _forget(self, counted: _Counted) -> None:
        """The session is over; who still tells something of it forgets it afterwards."""
        if counted.task is None:
            self._counted.pop(counted.session.key, None)

    async def end(self, session: Session) -> Untold:
        """The session ends: what was counted is told now; what can't be is to be told with it."""
        counted = self._counted.get(session.key)
        if counted is not None:
            await self._tell(counted)
        return Untold(counted)

    async def close(self) -> None:
        """Tells everything that was counted, as far as it can be."""
        self._closing.set()
        await self._tasks.drain()

    async def _tell_later(self, counted: _Counted) -> None:
        seconds = _SECONDS
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._closing.wait()
                await self._tell(counted)
                await self._unmark(counted)
                if self._closing.is_set() or not counted.repeats.counted():
                    return
                seconds = _RETRY_SECONDS
        finally:
            counted.task = None
            if counted.session.over.done():
                self._forget(counted)

    async def _tell(self, counted: _Counted) -> None:
        async with counted.telling:
            for like, draft, count in counted.repeats.counted():
                repeated = draft._replace(args={**draft.args, "repeats": count})
                try:
                    await self._record(counted.session, repeated)
                except PaddockError as error:
                    log.error("refusals of session %s: %s", counted.session.id, error.detail)
                    return
                except EventError as error:  # like ones were recorded, so that this never is
                    log.error("refusals of session %s: %s", counted.session.id, error)
                counted.repeats.told(like, count)

    async def _mark(self, counted: _Counted) -> None:
        """Has it durable that something is counted. Raises: AuditUnavailableError."""
        async with counted.marking:
            if self._marks is not None and not counted.marked:
                await self._marks.set(counted.session.key)
                counted.marked = True

    async def _unmark(self, counted: _Counted) -> None:
        """Where nothing is counted any more; a mark that stays tells of what may be missing."""
        async with counted.marking:
            if self._marks is None or not counted.marked or counted.repeats.counted():
                return
            with suppress(PaddockError):
                await self._marks.clear(counted.session.key)
                counted.marked = False


def _counts(counted: _Counted) -> list[tuple[str, int]]:
    return [(like, count) for like, _, count in counted.repeats.counted()]


def _like(draft: EventDraft) -> str:
    """What two refusals must have in common; each command has an id of its own."""
    args = {name: value for name, value in draft.args.items() if name != "command_id"}
    alike = draft._replace(args=args, command_id=None)
    return hashlib.sha256(json.dumps(alike, sort_keys=True, default=str).encode()).hexdigest()
