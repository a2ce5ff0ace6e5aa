"""What break-glass shows: open accesses, and other keys' sessions without their content."""

from typing import Any

from orchestrator.ground.events import time_text
from orchestrator.rules.access import break_glass as domain
from paddock.contract.approvals import Approval
from paddock.contract.break_glass import GlassAccess

# The members of a session that have content, and what is shown instead.
WITHOUT_CONTENT: dict[str, Any] = {"commands": []}
INSPECTED_WITHOUT_CONTENT: dict[str, Any] = {
    **WITHOUT_CONTENT,
    "processes": None,
    "usage": None,
    "denials": [],
}


def glass_access(shown: domain.GlassAccess) -> GlassAccess:
    """One open access."""
    return GlassAccess(**access_members(shown))


def access_members(shown: domain.GlassAccess) -> dict[str, Any]:
    """The members of an access."""
    return {
        "id": shown.id,
        "key": shown.key,
        "reason": shown.reason,
        "opened_at": time_text(shown.opened_at),
        "until": time_text(shown.until),
    }


def approval_without_content(shown: Approval) -> Approval:
    """An approval that nobody is asked for any more: what was sent is its session's content."""
    return shown.model_copy(update={"command": "", "files": {}, "reason": None})
