"""Shows, commits and discards what sessions have staged."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol
from weakref import WeakValueDictionary

from orchestrator.ground.errors import (
    AuditUnavailableError,
    ConflictError,
    PaddockError,
    PermissionDeniedError,
    ValidationError,
)
from orchestrator.ground.events import EventDraft
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.database import Database
from orchestrator.ground.threads import Threads, bounded
from orchestrator.host.workspace.staged_work import (
    COMMIT_SECONDS,
    SHOW_SECONDS,
    ProposalsError,
    run_helper,
)
from orchestrator.host.workspace.storage import Storage
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.state.session import Session
from orchestrator.work.proposals.commit_ends import SPARE_SECONDS, CommitEnds
from orchestrator.work.proposals.listing import (
    Conflict,
    Prepared,
    ProposalPage,
    Refusal,
    StagedCounts,
    forbidden,
    page_of,
    prepared_of,
)

log = logging.getLogger(__name__)

# Helpers at a time; each session has one of them at most.
_MOST_SHOWN = 4
_MOST_COMMITS = 4
_RECORDED_REFS = 100
_MOST_NAMED = 100
# Proposals that a program gets.
_MOST_STAGED = 1000
_CHECK_SECONDS = 60

Expected = Mapping[str, tuple[str | None, int | None]]


class WithoutSandbox(Protocol):
    """Holds a session that has no sandbox meanwhile."""

    def __call__(
        self, principal: Principal, session: Session, reason: str, own_uses: int = 0
    ) -> AbstractAsyncContextManager[None]:
        """`own_uses`: how often the caller itself is using the session."""


class ProposalConflictError(ConflictError):
    """A commit that was not made; `conflicts` and `refused` name the paths."""


class Proposals:
    """What is staged is read and committed by a helper process with the workspace's user's rights.

    A session has no sandbox while what it staged changes.
    """

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        storage: Storage,
        without_sandbox: WithoutSandbox,
    ) -> None:
        """`without_sandbox` is that of `Suspensions`."""
        self._recorder = recorder
        self._storage = storage
        self._without_sandbox = without_sandbox
        self._showing = Threads("proposals that are shown", _MOST_SHOWN)
        self._committing = Threads("proposals that are committed", _MOST_COMMITS)
        self._ends = CommitEnds(database, recorder, storage, self._committing)
        # One helper at a time for each session, by its key.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def for_program(self, principal: Principal, session: Session) -> ProposalPage:
        """The proposals that a program gets. Raises: the errors of `show`."""
        return await self.show(principal, session, "", _MOST_STAGED)

    async def show(
        self, principal: Principal, session: Session, after: str, limit: int
    ) -> ProposalPage:
        """The proposals after that path, in order; its sandbox need not run.

        Raises: ProposalsError; SessionTerminatedError; PermissionDeniedError for the handle of a
        session with a context pack, because a diff also has what the workspace contains.
        """
        session.check_live()
        if session.pack is not None and principal.role is Role.HANDLE:
            raise PermissionDeniedError(
                "only its host sees the proposals of a session with a context pack"
            )
        async with self._lock(session):
            if not self._has_staged(session):
                return ProposalPage()
            request = {"action": "show", "after": after, "limit": limit}
            return page_of(await self._help(self._showing, session, request, SHOW_SECONDS))

    async def commit(
        self,
        principal: Principal,
        session: Session,
        paths: Sequence[str] | None,
        expected: Expected | None,
    ) -> Prepared | None:
        """Applies staged changes to the workspace, all or none; returns them, None for none.

        `paths` limits it to these and what is below them, `expected` to changes that a reviewer saw
        with these fingerprints and modes. Raises: ProposalConflictError, ValidationError, and the
        errors of `Suspensions.without_sandbox`; nothing is changed then.
        """
        session.check_live()
        self._recorder.check_room(session)
        if not session.stages:
            return None
        async with (
            self._without_sandbox(principal, session, "proposals"),
            self._lock(session),
        ):
            await self._ends.conclude(session, "the commit was interrupted")
            if not self._has_staged(session):
                return None
            selection = {"paths": paths, "expected": expected}
            prepared = await self._prepare(session, selection)
            if not prepared.refs:
                return None
            FaultPoint.COMMIT_PREPARED.reached()
            await self._recorder.record(
                session,
                EventDraft(
                    "proposal.commit",
                    actor=principal.name,
                    decision="allow",
                    args=_recorded(prepared),
                ),
            )
            FaultPoint.COMMIT_RECORDED.reached()
            try:
                request = {"action": "commit", **selection, "digest": prepared.digest}
                await self._help(self._committing, session, request, COMMIT_SECONDS)
            except (PaddockError, OSError) as error:
                if not await self._ends.end_failed(session, error):
                    raise
                return prepared
            FaultPoint.COMMIT_APPLIED.reached()
            await self._ends.record_end(session, "committed", len(prepared.refs), None)
            FaultPoint.COMMIT_ENDED.reached()
            return prepared

    async def _prepare(self, session: Session, selection: Mapping[str, Any]) -> Prepared:
        """Raises: ProposalConflictError, ValidationError."""
        request = {"action": "prepare", **selection}
        answer = await self._help(self._committing, session, request, COMMIT_SECONDS)
        prepared = prepared_of(answer)
        if prepared.missing:
            raise ValidationError(
                f"nothing is staged at {prepared.missing[0][:256]}", field="paths"
            )
        if prepared.lacking:
            raise ValidationError(
                f"{prepared.lacking[0][:256]} replaces what the workspace has there: commit all "
                "of it",
                field="paths",
            )
        refused = [
            *prepared.refused,
            *await bounded(lambda: forbidden(session.policy.world_rules, prepared), _CHECK_SECONDS),
        ]
        if prepared.conflicts or refused:
            raise ProposalConflictError(
                _why(prepared.conflicts, refused),
                conflicts=[each.model_dump() for each in prepared.conflicts[:_MOST_NAMED]],
                refused=[each.model_dump() for each in refused[:_MOST_NAMED]],
            )
        return prepared

    async def rollback(
        self, principal: Principal, session: Session, turn: int | None = None
    ) -> StagedCounts:
        """Discards everything that is staged; returns how much that was.

        `turn`: the one that asks for it and is using the session. Raises: the errors of
        `Suspensions.without_sandbox`; StorageError.
        """
        session.check_live()
        self._recorder.check_room(session)
        if not session.stages:
            return StagedCounts()
        own = 0 if turn is None else 1
        async with (
            self._without_sandbox(principal, session, "proposals", own),
            self._lock(session),
        ):
            await self._ends.conclude(session, "the commit was interrupted")
            if not self._has_staged(session):
                return StagedCounts()
            counts = await self._counts(session)
            args = {} if counts is None else counts.model_dump()
            draft = EventDraft("proposal.rollback", principal.name, decision="allow", turn=turn)
            await self._recorder.record(session, draft._replace(args=args))
            FaultPoint.ROLLBACK_RECORDED.reached()
            await self._storage.unstage(session.workspace, session.key)
            FaultPoint.ROLLBACK_MADE.reached()
            return counts or StagedCounts()

    async def counts(self, session: Session) -> StagedCounts | None:
        """How much is staged; None if it can't be read, which must not prevent a rollback."""
        async with self._lock(session):
            return await self._counts(session) if self._has_staged(session) else StagedCounts()

    async def _counts(self, session: Session) -> StagedCounts | None:
        request = {"action": "show", "after": "", "limit": 0}
        try:
            answer = await self._help(self._committing, session, request, SHOW_SECONDS)
            return page_of(answer).counts
        except ProposalsError:
            return None

    async def recover(self, session: Session) -> None:
        """Finishes or undoes what an earlier control plane was committing when it ended."""
        if not session.stages or not session.workspace.slot:
            return
        try:
            await self._storage.mount(session.workspace)
            await self._ends.conclude(session, "the control plane ended during the commit")
        except AuditUnavailableError:
            raise
        except (PaddockError, OSError) as error:
            # The session gets no sandbox until this succeeds.
            log.error("a commit of session %s is not settled: %s", session.id, error)

    def _has_staged(self, session: Session) -> bool:
        if not session.stages or not session.workspace.slot:
            return False
        return self._storage.area(session.workspace, session.key).exists

    def _lock(self, session: Session) -> asyncio.Lock:
        return self._locks.setdefault(session.key, asyncio.Lock())

    async def _help(
        self, threads: Threads, session: Session, request: Mapping[str, Any], seconds: int
    ) -> dict[str, Any]:
        """The helper's answer. Raises: ProposalsError, ConflictError."""
        workspace = session.workspace
        data, area = self._storage.data(workspace), self._storage.area(workspace, session.key)
        try:
            return await threads.call(
                lambda: run_helper(data, area, workspace.uid, request, seconds),
                seconds + SPARE_SECONDS,
            )
        except TimeoutError as error:
            late = f"it took over {seconds + SPARE_SECONDS} s"
            raise ProposalsError(
                f"what is staged can't be read in time ({late}): try again"
            ) from error


def _why(conflicts: Sequence[Conflict], refused: Sequence[Refusal]) -> str:
    if conflicts:
        return f"nothing is committed: {len(conflicts)} paths are not what they were"
    return f"nothing is committed: {len(refused)} paths can't be: {refused[0].reason}"


def _recorded(prepared: Prepared) -> dict[str, Any]:
    return {
        "write": prepared.counts.write,
        "delete": prepared.counts.delete,
        "digest": prepared.digest,
        "paths": prepared.refs[:_RECORDED_REFS],
    }
