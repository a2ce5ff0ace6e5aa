"""Which session log lines are about, for what goes on longer than the request that began it."""

import contextvars

from structlog.contextvars import bind_contextvars


def session_context(session_id: str) -> contextvars.Context:
    """A context of its own for callbacks and tasks: log lines name the session, no request."""
    context = contextvars.Context()
    context.run(bind_contextvars, session_id=session_id)
    return context
