"""Carries out decisions about packs: records them, and ends sessions that miss something."""

import time
from collections.abc import Sequence

from orchestrator.ground.errors import PaddockError, PermissionDeniedError, ValidationError
from orchestrator.ground.events import EventDraft, Made
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.link.messages import AgentEvent
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.sandbox.packs import decisions
from orchestrator.sandbox.packs.decisions import Denial
from orchestrator.state.end_requests import EndRequests
from orchestrator.state.pack import Pack, PackFile
from orchestrator.state.session import Session
from paddock.audit.chain import Event
from paddock.contract.pack_form import MAX_REFINEMENTS, absolute
from paddock.contract.words import Rationale
from sandbox_agent.decide.manifest import HARD_FAIL, WARN

READ = "read"
REFINEMENT_REQUEST = "coordination.context_refinement_request"

_READING = ("file.read",)
_LISTING = ("file.list", "file.stat")
# What concerns a whole tree, or several files at once, is not decided file by file.
_TREES = ("file.pack", "file.search", "file.patch", "file.copy", "file.watch")


class ContextFirewall:
    """What sessions with packs may do with files. Sessions without one may do anything here."""

    def __init__(self, recorder: Recorder, ends: EndRequests) -> None:
        self._recorder = recorder
        self._ends = ends
        self._tasks = TaskScope("the end of a session that misses something")

    async def check(
        self,
        principal: Principal,
        session: Session,
        operation: str,
        path: str,
        *,
        tree: bool = False,
    ) -> None:
        """Whether a file operation may use the path, for any reader; `tree`: all that is below it.

        Raises: ValidationError for a malformed path; PermissionDeniedError with the rule, after it
        is recorded and, where the pack says so, the session has ended.
        """
        pack = session.pack
        if pack is None:
            return
        if operation in _READING:
            return  # `file` decides, with the hash that its reader states
        plain = await self._plain(principal, session, operation, path)
        if operation in _LISTING:
            denial = decisions.listing(pack, plain)
        elif tree or operation in _TREES:
            reason = "it concerns more than one file: read or write the files one by one"
            denial = Denial(decisions.TOOL, plain, reason)
        else:
            denial = decisions.writing(pack, plain)
        if denial is not None and not self._only_warns(pack, denial):
            raise await self._refused(principal, session, operation, denial)

    async def file(
        self, principal: Principal, session: Session, pack: Pack, path: str, stated: str | None
    ) -> PackFile:
        """The file of the pack that a reader, who states that hash, may read. Raises: as `check`.

        Where the pack only warns, also one that is not in it.
        """
        plain = await self._plain(principal, session, READ, path)
        found = decisions.reading(pack, plain, stated)
        if isinstance(found, PackFile):
            return found
        if not self._only_warns(pack, found):
            raise await self._refused(principal, session, READ, found)
        draft = _draft(principal, READ, pack, found)._replace(decision="allow")
        await self._recorder.record_often(session, draft)
        return PackFile(plain)

    async def verify(
        self, principal: Principal, session: Session, pack: Pack, file: PackFile, found: str
    ) -> None:
        """Permits bytes with that hash to be returned for the file. Raises: as `check`."""
        denial = decisions.content(file, found)
        if denial is not None:
            raise await self._refused(principal, session, READ, denial)
        args = {"path": decisions.truncated(file.path), "manifest_id": pack.manifest_id}
        made = Made(result={"content_hash": found})
        draft = EventDraft(READ, actor=principal.name, decision="allow", args=args, made=made)
        await self._recorder.record(session, draft)

    def on_miss(self, session: Session, event: AgentEvent, _recorded: Recorded) -> None:
        """Ends a session whose agent has reported a denied read, which is on record."""
        pack = session.pack
        if pack is not None and pack.mode == HARD_FAIL and event.decision == "deny":
            path = event.args.get("path")
            self._tasks.spawn(self._miss(session, path if isinstance(path, str) else "unknown"))

    async def recover(self, session: Session, denied: Sequence[Event], *, requested: bool) -> None:
        """Completes what an earlier control plane began after a denied read, but did not finish.

        `requested`: the request to refine the pack is on record.
        """
        pack = session.pack
        if pack is None or pack.mode != HARD_FAIL or not denied:
            return
        path = str(denied[0]["args"].get("path", "unknown"))
        if session.live:
            await self._miss(session, path)
            return
        ended = session.termination
        missed = ended is not None and ended.rationale_code is Rationale.CONTEXT_MISS
        if missed and not requested and session.reissues < MAX_REFINEMENTS:
            await self._recorder.record(session, _request(session, pack, path))

    async def close(self) -> None:
        """Waits for sessions that are being ended."""
        await self._tasks.drain()

    async def _plain(
        self, principal: Principal, session: Session, operation: str, path: str
    ) -> str:
        """The path's normal form. Raises: ValidationError, after it is recorded."""
        try:
            return absolute(path)
        except ValueError as error:
            draft = EventDraft(
                operation,
                actor=principal.name,
                rule=decisions.MALFORMED,
                args={"path": decisions.truncated(path)},
                error=f"path {error}",
            )
            await self._recorder.refuse(session, draft)
            raise ValidationError(f"path {error}", field="path") from None

    @staticmethod
    def _only_warns(pack: Pack, denial: Denial) -> bool:
        return pack.mode == WARN and denial.rule == decisions.ALLOWLIST

    async def _refused(
        self, principal: Principal, session: Session, operation: str, denial: Denial
    ) -> PaddockError:
        """The refusal, once it is recorded and, for a miss, the session has ended."""
        pack = session.pack
        assert pack is not None  # noqa: S101 - checked by the caller
        operation = READ if denial.misses else operation
        await self._recorder.refuse(session, _draft(principal, operation, pack, denial))
        detail = denial.reason
        if denial.misses and pack.mode == HARD_FAIL:
            await self._miss(session, denial.path)
            detail = f"ContextMiss: {denial.reason}: the session has ended; refine its pack"
        return PermissionDeniedError(f"{detail}: {denial.path}", rule=denial.rule, path=denial.path)

    async def _miss(self, session: Session, path: str) -> None:
        pack = session.pack
        if pack is None or not session.live:
            return
        FaultPoint.REFINE_MISSED.reached()
        if session.reissues >= MAX_REFINEMENTS:
            error = (
                f"MaxRefinementsExceeded: the pack of {session.terms.work_id} was refined "
                f"{MAX_REFINEMENTS} times already"
            )
            await self._ends.miss(session, error, None)
            return
        error = f"ContextMiss: {decisions.truncated(path)} is not in the session's context pack"
        await self._ends.miss(session, error, _request(session, pack, path))
        FaultPoint.REFINE_REQUESTED.reached()


def _request(session: Session, pack: Pack, path: str) -> EventDraft:
    args = {
        "work_id": session.terms.work_id,
        "manifest_id": pack.manifest_id,
        "missed_path": decisions.truncated(path),
        "rationale_code": str(Rationale.CONTEXT_MISS),
        "refinement_count": session.reissues,
        "timestamp_ns": time.time_ns(),
    }
    return EventDraft(REFINEMENT_REQUEST, actor="system", args=args, stop=True)


def _draft(principal: Principal, operation: str, pack: Pack, denial: Denial) -> EventDraft:
    """The event of a decision by that rule."""
    return EventDraft(
        operation,
        actor=principal.name,
        rule=denial.rule,
        args={"path": decisions.truncated(denial.path), "manifest_id": pack.manifest_id},
        error=denial.reason,
    )
