"""Copies sessions with `recovery: snapshot` to the cluster once they have been idle for a while.

The session is suspended for it, as whenever its place is needed: it gets a sandbox again at its
next use. What has not changed since is not copied again.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from orchestrator.cluster.base import Membership
from orchestrator.cluster.copies import WorkspaceCopies
from orchestrator.ground.errors import ClusterUnavailableError, PaddockError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.limits import KeyLimits
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.host.node.boot import boottime
from orchestrator.operate.snapshots import copied_session, manifest
from orchestrator.operate.snapshots.snapshots import Snapshots
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.sessions.idleness import why_busy
from orchestrator.state.registry import Registry
from orchestrator.state.session import Session
from paddock.contract.words import Status

log = logging.getLogger(__name__)

# What could not be copied is tried again so much later; so often, at most, it looks for more.
_RETRY_SECONDS = 10.0
# A lease that is older is no sign that the database answers.
_RECENT_SECONDS = 6.0
_ROUND_SECONDS = 3600.0
# One copy at a time, beside the snapshots of clients.
_ACTOR = Principal("system", Role.ADMIN)


class WorkspaceCopying:
    """Of this node's sessions, one after the other."""

    def __init__(
        self,
        snapshots: Snapshots,
        sessions: Registry,
        copies: WorkspaceCopies,
        membership: Membership,
        recorder: Recorder,
        quota: Callable[[str], KeyLimits],
        most_bytes: int,
        idle_seconds: float,
    ) -> None:
        """`quota` is that of an owner, `most_bytes` the size of the largest copy.

        A session is copied once it has been idle for `idle_seconds`.
        """
        self._snapshots = snapshots
        self._registry = sessions
        self._copies = copies
        self._membership = membership
        self._recorder = recorder
        self._quota = quota
        self._most_bytes = most_bytes
        self._idle_seconds = idle_seconds
        # By session key: when something last happened in it before it was copied.
        self._copied: dict[str, str] = {}
        self._rounds = Rounds(_ROUND_SECONDS)
        self._task: Supervised | None = None

    def start(self, tasks: Tasks) -> None:
        """Begins."""
        self._task = tasks.start(TaskName.COPIES, self._run, rounds=self._rounds)

    async def close(self) -> None:
        """Stops; a copy that is not complete does not count."""
        if self._task is not None:
            await self._task.close()

    async def _run(self) -> None:
        while True:
            with self._rounds.round():
                await self.copy_all()
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        """Seconds until a session may have been idle for long enough."""
        waits = [self._waits(session) for session in self._sessions()]
        least = min(_RETRY_SECONDS, self._idle_seconds)
        return min((max(each, least) for each in waits), default=self._idle_seconds)

    def _sessions(self) -> list[Session]:
        """Those of which the last copy is not what they are now."""
        found = [each for each in self._registry.live if each.recovers and each.place]
        self._copied = {each.key: self._copied.get(each.key, "") for each in found}
        return [each for each in found if each.last_activity_at > self._copied[each.key]]

    def _waits(self, session: Session) -> float:
        last = datetime.fromisoformat(session.last_activity_at)
        return self._idle_seconds - (datetime.now(UTC) - last).total_seconds()

    async def copy_all(self) -> None:
        """Copies all that have been idle for long enough."""
        for session in self._sessions():
            if boottime() - self._membership.renewed_at > _RECENT_SECONDS:
                return
            if self._waits(session) <= 0 and _stands_still(session):
                await self._copy(session)

    async def _copy(self, session: Session) -> None:
        """Copies it, or says in its record why it was not."""
        before = session.last_activity_at
        try:
            await self._store(session)
        except ClusterUnavailableError as error:
            log.warning("session %s is copied later: %s", session.id, error.detail)
            return
        except (PaddockError, OSError, TimeoutError) as error:
            detail = error.detail if isinstance(error, PaddockError) else str(error)
            log.warning("session %s is not copied to the cluster: %s", session.id, detail)
            await self._record(session, detail)
        self._copied[session.key] = before

    async def _store(self, session: Session) -> None:
        taken = await self._snapshots.take(_ACTOR, session)
        try:
            size = copied_session.archive_bytes(taken.manifest, taken.parts)
            if size > self._most_bytes:
                raise PaddockError(
                    f"it has {size} bytes, more than PADDOCK_CLUSTER_COPY_BYTES={self._most_bytes}"
                )
            copy = copied_session.copy_of(session, size, manifest.sha256(taken.manifest))
            archive = copied_session.pieces(taken.chunks())
            await self._copies.store(copy, archive, self._quota(session.owner))
        finally:
            taken.close()

    async def _record(self, session: Session, why: str) -> None:
        draft = EventDraft(
            "session.snapshot",
            actor=_ACTOR.name,
            error=f"there is no newer copy in the cluster: {why}",
        )
        try:
            await self._recorder.record(session, draft)
        except PaddockError as error:
            log.warning("this is not on record: %s", error.detail)


def _stands_still(session: Session) -> bool:
    """Whether nothing happens in it, so that it may be without a sandbox for a moment."""
    return (
        session.status is Status.ACTIVE
        and not session.in_use
        and not session.fenced
        and not session.moving
        and session.gate is None
        and why_busy(session) is None
    )
