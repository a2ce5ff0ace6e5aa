"""Views of approvals."""

from api.shape.objects import members
from orchestrator.work.approvals import approval_rows
from paddock.contract.approvals import Approval


def approval(stored: approval_rows.Approval) -> Approval:
    """The approval; its text is the `command` that was sent."""
    shown = {"command": stored.text, "approved_by": list(stored.approved_by)}
    return Approval.model_validate(members(Approval, stored, **shown))


def approval_without_content(shown: Approval) -> Approval:
    """An approval that nobody is asked for any more: what was sent is its session's content."""
    return shown.model_copy(update={"command": "", "files": {}, "reason": None})
