"""Approvals: what waits for a person, and their word."""

from aiohttp import web

from api.call import Call, reply
from api.queries import ApprovalsQuery
from api.tool_schemas import ApprovalBody


async def list_all(call: Call, query: ApprovalsQuery) -> web.Response:
    """The approvals of the caller's sessions (an admin: of everybody's), newest first.

    Those of sessions that ended are among them. With `session` only those of one session, of the
    latest of that id or of the one that `incarnation` names.
    """
    key = None
    if query.session is not None:
        key = await call.record_key(query.session, query.incarnation)
    approvals, following = await call.plane.approvals.list(
        call.principal,
        session_key=key,
        status=query.status,
        before=query.cursor,
        limit=query.limit,
    )
    items = [approval.public() for approval in approvals]
    return reply({"items": items, "next": None if following is None else str(following)})


async def decide(call: Call, body: ApprovalBody) -> web.Response:
    """Approves or denies a command, once; it holds for exactly the text that is shown.

    The text may be sent once. When its terminal ends, the approval has expired.
    """
    approval = await call.work.complete(
        call.plane.approvals.decide(
            call.principal, call.request.match_info["approval_id"], body.decision, body.reason
        )
    )
    return reply(approval.public())
