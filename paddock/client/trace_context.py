"""The trace that a program is in, passed on with each request."""

import sys


def trace_headers() -> dict[str, str]:
    """The W3C's header of the present span, in programs that use OpenTelemetry; else nothing.

    Nothing is imported: a program that has a span has imported it.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    place = trace.get_current_span().get_span_context()
    if not place.is_valid:
        return {}
    ids = f"{place.trace_id:032x}-{place.span_id:016x}"
    return {"traceparent": f"00-{ids}-{int(place.trace_flags) & 1:02x}"}
