"""Requests to end sessions: lower parts ask, and the floor of sessions serves them."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from orchestrator.ground.events import EventDraft
from orchestrator.ground.task_scope import TaskScope
from orchestrator.state.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class EndRequest:
    """A session that must end: its deadline or its budget is over, or it misses something.

    `missed` says what its context pack lacks; `then` is recorded after its end.
    """

    session: Session
    missed: str | None = None
    then: EventDraft | None = None


Serve = Callable[[EndRequest], Coroutine[Any, Any, None]]


class EndRequests:
    """An inbox. Requests are served at once, and begin in the order in which they came.

    Those that come before `serve` is called wait for it.
    """

    def __init__(self) -> None:
        self._serving: asyncio.Future[Serve] = asyncio.get_running_loop().create_future()
        self._tasks = TaskScope("the end of a session that was asked for")

    def serve(self, serve: Serve) -> None:
        """Sets what ends the sessions; it is called once."""
        self._serving.set_result(serve)

    async def expire(self, session: Session) -> None:
        """Returns when nothing is left of a session whose deadline or budget is over.

        Its end goes on if the caller is cancelled. Raises: the errors of that end.
        """
        await self._tasks.shield(self._served(EndRequest(session)))

    async def miss(self, session: Session, error: str, then: EventDraft | None) -> None:
        """As `expire`, for a session that misses something; `then` is recorded after its end."""
        await self._tasks.shield(self._served(EndRequest(session, error, then)))

    async def close(self) -> None:
        """Gives up requests that nobody serves."""
        await self._tasks.close()

    async def _served(self, request: EndRequest) -> None:
        serve = await asyncio.shield(self._serving)
        await serve(request)
