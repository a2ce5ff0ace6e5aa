"""Spans by OpenTelemetry's SDK: sent in the background, and dropped if the collector is down."""

from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from orchestrator.ground.traces.spans import Attribute
from orchestrator.ground.traces.traceparent import TraceParent

# Spans that wait to be sent; further ones are dropped. A batch is sent each second.
MOST_WAITING = 2048
_BATCH, _DELAY_MS = 512, 1000


class SdkSpan:
    """As `OpenSpan`."""

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span

    @property
    def place(self) -> TraceParent:
        """As `OpenSpan.place`."""
        found = self._span.get_span_context()
        return TraceParent(
            f"{found.trace_id:032x}", f"{found.span_id:016x}", found.trace_flags.sampled
        )

    def child(self, name: str, attributes: Mapping[str, Attribute]) -> "SdkSpan":
        """As `OpenSpan.child`."""
        whole = set_span_in_context(self._span, Context())
        return SdkSpan(self._tracer, self._tracer.start_span(name, whole, attributes=attributes))

    def end(self, attributes: Mapping[str, Attribute] = {}, *, failed: bool = False) -> None:
        """As `OpenSpan.end`."""
        if attributes:
            self._span.set_attributes(attributes)
        if failed:
            self._span.set_status(Status(StatusCode.ERROR))
        if self._span.is_recording():
            self._span.end()


class Spans:
    """Begins the spans of requests, and sends those that are sampled."""

    def __init__(self, exporter: SpanExporter, resource: Resource, ratio: float) -> None:
        """`ratio`, from 0 to 1, of all traces is sent, whoever began them.

        Of those that a caller began without sending them, none is.
        """
        chosen = TraceIdRatioBased(ratio)
        sampler = ParentBased(
            chosen, remote_parent_sampled=chosen, remote_parent_not_sampled=ALWAYS_OFF
        )
        self._provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, MOST_WAITING, _DELAY_MS, _BATCH)
        )
        self._tracer = self._provider.get_tracer("paddock")

    def begin(self, method: str, route: str, caller: TraceParent | None) -> SdkSpan:
        """The span of a request, as OpenTelemetry's conventions for HTTP name it."""
        span = self._tracer.start_span(
            f"{method} {route}",
            Context() if caller is None else set_span_in_context(_remote(caller), Context()),
            SpanKind.SERVER,
            {"http.request.method": method, "http.route": route},
        )
        return SdkSpan(self._tracer, span)

    def close(self) -> None:
        """Sends what waits, and ends; may take as long as the exporter's time-out."""
        self._provider.shutdown()


def _remote(caller: TraceParent) -> Span:
    flags = TraceFlags(TraceFlags.SAMPLED if caller.sampled else TraceFlags.DEFAULT)
    return NonRecordingSpan(
        SpanContext(int(caller.trace_id, 16), int(caller.span_id, 16), True, flags)
    )
