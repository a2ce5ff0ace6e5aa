"""What a session is and does now, as the engine, the host and the ledger know it."""

import asyncio
import logging
from typing import Any

from orchestrator.audit import query
from orchestrator.engine.base import Container, ContainerState, Engine
from orchestrator.errors import PaddockError
from orchestrator.sessions.processes import Measured, measure
from orchestrator.sessions.session import Session
from orchestrator.sessions.view import LATEST, inspection_view, session_view
from orchestrator.sessions.workspaces import Workspaces
from orchestrator.store.database import Database
from orchestrator.threads import Threads

log = logging.getLogger(__name__)

# Two looks at the processes take a tenth of it; what hangs beyond it is given up.
_MEASURE_SECONDS = 0.8
_MOST_MEASURES = 8


class Inspector:
    """Shows sessions. It asks no agent, so one that hangs does not matter."""

    def __init__(self, engine: Engine, database: Database, workspaces: Workspaces) -> None:
        self._engine = engine
        self._database = database
        self._workspaces = workspaces
        self._threads = Threads("the processes of sandboxes", _MOST_MEASURES)

    async def view(self, session: Session) -> dict[str, Any]:
        """The session's object with its sandbox's state and limits as the engine has them."""
        return session_view(session, await self._container(session))

    async def inspect(self, session: Session) -> dict[str, Any]:
        """The same with processes, use of the host, streams, latest commands and denials.

        Raises: StoreError.
        """
        denials = query.latest_denials(self._database, session.key, LATEST)
        container = await self._container(session)
        disk = self._workspaces.usage(session.workspace)
        measured, used, refused = await asyncio.gather(self._measure(container), disk, denials)
        return inspection_view(session, container, measured, used, refused)

    async def _container(self, session: Session) -> Container | None:
        if session.sandbox is None:
            return None
        try:
            return await self._engine.inspect(session.sandbox.container_id)
        except PaddockError:
            return None  # the rest of the session can be shown all the same

    async def _measure(self, container: Container | None) -> Measured | None:
        if container is None or container.state is ContainerState.EXITED:
            return None
        try:
            return await self._threads.call(
                lambda: measure(container.id, container.pid), _MEASURE_SECONDS
            )
        except TimeoutError:
            log.warning("the processes of container %s can't be read in time", container.id[:12])
            return None
