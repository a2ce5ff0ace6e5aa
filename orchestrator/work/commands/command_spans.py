"""The span of a command: from its start on record to its end on record."""

from orchestrator.ground.traces.spans import OpenSpan, current_span
from orchestrator.state.session import Session
from sandbox_agent.decide.variables import allowed_variable

_VARIABLE = "TRACEPARENT"


def begun(session: Session, command_id: str) -> OpenSpan | None:
    """The span of a command whose request is traced. Its words are in the record only."""
    span = current_span()
    if span is None:
        return None
    return span.child(
        "command", {"paddock.session.id": session.id, "paddock.command.id": command_id}
    )


def variable(session: Session, span: OpenSpan | None) -> dict[str, str]:
    """What tells the command of its span, where the level permits a variable of that name."""
    if span is None or not allowed_variable(_VARIABLE, session.level.environment):
        return {}
    return {_VARIABLE: span.place.text}
