"""What a line of the log, or an error, is about, and which secrets must not be in it.

Both hold for whatever runs in the same context: a request, or what goes on longer than that.
"""

import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from structlog.contextvars import bind_contextvars

Cut = Callable[[str], str]

_CUTS: contextvars.ContextVar[list[Cut]] = contextvars.ContextVar("cuts")


def session_context(session_id: str, cut: Cut) -> contextvars.Context:
    """A context of its own for callbacks and tasks: log lines name the session, no request.

    `cut` takes the session's secrets out of a text.
    """
    context = contextvars.Context()
    context.run(bind_contextvars, session_id=session_id)
    context.run(_CUTS.set, [cut])
    return context


@contextmanager
def knowing_secrets() -> Iterator[None]:
    """Begins a context that knows no secrets yet; tasks that are started in it share it."""
    token = _CUTS.set([])
    try:
        yield
    finally:
        _CUTS.reset(token)


def know_secrets(cut: Cut) -> None:
    """From now on `cut` is applied to what is logged, or told as an error, in this context."""
    cuts = _CUTS.get(None)
    if cuts is not None:
        cuts.append(cut)


def cut_known(text: str) -> str:
    """The text without the secrets that this context knows."""
    for cut in _CUTS.get(()):
        text = cut(text)
    return text
