"""Approvals that need several people, none of whom asked. People are the names of keys.

Who asked is the owner of the session, whoever sent the line, and whoever changed the session's
settings or its handle, because they may have given the handle to the program that asks.
"""

from collections.abc import Collection
from dataclasses import replace

from orchestrator.ground.errors import ConflictError, PermissionDeniedError
from orchestrator.ground.store.database import Database
from orchestrator.work.approvals.approval_rows import Approval

RULE = "other-approver"
_CHANGERS = (
    "SELECT DISTINCT json_extract(body, '$.actor') FROM events"
    " WHERE session_key = ? AND operation = 'session.settings' AND json_valid(body)"
)


async def changers(database: Database, approval: Approval) -> frozenset[str]:
    """Who changed the session's settings or its handle, if several people must approve.

    Raises: StoreError.
    """
    if approval.approvers == 1:
        return frozenset()
    key = approval.session_key
    rows = await database.read(lambda db: db.execute(_CHANGERS, (key,)).fetchall())
    return frozenset(name for (name,) in rows)


def approved(approval: Approval, name: str, changed_by: Collection[str]) -> Approval:
    """The approval, also by that key; `is_complete` says whether enough have approved.

    Raises: PermissionDeniedError if the key has asked; ConflictError if it has approved already.
    """
    if approval.approvers > 1:
        if name in {approval.owner, approval.requested_by, *changed_by}:
            raise PermissionDeniedError(
                f"{approval.id} needs {approval.approvers} approvers who did not ask, and {name} "
                "owns, changed or used this session: let others approve",
                rule=RULE,
            )
        if name in approval.approved_by:
            raise ConflictError(
                f"{name} has approved {approval.id}: {approval.approvers} different approvers "
                "are needed"
            )
    return replace(approval, approved_by=(*approval.approved_by, name))
