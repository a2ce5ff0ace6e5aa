"""What a session is and does now, as the host and the ledger know it."""

import asyncio
import logging
from typing import NamedTuple

from orchestrator.audit import query
from orchestrator.link.fair_share import FairShare
from orchestrator.node.base import Node
from orchestrator.node.processes import Measured
from orchestrator.sandboxes.sandbox import Sandbox
from orchestrator.sessions.session import Session
from orchestrator.sessions.workspaces import Workspaces
from orchestrator.store.database import Database
from orchestrator.task_scope import TaskScope
from orchestrator.workspace.quota import DiskUsage
from paddock.audit.chain import Event

log = logging.getLogger(__name__)

# Commands and denials that an inspection shows.
LATEST = 10
# What hangs beyond it is given up.
_MEASURE_SECONDS = 0.8


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

    def __init__(
        self,
        node: Node,
        database: Database,
        workspaces: Workspaces,
        share: FairShare | None = None,
    ) -> None:
        """`share` is what looks at processes share; None: one of their own."""
        self._node = node
        self._database = database
        self._workspaces = workspaces
        self._share = share or FairShare()
        self._tasks = TaskScope("a look at processes")

    async def close(self) -> None:
        """Gives up what is still looked at."""
        await self._tasks.close()

    async def inspect(self, session: Session) -> Inspection:
        """What goes on in the session now. Raises: StoreError."""
        measured, disk, denials = await asyncio.gather(
            self._measure(session),
            self._workspaces.usage(session.workspace),
            query.latest_denials(self._database, session.key, LATEST),
        )
        return Inspection(measured, disk, denials)

    async def _measure(self, session: Session) -> Measured | None:
        """One look at a time at each sandbox, for all who ask meanwhile.

        Of one whose processes take long to look at, the latest look is told until its share of
        the time has paid for that.
        """
        sandbox = session.sandbox
        if sandbox is None:
            return None
        looks = sandbox.looks
        if looks.under_way is None:
            if looks.latest is not None and self._share.spend(sandbox, 0.0) > 0:
                return looks.latest
            looks.under_way = self._tasks.spawn(self._look(sandbox))
        try:
            async with asyncio.timeout(_MEASURE_SECONDS):
                return await asyncio.shield(looks.under_way)
        except TimeoutError:
            log.warning("the processes of sandbox %s can't be read in time", sandbox.name)
            return None

    async def _look(self, sandbox: Sandbox) -> Measured | None:
        looks = sandbox.looks
        try:
            found, seconds = await self._node.measure(
                sandbox.container_id, sandbox.first, looks.earlier
            )
        except TimeoutError:  # no thread is free
            return None
        finally:
            looks.under_way = None
        self._share.spend(sandbox, seconds)
        sandbox.link.spend(seconds)
        if found is None:
            return None
        looks.latest, looks.earlier = found
        return looks.latest
