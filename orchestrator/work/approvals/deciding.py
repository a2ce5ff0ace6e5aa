"""Who decides about approvals, and why some can't be decided. Pure functions."""

from orchestrator.ground.errors import ConflictError
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.work.approvals.approval_rows import Approval


def may_decide(principal: Principal, approval: Approval) -> bool:
    """Whether the approval is the principal's to decide."""
    if principal.role is Role.ADMIN:
        return True
    return principal.role is Role.OPERATOR and principal.name == approval.owner


def used_up(approval_id: str) -> ConflictError:
    """The error for an answer that another call had."""
    return ConflictError(f"approval {approval_id} is used up: another call had its answer")


def over(approval: Approval) -> ConflictError:
    """The error for an approval that is decided."""
    status = "used up" if approval.status == "pending" else approval.status
    return ConflictError(f"approval {approval.id} is already {status}: it can be decided only once")
