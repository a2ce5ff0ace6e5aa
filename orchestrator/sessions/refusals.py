"""Refusals of a session on record: above a rate, like ones are told once with their number."""

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from orchestrator.errors import PaddockError
from orchestrator.sessions.session import Session
from sandbox_agent.repeats import Repeats

log = logging.getLogger(__name__)

# Of one session: like refusals that are recorded one by one, in a second, and at once.
_RATE, _BURST = 20, 100
# What was counted is on record after so long.
_SECONDS = 1.0

Members = dict[str, Any]
Record = Callable[[Session, Members], Awaitable[None]]


class Refusals:
    """Refusals are free, so that a client could have the same one recorded without end."""

    def __init__(self, record: Record) -> None:
        """`record` puts one of a session on record. Raises: AuditUnavailableError."""
        self._record = record
        self._repeats: dict[str, Repeats[Members]] = {}
        # Sessions of which something is counted, and what tells it.
        self._telling: dict[str, tuple[Session, asyncio.Task[None]]] = {}

    async def record(self, session: Session, members: Members) -> None:
        """Records it, or counts it: then it is on record a second later, or with the end.

        `members` have no secrets, and are as short as what is recorded. Raises:
        AuditUnavailableError.
        """
        repeats = self._repeats.setdefault(session.key, Repeats(_RATE, _BURST))
        if repeats.take(_like(members), members, time.monotonic()):
            await self._record(session, members)
        elif session.key not in self._telling:
            task = asyncio.create_task(self._tell_later(session))
            self._telling[session.key] = session, task
            task.add_done_callback(lambda _: self._telling.pop(session.key, None))

    async def end(self, session: Session) -> None:
        """The session ends: what was counted is told now, as far as it can be."""
        await self._tell(session)
        self._repeats.pop(session.key, None)

    async def close(self) -> None:
        """Tells everything that was counted."""
        telling = list(self._telling.values())
        for _, task in telling:
            task.cancel()
        await asyncio.gather(*(task for _, task in telling), return_exceptions=True)
        for session, _ in telling:
            await self._tell(session)

    async def _tell_later(self, session: Session) -> None:
        await asyncio.sleep(_SECONDS)
        await self._tell(session)

    async def _tell(self, session: Session) -> None:
        repeats = self._repeats.get(session.key)
        for members, count in repeats.drain() if repeats is not None else ():
            args = {**members["args"], "repeats": count}
            try:
                await self._record(session, {**members, "args": args})
            except PaddockError as error:
                log.error("%d refusals of session %s: %s", count, session.id, error.detail)


def _like(members: Members) -> str:
    """What two refusals must have in common; each command has an id of its own."""
    args = {name: value for name, value in members["args"].items() if name != "command_id"}
    alike = {**members, "args": args, "command_id": None}
    return hashlib.sha256(json.dumps(alike, sort_keys=True, default=str).encode()).hexdigest()
