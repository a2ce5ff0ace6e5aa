"""Gauges, measured on request: sessions, the ledger's lag, the host's resources, and others."""

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orchestrator.cluster.outbox import Outbox
from orchestrator.ground.loop_lag import LoopLag
from orchestrator.host.node.base import Load, Node
from orchestrator.operate.hooks.hooks import Hooks
from orchestrator.operate.templates.warm_templates import WarmTemplates
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.search_index.search_index import SearchIndex
from orchestrator.sandbox.egress.key_bytes import KeyBytes
from orchestrator.sandbox.sandboxes.warm_pool import WarmPool
from orchestrator.sessions.sessions import Sessions
from paddock.contract.words import Status

# More than the usual interval of scrapes, so that each sees the worst.
_LATEST_MINUTES = 2


class Gauges(Collector):
    """Runs in the control plane's own thread and reads the sessions' state directly."""

    def __init__(
        self,
        sessions: Sessions,
        levels: Iterable[str],
        ledger: Ledger,
        index: SearchIndex,
        node: Node,
        pool: WarmPool,
        key_bytes: KeyBytes,
        lag: LoopLag,
        outbox: Outbox,
    ) -> None:
        """`levels` are the names of the levels in force."""
        self._sessions = sessions
        self._levels = levels
        self._ledger = ledger
        self._index = index
        self._node = node
        self._pool = pool
        self._key_bytes = key_bytes
        self._lag = lag
        self._outbox = outbox

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        yield from self._of_sessions()
        yield from self._of_the_ledger()
        yield CounterMetricFamily(
            "paddock_egress_bytes",
            "Bytes of all sessions to and from the outside, through the way out, since the start.",
            self._key_bytes.total,
        )
        yield GaugeMetricFamily(
            "paddock_outbox_messages",
            "Messages that the cluster has not been told yet; 0 without a cluster.",
            self._outbox.waiting,
        )
        yield from self._of_the_loop()
        yield from _of_the_host(self._node.load())

    def _of_sessions(self) -> Iterator[Metric]:
        known = self._sessions.registry.all
        counts = Counter((str(session.status), session.level.name) for session in known)
        # Sessions keep a level whose file is gone.
        levels = dict.fromkeys([*self._levels, *(session.level.name for session in known)])
        metric = GaugeMetricFamily(
            "paddock_sessions",
            "Sessions by status and level; including ended sessions that are still shown.",
            labels=["status", "level"],
        )
        for status in Status:
            for level in levels:
                metric.add_metric([status, level], counts[status, level])
        yield metric
        yield GaugeMetricFamily(
            "paddock_commands_running",
            "Commands that are running.",
            sum(len(session.running) for session in known if session.live),
        )
        yield GaugeMetricFamily(
            "paddock_sandboxes_disconnected",
            "Active sessions whose sandbox agent is not connected.",
            sum(
                session.status is Status.ACTIVE
                and session.sandbox is not None
                and not session.sandbox.link.connected
                for session in known
            ),
        )
        yield GaugeMetricFamily(
            "paddock_sessions_suspended",
            "Sessions that have no sandbox until their next use.",
            sum(session.live and session.suspended for session in known),
        )
        waiting = Counter(shape.level_name for shape in self._pool.shapes)
        warm = GaugeMetricFamily(
            "paddock_warm_sandboxes",
            "Sandboxes that wait for a session, by level.",
            labels=["level"],
        )
        for level in dict.fromkeys([*self._levels, *waiting]):
            warm.add_metric([level], waiting[level])
        yield warm
        slots = self._sessions.shares.slots
        yield GaugeMetricFamily(
            "paddock_creations_waiting",
            "Session creations that wait for a slot.",
            slots.waiting,
        )
        yield GaugeMetricFamily(
            "paddock_creations_working", "Session creations in progress.", slots.working
        )

    def _of_the_ledger(self) -> Iterator[Metric]:
        lag = self._ledger.lag()
        yield GaugeMetricFamily(
            "paddock_audit_pending_events", "Events that are not durable yet.", lag.pending
        )
        yield GaugeMetricFamily(
            "paddock_audit_oldest_pending_seconds",
            "How long the oldest pending event has waited; 0 if there is none.",
            lag.oldest_seconds,
        )
        yield CounterMetricFamily(
            "paddock_audit_events", "Events made durable since the start.", self._ledger.committed
        )
        yield GaugeMetricFamily(
            "paddock_audit_index_lag_events",
            "Events that are not in the search index yet.",
            self._index.lag,
        )

    def _of_the_loop(self) -> Iterator[Metric]:
        worst = self._lag.worst(_LATEST_MINUTES)
        yield GaugeMetricFamily(
            "paddock_loop_lag_seconds",
            "The longest time of the last two minutes in which all requests waited for one thing.",
            0.0 if worst is None else worst.seconds,
        )
        yield CounterMetricFamily(
            "paddock_loop_slow_passes",
            "How often all requests waited for longer than 50 ms.",
            self._lag.slow_passes,
        )


def _of_the_host(load: Load) -> Iterator[Metric]:
    cpu = CounterMetricFamily(
        "paddock_host_cpu_seconds", "CPU time of the host, by mode.", labels=["mode"]
    )
    for mode, seconds in load.cpu_seconds.items():
        cpu.add_metric([mode], seconds)
    yield cpu
    yield GaugeMetricFamily("paddock_host_cpus", "CPUs of the host.", load.cpus)
    yield GaugeMetricFamily(
        "paddock_host_memory_total_bytes", "Memory of the host.", load.memory_bytes
    )
    yield GaugeMetricFamily(
        "paddock_host_memory_available_bytes",
        "Memory that is available without swapping.",
        load.free_memory_bytes,
    )
    yield GaugeMetricFamily(
        "paddock_host_disk_total_bytes",
        "Size of the state directory's file system.",
        load.disk_bytes,
    )
    yield GaugeMetricFamily(
        "paddock_host_disk_free_bytes",
        "Free space in the state directory's file system.",
        load.free_disk_bytes,
    )


class TemplateGauges(Collector):
    """How many sessions of each template can begin at once."""

    def __init__(self, names: Iterable[str], warm: WarmTemplates) -> None:
        """`names` are those of the templates in force."""
        self._names = names
        self._warm = warm

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        ready = GaugeMetricFamily(
            "paddock_template_ready",
            "Sessions of a template for which a sandbox and the prepared files wait.",
            labels=["template"],
        )
        for name in self._names:
            ready.add_metric([name], self._warm.ready(name))
        yield ready


class HookGauges(Collector):
    """Numbers of messages to hooks, from what the hooks know of their queues."""

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
