"""Log messages to the client: the session's events from a level on."""

from typing import Any

from api.mcp.messages import INVALID_PARAMS, LOG_MESSAGE, McpError, notice
from orchestrator.record.audit.recorded_event import Recorded
from paddock.contract.mcp import McpReply

# The protocol's levels, the least severe first.
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
# Characters of an event; of a longer one, only these members are sent.
MOST_TEXT = 4096
_ALWAYS = ("seq", "time", "operation", "decision", "rule", "command_id")
# What happens often, and on the way to something else.
_DEBUG = frozenset({"command.exec", "file.read", "file.list", "file.stat", "read", "budget.usage"})
_ERRORS = frozenset({"budget.exceeded", "command.oom", "agent.violation", "audit.gap"})
_NOTICES = frozenset(
    {"session.settings", "session.terminated", "approval.request", "approval.decision"}
)


class LogFilter:
    """From which level on a client wants log messages: none, until it says so."""

    def __init__(self) -> None:
        self._from: int | None = None

    def set(self, level: str) -> None:
        """Wants messages from that level on. Raises: McpError."""
        if level not in LEVELS:
            raise McpError(INVALID_PARAMS, f"level must be {'|'.join(LEVELS)}")
        self._from = LEVELS.index(level)

    def message(self, recorded: Recorded) -> McpReply | None:
        """The notification about an event, if the client wants it."""
        if self._from is None:
            return None
        event = recorded.event
        level = level_of(event)
        if LEVELS.index(level) < self._from:
            return None
        if len(recorded.text) > MOST_TEXT:
            event = {name: event[name] for name in _ALWAYS if name in event} | {"shortened": True}
        params = {"level": level, "logger": recorded.operation, "data": event}
        return notice(LOG_MESSAGE, params)


def level_of(event: dict[str, Any]) -> str:
    """The level of an event: of a denial, it is `warning`."""
    operation = event["operation"]
    if event.get("decision") == "deny":
        return "warning"
    if operation in _ERRORS or event.get("error") is not None:
        return "error"
    if operation in _NOTICES:
        return "notice"
    return "debug" if operation in _DEBUG else "info"
