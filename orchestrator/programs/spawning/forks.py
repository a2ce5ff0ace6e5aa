"""Forks: several new sessions that begin with the files of one, all of them or none."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from orchestrator.ground.errors import ConflictError, PaddockError
from orchestrator.ground.events import EventDraft, Made
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.database import Database
from orchestrator.ground.task_scope import TaskScope
from orchestrator.programs.spawning.joint_creation import JointCreation, Starting
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.rules.egress.session_rules import NO_NARROWING
from orchestrator.sandbox.named_snapshots.named_snapshots import NamedSnapshots
from orchestrator.sandbox.named_snapshots.snapshot_rows import NamedSnapshot
from orchestrator.sessions.creation import Creation
from orchestrator.sessions.deadlines import Deadlines
from orchestrator.sessions.shares import Shares
from orchestrator.state.budget import outside
from orchestrator.state.requests import NewSession, Registered
from orchestrator.state.session import Session

log = logging.getLogger(__name__)


class Forked(NamedTuple):
    """The snapshot from which sessions were made, which is gone by now, and these sessions."""

    snapshot: NamedSnapshot
    made: tuple[Registered, ...]


class Forks:
    """Makes sessions of a session. A fork continues if its caller is cancelled."""

    def __init__(
        self,
        creation: Creation,
        named_snapshots: NamedSnapshots,
        database: Database,
        recorder: Recorder,
        shares: Shares,
        deadlines: Deadlines,
    ) -> None:
        self._creation = creation
        self._snapshots = named_snapshots
        self._database = database
        self._recorder = recorder
        self._shares = shares
        self._deadlines = deadlines
        self._tasks = TaskScope("a fork of a session")

    async def fork(self, principal: Principal, session: Session, count: int) -> Forked:
        """That many new sessions of the caller, each with the files that the session has now.

        They have its level, terms, policy and the limits of its budget, but neither its secrets nor
        what it has used. Raises: ConflictError, also if it may write to a volume; the errors of
        `NamedSnapshots.take` and `Sessions.create`; no session is left then.
        """
        return await self._tasks.shield(self._fork(principal, session, count))

    async def close(self) -> None:
        """Waits for forks."""
        await self._tasks.drain()

    async def _fork(self, principal: Principal, session: Session, count: int) -> Forked:
        session.check_live()
        _check_volumes(session)
        self._shares.check_new(principal, session.limits, count)
        with await self._shares.slot(principal):
            draft = EventDraft(
                "session.fork", actor=principal.name, decision="allow", args={"count": count}
            )
            await self._recorder.record(session, draft)
            FaultPoint.FORK_RECORDED.reached()
            try:
                forked = await self._from_snapshot(principal, session, count)
            except BaseException as error:
                detail = error.detail if isinstance(error, PaddockError) else "interrupted"
                await self._record_end(session, (), f"nothing was created: {detail}")
                raise
            await self._record_end(session, forked.made)
        for registered in forked.made:
            self._deadlines.watch(registered.session)
        return forked

    async def _record_end(
        self, session: Session, made: Iterable[Registered], error: str | None = None
    ) -> None:
        ids = [registered.session.id for registered in made]
        await self._recorder.record(
            session,
            EventDraft(
                "session.fork_end",
                actor="system",
                made=Made(result={"sessions": ids}),
                error=error,
                stop=True,  # it may have ended meanwhile
            ),
        )

    async def _from_snapshot(self, principal: Principal, session: Session, count: int) -> Forked:
        snapshot = await self._snapshots.take_unnamed(principal, session)
        try:
            wanted = replace(_request(session), files=self._snapshots.files_of(snapshot))
            return Forked(snapshot, await self._create(principal, wanted, count))
        finally:
            try:
                await self._snapshots.discard(snapshot)
            except PaddockError as error:
                log.warning("the next start removes snapshot %s: %s", snapshot.id, error.detail)

    async def _create(
        self, principal: Principal, request: NewSession, count: int
    ) -> tuple[Registered, ...]:
        joint = JointCreation(self._database, count)
        made = await asyncio.gather(
            *(self._create_one(principal, request, joint) for _ in range(count)),
            return_exceptions=True,
        )
        if joint.failure is not None:
            raise joint.failure
        return tuple(each for each in made if isinstance(each, Registered))

    async def _create_one(
        self, principal: Principal, request: NewSession, joint: JointCreation
    ) -> Registered:
        async with Starting(joint) as starting:
            wanted = replace(request, acknowledging=starting.acknowledge)
            return await self._creation.begin(principal, wanted)


def _check_volumes(session: Session) -> None:
    """Raises: ConflictError if it may write to a volume, which only one session can."""
    written = [use.name for use in session.terms.volumes if not use.read_only]
    if written:
        raise ConflictError(
            f"the session may write to volume {written[0]}, which one session can at a time: "
            "take a snapshot, and create sessions from it"
        )


def _request(session: Session) -> NewSession:
    """The request for another session like this one; secrets are not in it."""
    only = session.own_rules.only
    return NewSession(
        permission_level=session.level.name,
        terms=session.terms,
        budget={str(kind): outside(kind, most) for kind, most in session.budget.limits.items()},
        egress=None if only == NO_NARROWING else only.given(),
        policy=session.policy,
    )
