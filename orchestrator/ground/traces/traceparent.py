"""The ids of a span, as the W3C's Trace Context writes them. Pure."""

import re
from typing import NamedTuple

TRACEPARENT = "traceparent"  # the header
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


def ids_of(place: TraceParent) -> dict[str, str]:
    """The ids of a span, as log lines and events have them."""
    return {"trace_id": place.trace_id, "span_id": place.span_id}
