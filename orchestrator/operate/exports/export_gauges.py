"""How far exports are behind, as metrics."""

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orchestrator.operate.exports.exports import Exports


class ExportGauges(Collector):
    """How far exports are behind the record. Their names are the operator's."""

    def __init__(self, exports: Exports) -> None:
        self._exports = exports

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        lag = GaugeMetricFamily(
            "paddock_export_lag_events",
            "Events of the record that an export's destination has not taken yet, at most.",
            labels=["export"],
        )
        failures = CounterMetricFamily(
            "paddock_export_failures",
            "Batches that an export's destination did not take at one try.",
            labels=["export"],
        )
        for export in self._exports.each:
            lag.add_metric([export.plan.name], export.behind)
            failures.add_metric([export.plan.name], export.failures)
        yield from (lag, failures)
