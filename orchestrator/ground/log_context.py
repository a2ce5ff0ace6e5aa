"""What log lines and errors are about, and the secrets that must be removed from them.

Both apply to everything that runs in one context: in a request, or in longer-lasting work.
"""

import contextvars
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

Cut = Callable[[str], str]

# The field that names a request of a foreign protocol, in log lines and in events.
ASKED_AS = "asked_as"


class _Known(NamedTuple):
    """The fields of log lines, and the functions that remove secrets from a text."""

    fields: Mapping[str, object]
    cuts: list[Cut]


_KNOWN: contextvars.ContextVar[_Known] = contextvars.ContextVar("known")


def session_context(session_id: object, cut: Cut) -> contextvars.Context:
    """A new context for callbacks and tasks: its log lines name the session and no request.

    `session_id` is the id, or an object that log lines show as the id of the present session.
    `cut` removes the session's secrets from a text.
    """
    context = contextvars.Context()
    context.run(_KNOWN.set, _Known({"session_id": session_id}, [cut]))
    return context


@contextmanager
def logging_about(fields: Mapping[str, object]) -> Iterator[None]:
    """Begins a context whose log lines have these fields, and in which no secrets are known yet.

    Tasks started in it share it.
    """
    token = _KNOWN.set(_Known(fields, []))
    try:
        yield
    finally:
        _KNOWN.reset(token)


def know_secrets(cut: Cut) -> None:
    """Applies `cut` from now on to log lines and error messages in this context."""
    known = _KNOWN.get(None)
    if known is not None:
        known.cuts.append(cut)


def known_fields() -> Mapping[str, object]:
    """The fields of log lines in this context."""
    known = _KNOWN.get(None)
    return {} if known is None else known.fields


@contextmanager
def asking_as(name: str) -> Iterator[None]:
    """Names what this context does by a request of a foreign protocol; secrets stay known."""
    known = _KNOWN.get(None) or _Known({}, [])
    token = _KNOWN.set(known._replace(fields={**known.fields, ASKED_AS: name}))
    try:
        yield
    finally:
        _KNOWN.reset(token)


def asked_as() -> str | None:
    """The name that this context's request has in a foreign protocol; None for other work."""
    name = known_fields().get(ASKED_AS)
    return None if name is None else str(name)


def cut_known(text: str) -> str:
    """The text without the secrets that this context knows."""
    known = _KNOWN.get(None)
    for cut in () if known is None else known.cuts:
        text = cut(text)
    return text
