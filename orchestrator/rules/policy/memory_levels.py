"""Which permission levels read and write the long-term memory. Pure."""

from orchestrator.ground.errors import PermissionDeniedError
from orchestrator.rules.policy.levels import Level

SEARCH, WRITE = "memory_search", "memory_write"
# By risk tier, because the operator's own levels have one, too.
_DENIED = {"info": {SEARCH, WRITE}, "low": {SEARCH, WRITE}, "medium": {WRITE}}


def may_use(level: Level, tool: str) -> bool:
    """Whether sessions at that level may use the tool."""
    return tool not in _DENIED.get(level.risk_tier, set())


def check_memory(level: Level, tool: str) -> None:
    """Raises PermissionDeniedError if sessions at that level may not use the tool."""
    if not may_use(level, tool):
        raise PermissionDeniedError(
            f"tool not allowed for permission level {level.name}: {tool}", rule="memory-level"
        )
