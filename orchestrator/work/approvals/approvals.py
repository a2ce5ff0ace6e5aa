"""Approvals: lines of input that wait until a person approves or denies exactly them.

A decision is made once, covers one use of one text in one terminal, and expires when the terminal
ends. Commands of oneshot tools are lines as well, without a terminal.
"""

import asyncio
import logging
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from orchestrator.ground.errors import BusyError, NotFoundError, PaddockError
from orchestrator.ground.events import EventDraft, now
from orchestrator.ground.store.database import Database
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.rules.tools.gates import APPROVAL
from orchestrator.state.session import Session
from orchestrator.work.approvals import approval_rows, several_approvers
from orchestrator.work.approvals.approval_rows import Approval
from orchestrator.work.approvals.deciding import may_decide, over, used_up

log = logging.getLogger(__name__)

# Waiting approvals of one session, all of which a person must read.
MAX_PENDING = 16
# Replaces a terminal's id if the line is a command itself: the words of a oneshot tool.
NO_TERMINAL = ""
_DECISIONS = {"approve": ("approved", "allow"), "deny": ("denied", "deny")}
_RESTARTED = "the control plane was restarted: what waits for a person does not outlive it"


class Line(NamedTuple):
    """The subject of an approval: a text for a tool's command, in one terminal or in none."""

    terminal_id: str
    tool: str  # psql.drop_table, or the name of a oneshot tool
    text: str
    risk_tier: str
    files: Mapping[str, str] = {}  # digests of the files' contents, by path


@dataclass(slots=True, eq=False)
class _Open:
    """An approval whose terminal is alive, and whose answer has not been used.

    It covers exactly this line. The session's secrets are removed from what is stored and shown.
    """

    approval: Approval
    session: Session
    line: Line
    decided: asyncio.Event = field(default_factory=asyncio.Event)
    # Whether its line is being written.
    in_use: bool = False
    # Allows one decision at a time.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def covers(self, line: Line) -> bool:
        """Whether it is the same line with the same contents of its files, byte for byte."""
        return self.line[:3] == line[:3] and self.line.files == line.files


