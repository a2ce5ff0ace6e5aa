"""Traces and metrics, sent by OTLP over HTTP to the collector that the environment names."""

import asyncio
import time
from contextlib import suppress

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace.export import SpanExporter

from orchestrator.ground.metrics import Metrics
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.ground.threads import Threads, bounded
from orchestrator.operate.telemetry.metric_data import metrics_data
from orchestrator.operate.telemetry.spans import Spans

_SEND_SECONDS = 60.0
# What waits at the end is sent within this time, or is lost.
_CLOSE_SECONDS = 5.0


class OtlpSending:
    """Works from `start` to `close`. A collector that is down costs what is dropped."""

    def __init__(
        self,
        ratio: float,
        interval: float,
        instance: str,
        metrics: Metrics,
        span_exporter: SpanExporter | None = None,
        metric_exporter: MetricExporter | None = None,
    ) -> None:
        """`interval`: seconds between metrics. Exporters None: those that the environment names."""
        own = Resource({"service.name": "paddock", "service.instance.id": instance})
        # OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME count more than ours.
        named = own.merge(OTELResourceDetector().detect())
        self._resource = Resource.create(named.attributes)
        self.spans = Spans(span_exporter or OTLPSpanExporter(), self._resource, ratio)
        self._exporter = metric_exporter or OTLPMetricExporter()
        self._interval = interval
        self._metrics = metrics
        self._began = time.time_ns()
        self._threads = Threads("metrics by OTLP", 1)
        self._rounds = Rounds(2 * _SEND_SECONDS)
        self._task: Supervised | None = None

    def start(self, tasks: Tasks) -> None:
        """Begins to send metrics."""
        self._task = tasks.start(TaskName.TELEMETRY, self._run, rounds=self._rounds)

    async def close(self) -> None:
        """Sends the last spans, if that takes little time."""
        if self._task is not None:
            await self._task.close()
        with suppress(TimeoutError):
            await bounded(self.spans.close, _CLOSE_SECONDS)
        with suppress(TimeoutError):
            await bounded(self._exporter.shutdown, _CLOSE_SECONDS)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            with self._rounds.round() as this:
                try:
                    await self._send()
                except TimeoutError:
                    this.failed = True

    async def _send(self) -> None:
        """Sends the metrics as they are now; the SDK logs a failure. Raises: TimeoutError."""
        # Not in the thread, because gauges read the state of sessions.
        families, now = self._metrics.families(), time.time_ns()

        def send() -> None:
            self._exporter.export(metrics_data(families, self._resource, self._began, now))

        await self._threads.call(send, _SEND_SECONDS)
