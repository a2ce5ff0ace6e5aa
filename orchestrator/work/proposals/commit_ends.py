"""The ends of commits: each that began is finished or undone, and its end is on record."""

import logging
from typing import Any

from orchestrator.ground.errors import AuditUnavailableError, PaddockError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.store.database import Database
from orchestrator.ground.threads import Threads
from orchestrator.host.workspace.staged_work import COMMIT_SECONDS, settle
from orchestrator.host.workspace.storage import Storage
from orchestrator.record.audit import query
from orchestrator.record.audit.recorder import Recorder
from orchestrator.state.session import Session

log = logging.getLogger(__name__)

_SYSTEM = "system"
# Beyond the helper's own limit, because a thread waits for it.
SPARE_SECONDS = 30


class CommitEnds:
    """Settles commits that were interrupted, and records how commits ended."""

    def __init__(
        self, database: Database, recorder: Recorder, storage: Storage, threads: Threads
    ) -> None:
        self._database = database
        self._recorder = recorder
        self._storage = storage
        self._threads = threads

    async def conclude(self, session: Session, why: str) -> None:
        """Settles an earlier commit, and records its end if only its beginning is on record.

        Raises: ProposalsError, TimeoutError, AuditUnavailableError.
        """
        area = self._storage.area(session.workspace, session.key)
        if not area.exists:
            return  # it was discarded since
        begun = await query.latest_of(self._database, session.key, "proposal.commit")
        end = await query.latest_of(self._database, session.key, "proposal.end")
        if begun is not None and end is not None and end["seq"] > begun["seq"]:
            begun = None
        if begun is None and not area.unsettled:
            return
        answer, args = await self._settle(session), {} if begun is None else begun["args"]
        made = "committed" if answer["latest"] == args.get("digest") else "undone"
        count = answer["count"] or args.get("write", 0) + args.get("delete", 0)
        await self.record_end(session, answer["settled"] or made, count, why)

    async def end_failed(self, session: Session, error: BaseException) -> bool:
        """Finishes or undoes what a failed helper has left; returns whether it is committed."""
        try:
            answer = await self._settle(session)
        except (PaddockError, OSError) as failure:
            log.error("a commit of session %s is not settled: %s", session.id, failure)
            return False  # its next start does both
        outcome = answer["settled"] or "undone"
        await self.record_end(session, outcome, answer["count"], str(error)[:500])
        return bool(outcome == "committed")

    async def _settle(self, session: Session) -> dict[str, Any]:
        workspace = session.workspace
        data, area = self._storage.data(workspace), self._storage.area(workspace, session.key)
        return await self._threads.call(
            lambda: settle(data, area, workspace.uid), COMMIT_SECONDS + SPARE_SECONDS
        )

    async def record_end(
        self, session: Session, outcome: str, count: int, error: str | None
    ) -> None:
        """Records it. Raises: AuditUnavailableError; the next commit or start tries again."""
        try:
            await self._recorder.record(
                session,
                EventDraft(
                    "proposal.end",
                    actor=_SYSTEM,
                    result={"outcome": outcome, "count": count},
                    error=error,
                ),
            )
        except AuditUnavailableError as failure:
            # Its beginning is on record, so the record says that something is missing.
            log.error("the end of a commit is not on record: %s", failure.detail)
            raise
