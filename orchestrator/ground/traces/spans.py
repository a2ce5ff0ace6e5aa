"""Spans of a trace: what a request caused, and how long each part took.

Without telemetry, no request begins one, and nothing below does anything. What sends spans is given
to the API; everything else only adds to the span of its context.
"""

import contextvars
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from orchestrator.ground.traces.traceparent import TraceParent, ids_of

Attribute = str | int | bool


class OpenSpan(Protocol):
    """A span that has begun."""

    @property
    def place(self) -> TraceParent:
        """Its ids."""

    def child(self, name: str, attributes: Mapping[str, Attribute]) -> "OpenSpan":
        """Begins a part of it."""

    def end(self, attributes: Mapping[str, Attribute] = {}, *, failed: bool = False) -> None:
        """Ends it; only the first call counts."""


# Begins the span of a request: its method, its route, and the caller's span.
BeginSpan = Callable[[str, str, TraceParent | None], OpenSpan]

_CURRENT: contextvars.ContextVar[OpenSpan | None] = contextvars.ContextVar("span", default=None)


def current_span() -> OpenSpan | None:
    """The span of this context, and of the tasks that are started in it."""
    return _CURRENT.get()


@contextmanager
def within(span: OpenSpan) -> Iterator[None]:
    """Makes it the span of this context."""
    token = _CURRENT.set(span)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def part(name: str) -> AbstractContextManager[None]:
    """A part of this context's span, which ends with the block; without a span, nothing."""
    whole = _CURRENT.get()
    return nullcontext() if whole is None else _part(whole, name)


@contextmanager
def _part(whole: OpenSpan, name: str) -> Iterator[None]:
    span = whole.child(name, {})
    try:
        with within(span):
            yield
    except BaseException:
        span.end(failed=True)
        raise
    span.end()


def recorded_ids() -> dict[str, str]:
    """The ids of this context's request, for events of the record; empty without tracing."""
    span = _CURRENT.get()
    return {} if span is None else ids_of(span.place)