class Approvals:
    """Every approval of this instance. Callers learn only what is durable."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        recorder: Recorder,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._recorder = recorder
        self._open: dict[str, _Open] = {}

    # For terminals.

    async def obtain(
        self, session: Session, line: Line, actor: str, wait_seconds: float
    ) -> Approval:
        """The decision about exactly this line; requests it if that has not been done.

        Waits up to `wait_seconds` for the decision. A `denied` approval is used up by this answer,
        an `approved` one when its line is written: the same line then needs a new approval.
        `pending`: call again. Raises: BusyError if too many approvals wait already,
        AuditUnavailableError, ConflictError if another call received the answer.
        """
        found = next((each for each in self._of(session) if each.covers(line)), None)
        if found is None:
            found = await self._request(session, line, actor)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                await found.decided.wait()
        approval = found.approval
        if approval.status == "denied" and self._open.pop(approval.id, None) is None:
            raise used_up(approval.id)
        return approval

    def use(self, approval_id: str) -> None:
        """Marks the approved line as being written.

        Raises: ConflictError if it was already used.
        """
        found = self._open.get(approval_id)
        if found is None or found.in_use:
            raise used_up(approval_id)
        found.in_use = True

    def settle(self, approval_id: str, written: bool) -> None:
        """Ends the use: a line that may have been written has used up the approval."""
        found = self._open.get(approval_id)
        if found is not None:  # otherwise its terminal has ended
            found.in_use = False
            if written:
                del self._open[approval_id]

    async def expire(self, session: Session, terminal_id: str, reason: str) -> None:
        """Expires the approvals of a terminal that has ended.

        Waiting callers receive `expired`. An expiry that can't be recorded takes effect anyway, and
        the next start records it.
        """
        for found in list(self._of(session)):
            if found.approval.terminal_id == terminal_id:
                await self._expire(found, reason)

    async def expire_ended(self) -> None:
        """Expires the approvals of commands without a terminal whose session has ended."""
        for found in list(self._open.values()):
            if found.line.terminal_id == NO_TERMINAL and not found.session.live:
                await self._expire(found, "the session has ended")

    async def recover(self) -> int:
        """Expires an earlier control plane's approvals, whose terminals are gone; returns how many.

        Raises: AuditUnavailableError, StoreError.
        """
        left = await self._database.read(approval_rows.pending)
        for approval in left:
            expired = approval.decided("expired", "system", _RESTARTED)
            draft = EventDraft(
                session_key=approval.session_key,
                session_id=approval.session_id,
                incarnation=approval.incarnation,
                source="control-plane",
                actor="system",
                operation="approval.decision",
                decision="deny",
                rule=APPROVAL,
                args={**approval.args, **approval.made.args},
                result={"status": "expired"},
                error=_RESTARTED,
            )
            await self._ledger.append(draft, approval_rows.deciding(expired))
        return len(left)

    # For operators.

    def waits(self, principal: Principal, approval_id: str) -> bool:
        """Whether the approval waits for a decision that the principal may make."""
        found = self._open.get(approval_id)
        if found is None or found.decided.is_set():
            return False
        return may_decide(principal, found.approval)

    async def list(
        self,
        principal: Principal,
        *,
        session_key: str | None = None,
        status: str | None = None,
        before: int | None = None,
        after_id: str | None = None,
        limit: int = 100,
    ) -> tuple[list[Approval], int | None]:
        """The approvals that the principal may see, newest first, and the start of the next page.

        With `session_key`, those of that session, if the principal may see it. The page begins
        `before` a number, which an earlier page ended with, or after the approval `after_id`.
        """
        wanted = approval_rows.ApprovalPage(
            principal.sees_owner, session_key, status, before, limit, after_id
        )
        return await self._database.browse(partial(approval_rows.page, wanted=wanted))

    async def decide(
        self, principal: Principal, approval_id: str, decision: str, reason: str | None
    ) -> Approval:
        """Approves or denies (`approve`, `deny`), once.

        If it needs several approvers, it is pending until the last of them; one denial ends it.

        Raises: NotFoundError, also for others' approvals; ConflictError if it is already decided or
        has expired, and for a `reason` while the session's secrets are unknown; RateLimitedError,
        CapacityExhaustedError if there is no room to record what would be approved;
        AuditUnavailableError.
        """
        stored = await self._database.read(lambda conn: approval_rows.find(conn, approval_id))
        if stored is None or not may_decide(principal, stored):
            raise NotFoundError(f"no approval {approval_id[:128]}")
        found = self._open.get(approval_id)
        if found is None:
            raise over(stored)
        async with found.lock:
            if found.decided.is_set():
                raise over(found.approval)
            status, verdict = _DECISIONS[decision]
            if reason is not None:
                found.session.secrets.check_known()
            if verdict != "deny":
                self._recorder.check_room(found.session)
            reason = None if reason is None else found.session.secrets.cut(reason)
            approval = found.approval
            if verdict != "deny":
                changed_by = await several_approvers.changers(self._database, approval)
                approval = several_approvers.approved(approval, principal.name, changed_by)
            if verdict == "deny" or approval.is_complete:
                approval = approval.decided(status, principal.name, reason)
                await self._record(found, approval, principal.name, verdict)
                self._settle(found, approval)
            else:
                await self._record(found, approval, principal.name, "pending")
                found.approval = approval
        return approval

    # Internal.

    def _of(self, session: Session) -> Iterator[_Open]:
        return (each for each in self._open.values() if each.session is session)

    async def _request(self, session: Session, line: Line, actor: str) -> _Open:
        if sum(not each.decided.is_set() for each in self._of(session)) >= MAX_PENDING:
            raise BusyError(f"{MAX_PENDING} commands of this session already wait for an approval")
        approval = Approval(
            id=f"apr-{secrets.token_hex(8)}",
            session_key=session.key,
            session_id=session.id,
            incarnation=session.incarnation,
            owner=session.owner,
            terminal_id=line.terminal_id,
            tool=session.secrets.cut(line.tool),
            text=session.secrets.cut(line.text),
            risk_tier=line.risk_tier,
            files=dict(line.files),
            status="pending",
            requested_by=actor,
            requested_at=now(),
            approvers=max(session.level.approvers, session.policy.approvers),
        )
        found = _Open(approval, session, line)
        # Added before it is durable, so that it counts and the same line is not requested twice.
        self._open[approval.id] = found
        try:
            await self._recorder.record(
                session,
                EventDraft(
                    "approval.request",
                    actor=actor,
                    decision="pending",
                    rule=APPROVAL,
                    args=approval.args,
                    made=approval.made,
                ),
                effect=approval_rows.inserting(approval),
            )
        except PaddockError:
            self._open.pop(approval.id, None)
            raise
        return found

    async def _expire(self, found: _Open, reason: str) -> None:
        async with found.lock:
            self._open.pop(found.approval.id, None)
            if found.decided.is_set():
                return
            approval = found.approval.decided("expired", "system", reason)
            try:
                await self._record(found, approval, "system", "deny", error=reason)
            except PaddockError as error:
                log.warning("approval %s has expired: %s", approval.id, error.detail)
            self._settle(found, approval)

    async def _record(
        self, found: _Open, approval: Approval, actor: str, decision: str, error: str | None = None
    ) -> None:
        """Records the decision; `error` says why the approval has expired."""
        await self._recorder.record(
            found.session,
            EventDraft(
                "approval.decision",
                actor=actor,
                decision=decision,
                rule=APPROVAL,
                args=approval.args,
                made=approval.made,
                result={
                    "status": approval.status,
                    "reason": approval.reason,
                    **approval.progress,
                },
                error=error,
                stop=error is not None or decision == "deny",
            ),
            effect=approval_rows.deciding(approval),
        )

    def _settle(self, found: _Open, approval: Approval) -> None:
        found.approval = approval
        found.decided.set()
