"""A session's present state, activity and counters, from the host and the ledger."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from orchestrator.ground.fair_share import FairShare
from orchestrator.ground.store.database import Database
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.node.base import Node
from orchestrator.host.node.processes import Measured
from orchestrator.host.workspace.quota import DiskUsage
from orchestrator.record.audit import query
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from paddock.audit.chain import Event
from sandbox_agent.decide.facilities import Kernel

log = logging.getLogger(__name__)

# The number of latest commands and denials in an inspection.
LATEST = 10
# A measurement that takes longer is given up.
_MEASURE_SECONDS = 0.8
# The operations that count as tool calls, if they were not denied.
_TOOL_CALLS = ("command.start", "pty.open", "pty.interaction", "file.")


class Inspection(NamedTuple):
    """The present activity in a session.

    `measured` is None if it has no sandbox, or if this host can't see its processes. `disk` is the
    workspace's usage; None if it has no size limit. `denials` are the latest refusals, newest
    first. `counts` are the numbers of its events by operation and decision. `host` has the
    facilities of the kernel outside of its sandbox.
    """

    measured: Measured | None
    disk: DiskUsage | None
    denials: list[Event]
    counts: dict[tuple[str, str], int]
    host: Kernel


class Inspector:
    """Inspects sessions without asking an agent or engine, so one that hangs does not matter."""

    def __init__(
        self,
        node: Node,
        database: Database,
        workspaces: Workspaces,
        share: FairShare | None = None,
    ) -> None:
        """`share` is shared by all measurements of processes; None creates one."""
        self._node = node
        self._database = database
        self._workspaces = workspaces
        self._share = share or FairShare()
        self._tasks = TaskScope("a look at processes")

    async def close(self) -> None:
        """Gives up running measurements."""
        await self._tasks.close()

    async def inspect(self, session: Session) -> Inspection:
        """The present activity in the session. Raises: StoreError."""
        measured, disk, denials, counts = await asyncio.gather(
            self._measure(session),
            self._workspaces.usage(session.workspace),
            query.latest_denials(self._database, session.key, LATEST),
            query.counts(self._database, session.key),
        )
        return Inspection(measured, disk, denials, counts, self._node.kernel)

    async def _measure(self, session: Session) -> Measured | None:
        """Measures each sandbox once at a time, for all callers that wait meanwhile.

        If measuring takes long, the latest result is returned until the sandbox's share of the time
        covers the cost.
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


class Telemetry(NamedTuple):
    """The counters; `duration_ms` is from the creation to the end, or until now."""

    tool_calls: int
    events_emitted: int
    episode_count: int
    started_at: str
    duration_ms: int


def telemetry(session: Session, counts: Mapping[tuple[str, str], int], now: datetime) -> Telemetry:
    """The session's counters; `counts` are its events by operation and decision."""
    ended = session.termination
    until = now if ended is None else datetime.fromisoformat(ended.terminated_at)
    lasted = until - datetime.fromisoformat(session.created_at)
    return Telemetry(
        tool_calls=sum(
            events
            for (operation, decision), events in counts.items()
            if operation.startswith(_TOOL_CALLS) and decision != "deny"
        ),
        events_emitted=sum(counts.values()),
        episode_count=session.episodes,
        started_at=session.created_at,
        duration_ms=max(0, int(lasted.total_seconds() * 1000)),
    )
