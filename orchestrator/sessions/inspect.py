"""What a session is and does now, as the host and the ledger know it."""

import asyncio
import logging
from typing import Any

from orchestrator.audit import query
from orchestrator.sessions.processes import Measured, measure
from orchestrator.sessions.session import Session
from orchestrator.sessions.view import LATEST, inspection_view
from orchestrator.sessions.workspaces import Workspaces
from orchestrator.store.database import Database
from orchestrator.threads import Threads

log = logging.getLogger(__name__)

# What hangs beyond it is given up.
_MEASURE_SECONDS = 0.8
_MOST_MEASURES = 8


class Inspector:
    """Shows sessions. It asks no agent and no engine, so one that hangs does not matter."""

    def __init__(self, database: Database, workspaces: Workspaces) -> None:
        self._database = database
        self._workspaces = workspaces
        self._threads = Threads("the processes of sandboxes", _MOST_MEASURES)

    async def inspect(self, session: Session) -> dict[str, Any]:
        """The session's object with processes, use of the host, latest commands and denials.

        Raises: StoreError.
        """
        measured, disk, denials = await asyncio.gather(
            self._measure(session),
            self._workspaces.usage(session.workspace),
            query.latest_denials(self._database, session.key, LATEST),
        )
        return inspection_view(session, measured, disk, denials)

    async def _measure(self, session: Session) -> Measured | None:
        sandbox = session.sandbox
        if sandbox is None:
            return None
        pid = None if sandbox.first is None else sandbox.first.pid
        looks = sandbox.looks
        try:
            found = await self._threads.call(
                lambda: measure(sandbox.container_id, pid, looks), _MEASURE_SECONDS
            )
        except TimeoutError:
            log.warning("the processes of sandbox %s can't be read in time", sandbox.name)
            return None
        if found is None:
            return None
        measured, sandbox.looks = found
        return measured
