"""A receiver of OTLP over HTTP, which keeps spans and metrics, or answers badly."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from gzip import decompress
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class SentSpan:
    """A span as it arrived; ids are hexadecimal, `kind` and `status` OTLP's numbers."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    status: int
    attributes: dict[str, Any]


@dataclass
class OtlpReceiver:
    """`status` is that of each answer; None: it never answers."""

    url: str = ""
    status: int | None = 200
    spans: list[SentSpan] = field(default_factory=list)
    # By name, the points of the latest time.
    metrics: dict[str, Any] = field(default_factory=dict)
    resource: dict[str, Any] = field(default_factory=dict)
    requests: int = 0

    def named(self, name: str) -> list[SentSpan]:
        """The spans of that name."""
        return [span for span in self.spans if span.name == name]

    async def traces(self, request: web.Request) -> web.Response:
        """POST /v1/traces."""
        body = await self._body(request)
        for found in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resource = _values(found.resource.attributes)
            for scope in found.scope_spans:
                self.spans += [_sent(span) for span in scope.spans]
        return web.Response(status=self.status or 500)

    async def points(self, request: web.Request) -> web.Response:
        """POST /v1/metrics."""
        body = await self._body(request)
        for found in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in found.scope_metrics:
                self.metrics |= {metric.name: metric for metric in scope.metrics}
        return web.Response(status=self.status or 500)

    async def _body(self, request: web.Request) -> bytes:
        self.requests += 1
        body = await request.read()
        if self.status is None:
            await asyncio.Event().wait()
        return decompress(body) if request.headers.get("Content-Encoding") == "gzip" else body


def _sent(span: Any) -> SentSpan:
    return SentSpan(
        *(span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()),
        *(span.kind, span.status.code, _values(span.attributes)),
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@asynccontextmanager
async def receiving_otlp() -> AsyncIterator[OtlpReceiver]:
    """A receiver at a port of its own."""
    receiver = OtlpReceiver()
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/traces", receiver.traces)
    app.router.add_post("/v1/metrics", receiver.points)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        await runner.cleanup()
