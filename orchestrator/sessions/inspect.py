"""What a session is and does now, as the host and the ledger know it."""

import asyncio
import logging
from typing import NamedTuple

from orchestrator.audit import query
from orchestrator.node.processes import Measured, measure
from orchestrator.sessions.session import Session
from orchestrator.sessions.workspaces import Workspaces
from orchestrator.store.database import Database
from orchestrator.threads import Threads
from orchestrator.workspace.quota import DiskUsage
from paddock.audit.chain import Event

log = logging.getLogger(__name__)

# Commands and denials that an inspection shows.
LATEST = 10
# What hangs beyond it is given up.
_MEASURE_SECONDS = 0.8
_MOST_MEASURES = 8


class Inspection(NamedTuple):
    """What goes on in a session now.

    `measured` is None where it has no sandbox, or this host can't see its processes. `disk` is how
    full the workspace is; None where nothing holds it to its size. `denials` are the latest
    refusals, newest first.
    """

    measured: Measured | None
    disk: DiskUsage | None
    denials: list[Event]


class Inspector:
    """Looks at sessions. It asks no agent and no engine, so one that hangs does not matter."""

    def __init__(self, database: Database, workspaces: Workspaces) -> None:
        self._database = database
        self._workspaces = workspaces
        self._threads = Threads("the processes of sandboxes", _MOST_MEASURES)

    async def inspect(self, session: Session) -> Inspection:
        """What goes on in the session now. Raises: StoreError."""
        measured, disk, denials = await asyncio.gather(
            self._measure(session),
            self._workspaces.usage(session.workspace),
            query.latest_denials(self._database, session.key, LATEST),
        )
        return Inspection(measured, disk, denials)

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
