"""Spans of a trace: what a request caused, and how long each part took.

Without telemetry, no request begins one, and nothing below does anything. What sends spans is given
to the API; everything else only adds to the span of its context.
"""

import contextvars
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Protocol

TRACEPARENT = "traceparent"  # the header
Attribute = str | int | bool
# A hook's header and a command's variable have the same form. Later versions may have more parts.
_TRACEPARENT = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?",
    re.ASCII,
)
_MOST_TRACEPARENT = 256  # characters
_SAMPLED = 1


class TraceParent(NamedTuple):
    """A span of somebody else: 32 and 16 hexadecimal digits, and whether it is sent."""

    trace_id: str
    span_id: str
    sampled: bool

    @property
    def text(self) -> str:
        """The W3C's form, of a `traceparent` header."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


def parsed_traceparent(text: str | None) -> TraceParent | None:
    """What a `traceparent` header says; None: there is none, or it is malformed and is ignored."""
    if text is None or len(text) > _MOST_TRACEPARENT:
        return None
    found = _TRACEPARENT.fullmatch(text.strip())
    if found is None or (found[1] == "00" and found[5] is not None):
        return None
    return TraceParent(found[2], found[3], bool(int(found[4], 16) & _SAMPLED))


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


@contextmanager
def part(name: str, **attributes: Attribute) -> Iterator[None]:
    """A part of this context's span, which ends with the block; without a span, nothing."""
    whole = _CURRENT.get()
    if whole is None:
        yield
        return
    span = whole.child(name, attributes)
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


def ids_of(place: TraceParent) -> dict[str, str]:
    """The ids of a span, as log lines and events have them."""
    return {"trace_id": place.trace_id, "span_id": place.span_id}
