"""Creations under way, for callers who want the same session."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.ground.errors import (
    AuditUnavailableError,
    CapacityExhaustedError,
    ClusterUnavailableError,
    ConflictError,
    EngineUnavailableError,
    PaddockError,
    SandboxUnavailableError,
)
from orchestrator.rules.access.keys import Principal
from orchestrator.state.session import Session

# Failures of the host, which another creation of the same session would meet as well.
_OF_THE_HOST = (
    *(AuditUnavailableError, CapacityExhaustedError),
    *(ClusterUnavailableError, EngineUnavailableError, SandboxUnavailableError),
)


class RunningCreation:
    """One creation, from its first check until the session exists or nothing of it is left."""

    def __init__(self, session: Session) -> None:
        self.session = session
        # Why it failed, if another creation of the session would fail alike.
        self.failure: PaddockError | None = None
        self._ended = asyncio.Event()
        self._waiting = 0

    @property
    def wanted(self) -> bool:
        """Whether others wait for the session."""
        return self._waiting > 0

    async def wait(self) -> None:
        """Waits for the end. Raises: its error, if the host caused it and not the request."""
        self._waiting += 1
        try:
            await self._ended.wait()
        finally:
            self._waiting -= 1
        if self.failure is not None:
            raise type(self.failure)(self.failure.detail, **self.failure.fields)

    def end(self) -> None:
        """Lets those who wait continue."""
        self._ended.set()


class RunningCreations:
    """The creations under way, at most one for each id, ignoring case."""

    def __init__(self) -> None:
        self._by_id: dict[str, RunningCreation] = {}

    def find(self, principal: Principal, session_id: str) -> RunningCreation | None:
        """The creation of exactly that id, if the principal may see the session."""
        found = self._by_id.get(session_id.casefold())
        if found is None or found.session.id != session_id:
            return None
        seen = principal.may_see(found.session.key, found.session.owner)
        return found if seen else None

    @contextmanager
    def begun(self, session: Session) -> Iterator[RunningCreation]:
        """Registers the creation that the block is. Raises: ConflictError if its id has one."""
        name = session.id.casefold()
        if name in self._by_id:
            raise ConflictError(f"a session with the id {session.id} is being created", field="id")
        creation = self._by_id[name] = RunningCreation(session)
        try:
            yield creation
        except _OF_THE_HOST as error:
            creation.failure = error
            raise
        finally:
            del self._by_id[name]
            creation.end()
