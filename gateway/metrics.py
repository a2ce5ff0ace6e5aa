"""What a gateway measures, and its text for Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30)


class GatewayMetrics:
    """Counters of this gateway. Labels come from fixed lists and from the cluster's nodes."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._answers = Counter(
            "paddock_gateway_requests",
            "Requests answered, by where they went; status 499: the client disconnected first.",
            ("kind", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "paddock_gateway_request_seconds",
            "Time to answer a request, streams included.",
            ("kind",),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._malformed = Counter(
            "paddock_gateway_malformed",
            "Connections closed because their data is not HTTP.",
            registry=self._registry,
        )
        # What has been counted once is found faster so; kinds and statuses are few.
        self._counted: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._gauges: list[tuple[Gauge, Callable[[], float]]] = []

    def gauge(self, name: str, help_text: str, value: Callable[[], float]) -> None:
        """Measures `value` whenever somebody asks."""
        self._gauges.append((Gauge(name, help_text, registry=self._registry), value))

    def answered(self, kind: str, status: int, seconds: float) -> None:
        """Counts an answer."""
        found = self._counted.get((kind, status))
        if found is None:
            found = self._answers.labels(kind, str(status)), self._seconds.labels(kind)
            self._counted[kind, status] = found
        answers, times = found
        answers.inc()
        times.observe(seconds)

    def not_http(self) -> None:
        """Counts what is not HTTP."""
        self._malformed.inc()

    def text(self) -> str:
        """All of it, for Prometheus."""
        for gauge, value in self._gauges:
            gauge.set(value())
        return generate_latest(self._registry).decode()
