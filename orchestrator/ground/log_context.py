"""What log lines and errors are about, and the secrets that must be removed from them.

Both apply to everything that runs in one context: in a request, or in longer-lasting work.
"""

import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from structlog.contextvars import bind_contextvars

Cut = Callable[[str], str]

_CUTS: contextvars.ContextVar[list[Cut]] = contextvars.ContextVar("cuts")


def session_context(session_id: object, cut: Cut) -> contextvars.Context:
    """A new context for callbacks and tasks: its log lines name the session and no request.

    `session_id` is the id, or an object that log lines show as the id of the present session.
    `cut` removes the session's secrets from a text.
    """
    context = contextvars.Context()
    context.run(bind_contextvars, session_id=session_id)
    context.run(_CUTS.set, [cut])
    return context


@contextmanager
def knowing_secrets() -> Iterator[None]:
    """Begins a context without known secrets, which tasks started in it share."""
    token = _CUTS.set([])
    try:
        yield
    finally:
        _CUTS.reset(token)


def know_secrets(cut: Cut) -> None:
    """Applies `cut` from now on to log lines and error messages in this context."""
    cuts = _CUTS.get(None)
    if cuts is not None:
        cuts.append(cut)


def cut_known(text: str) -> str:
    """The text without the secrets that this context knows."""
    for cut in _CUTS.get(()):
        text = cut(text)
    return text
