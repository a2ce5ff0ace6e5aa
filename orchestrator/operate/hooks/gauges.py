"""Numbers of messages to hooks, for the metrics."""

from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orchestrator.operate.hooks.service import Hooks


class HookGauges(Collector):
    """Reads what the hooks know of their queues."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        total = self._hooks.total()
        yield GaugeMetricFamily(
            "paddock_hook_deliveries_waiting",
            "Messages to hooks that are still tried.",
            total.waiting,
        )
        yield GaugeMetricFamily(
            "paddock_hook_deliveries_undelivered",
            "Messages to hooks that were given up and are kept.",
            total.undelivered,
        )
