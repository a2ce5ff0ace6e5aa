"""Approvals: requests that wait for a person, and the decisions."""

import re
from typing import TypedDict

from api.shape import stops
from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import operation
from api.shape.spread import spread
from api.views.approvals import approval, approval_without_content
from orchestrator.ground.errors import ValidationError
from orchestrator.work.approvals.approval_rows import Approval as Stored
from orchestrator.work.approvals.approvals import Approvals as ApprovalsService
from paddock.contract.approvals import Approval, ApprovalBody, Approvals, ApprovalsQuery

_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
_ID = re.compile(r"apr-[0-9a-f]{16}", re.ASCII)


@operation(
    "GET",
    "/api/approvals",
    Access.READ_ALL,
    tag="Tools",
    summary="List approvals",
    answers="A page of approvals.",
    errors=("not_found",),
)
async def list_approvals(
    context: Context, approvals: ApprovalsService, query: ApprovalsQuery
) -> Approvals:
    """The approvals of the caller's sessions (for an admin, of all sessions), newest first.

    Approvals of ended sessions are included. `session` selects one session: the latest with that
    id, or the one that `incarnation` names.
    """
    key = None
    if query.session is not None:
        finder = context.shared.sessions.finder
        key = await finder.known_key(context.principal, query.session, query.incarnation)
        await context.shared.archiving.check_here(key)
    found, following = await approvals.list(
        context.principal,
        session_key=key,
        status=query.status,
        **_position(query.cursor),
        limit=query.limit,
    )
    cursor = None if following is None else str(following)
    return Approvals(items=await spread(found, lambda one: _shown(context, one)), next=cursor)


@operation(
    "POST",
    "/api/approvals/{approval_id}",
    Access.MANAGE,
    tag="Tools",
    summary="Approve or deny a command",
    answers="The approval after the decision.",
    errors=("not_found", "conflict", "capacity_exhausted"),
    examples={
        "approve": {"decision": "approve"},
        "deny": {"decision": "deny", "reason": "the table is still in use"},
    },
    stops=stops.denies_approval,
)
async def decide_approval(
    context: Context, approvals: ApprovalsService, approval_id: str, body: ApprovalBody
) -> Approval:
    """Approves or denies a command, once; the decision applies to exactly the text that is shown.

    The text may then be sent once. The approval expires when its terminal ends.
    """
    decided = await context.work.complete(
        approvals.decide(context.principal, approval_id, body.decision, body.reason)
    )
    return approval(decided)


def _shown(context: Context, stored: Stored) -> Approval:
    """The approval. What waits was sent to whoever may decide; the rest is its session's content.

    An admin needs break-glass access to that, where it is required.
    """
    shown = approval(stored)
    waits = stored.status == "pending"
    veiled = not waits and context.veils(stored.session_key, stored.owner)
    return approval_without_content(shown) if veiled else shown


class _Position(TypedDict, total=False):
    before: int
    after_id: str


def _position(cursor: str | None) -> _Position:
    """Where a page begins: at the end of an earlier one, or after an approval."""
    if cursor is None:
        return {}
    if _NUMBER.fullmatch(cursor):
        return {"before": int(cursor)}
    if _ID.fullmatch(cursor):
        return {"after_id": cursor}
    raise ValidationError("cursor is not valid", field="cursor")
