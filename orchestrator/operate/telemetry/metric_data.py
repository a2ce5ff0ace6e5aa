"""The metrics of `/metrics` as those of OpenTelemetry. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as SentMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

_CUMULATIVE = AggregationTemporality.CUMULATIVE
_Labels = tuple[tuple[str, str], ...]


def metrics_data(
    families: Iterable[Metric], resource: Resource, began: int, now: int
) -> MetricsData:
    """All families with samples; both times are nanoseconds since 1970, `began` of the process."""
    sent = [
        SentMetric(family.name, family.documentation, "", data)
        for family in families
        if (data := _data(family, began, now)) is not None
    ]
    scope = ScopeMetrics(InstrumentationScope("paddock"), sent, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _data(family: Metric, began: int, now: int) -> Sum | Gauge | Histogram | None:
    if family.type == "histogram":
        points = list(_histograms(family.samples, began, now))
        return Histogram(points, _CUMULATIVE) if points else None
    suffix = "_total" if family.type == "counter" else ""
    numbers = [
        NumberDataPoint(sample.labels, began, now, sample.value)
        for sample in family.samples
        if sample.name == family.name + suffix
    ]
    if not numbers:
        return None
    if family.type == "counter":
        return Sum(numbers, _CUMULATIVE, is_monotonic=True)
    return Gauge(numbers)


def _histograms(samples: Sequence[Sample], began: int, now: int) -> Iterable[HistogramDataPoint]:
    """A point for each combination of labels; Prometheus' buckets contain those below them."""
    buckets: dict[_Labels, list[tuple[float, int]]] = defaultdict(list)
    sums: dict[_Labels, float] = {}
    for sample in samples:
        labels = tuple((name, text) for name, text in sample.labels.items() if name != "le")
        if sample.name.endswith("_bucket"):
            buckets[labels].append((float(sample.labels["le"]), int(sample.value)))
        elif sample.name.endswith("_sum"):
            sums[labels] = sample.value
    for labels, below in buckets.items():
        counts = [count for _, count in below]
        single = [after - before for before, after in zip([0, *counts], counts, strict=False)]
        bounds = [bound for bound, _ in below if not math.isinf(bound)]
        yield HistogramDataPoint(
            *(dict(labels), began, now, counts[-1], sums.get(labels, 0.0)),
            *(single, bounds, -math.inf, math.inf),
        )
