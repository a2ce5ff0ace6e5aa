"""Metrics that are measured as events happen, and their text for Prometheus."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from platform import python_version
from typing import NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.limits import LIMIT_NAMES
from orchestrator.ground.tasks import TaskName
from paddock.contract import remedies
from paddock.contract.build import this_build
from paddock.contract.words import LEVEL_NAMES, Kind

# Every Prometheus reads this version. Names and labels are plain.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"
ENGINE_OPERATIONS = (
    *("info", "image", "create", "inspect", "list", "pause", "resume", "remove", "logs"),
    *("images", "kernel", "ensure_open_network", "close_names", "remove_open_network"),
    *("hold_device", "hold_link", "try_link", "make_agent", "look_into", "refuse_links"),
    "root_inside",
)
_REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30)
_START_BUCKETS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 15)
_COMMAND_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 20, 120, 600, 3600)
_AGE_BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 14400)
WARM_OUTCOMES = ("hit", "miss")
HOOK_OUTCOMES = ("delivered", "failed", "undelivered")
_ENGINE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 30)

_Value = TypeVar("_Value", bound=str)


class _Row(NamedTuple):
    """A metric: a histogram if it has buckets, otherwise a counter."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def registered(self, registry: CollectorRegistry) -> Counter | Histogram:
        if self.buckets:
            return Histogram(
                self.name, self.help, self.labels, buckets=self.buckets, registry=registry
            )
        return Counter(self.name, self.help, self.labels, registry=registry)


# In the order in which `/metrics` has them.
_TABLE = (
    _Row(
        "paddock_http_requests",
        "Requests answered; status 499: the client disconnected first.",
        ("method", "route", "status"),
    ),
    _Row(
        "paddock_http_request_seconds",
        "Time to answer a request, except streams.",
        ("method", "route"),
        _REQUEST_BUCKETS,
    ),
    _Row("paddock_http_malformed", "Connections closed because their data is not HTTP."),
    _Row(
        "paddock_rate_limited",
        "Requests refused because an API key reached a limit, by limit.",
        ("limit",),
    ),
    _Row(
        "paddock_session_create_seconds",
        "Time to create a session, once it has a slot.",
        ("level",),
        _ENGINE_BUCKETS,
    ),
    _Row(
        "paddock_session_create_failures",
        "Sessions that could not be created, by error code.",
        ("code",),
    ),
    _Row(
        "paddock_warm_claims",
        "Sandboxes that sessions needed, by whether one was waiting (hit) or not (miss).",
        ("level", "outcome"),
    ),
    _Row(
        "paddock_warm_age_seconds",
        "How long a sandbox had waited when a session got it.",
        (),
        _AGE_BUCKETS,
    ),
    _Row(
        "paddock_command_start_seconds",
        "Time to decide, record and start a command.",
        ("level",),
        _START_BUCKETS,
    ),
    _Row("paddock_command_seconds", "Run time of a command.", ("level",), _COMMAND_BUCKETS),
    _Row("paddock_denials", "Recorded policy refusals, by rule.", ("rule",)),
    _Row("paddock_budgets_exceeded", "Sessions that used up a budget, by its kind.", ("kind",)),
    _Row("paddock_agent_reconnects", "Sandbox agents that connected again."),
    _Row(
        "paddock_agent_violations",
        "Connections of sandbox agents that were dropped for breaking the protocol.",
    ),
    _Row(
        "paddock_task_restarts",
        "Background tasks that failed and were started again, by task.",
        ("task",),
    ),
    _Row(
        "paddock_hook_deliveries",
        "Messages to hooks: delivered, tries that failed, and given up (undelivered).",
        ("outcome",),
    ),
    _Row(
        "paddock_engine_call_seconds",
        "Duration of a call to the container engine, including failed ones.",
        ("operation",),
        _ENGINE_BUCKETS,
    ),
    _Row("paddock_engine_call_failures", "Failed calls to the container engine.", ("operation",)),
)


class Metrics:
    """One instance's metrics in their own registry.

    Every label has a fixed set of values, except the levels, which the operator names. Text from a
    client or a sandbox is never a label, and neither is a session's id.
    """

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        names = ["version", "commit", "date", "python"]
        build = Gauge("paddock_build_info", "Always 1.", names, registry=registry)
        build.labels(*this_build(), python_version()).set(1)
        made = {metric.name: metric.registered(registry) for metric in _TABLE}
        counters = {name: each for name, each in made.items() if isinstance(each, Counter)}
        histograms = {name: each for name, each in made.items() if isinstance(each, Histogram)}
        self._requests = counters["paddock_http_requests"]
        self._request_seconds = histograms["paddock_http_request_seconds"]
        self._not_http = counters["paddock_http_malformed"]
        self._rate_limited = _series(counters["paddock_rate_limited"], LIMIT_NAMES)
        self._create = _ByLevel(histograms["paddock_session_create_seconds"])
        self._create_failures = counters["paddock_session_create_failures"]
        self._warm_claims = counters["paddock_warm_claims"]
        for level in LEVEL_NAMES:
            for outcome in WARM_OUTCOMES:
                self._warm_claims.labels(level, outcome)
        self._warm_age = histograms["paddock_warm_age_seconds"]
        self._start = _ByLevel(histograms["paddock_command_start_seconds"])
        self._duration = _ByLevel(histograms["paddock_command_seconds"])
        rules = (*remedies.COMMANDS, *remedies.KEYS, OTHER)
        self._denials = _series(counters["paddock_denials"], rules)
        self._budgets = _series(counters["paddock_budgets_exceeded"], Kind)
        self._reconnects = counters["paddock_agent_reconnects"]
        self._violations = counters["paddock_agent_violations"]
        self._restarts = _series(counters["paddock_task_restarts"], TaskName)
        self._hooks = _series(counters["paddock_hook_deliveries"], HOOK_OUTCOMES)
        self._engine_seconds = histograms["paddock_engine_call_seconds"]
        self._engine_failures = _series(counters["paddock_engine_call_failures"], ENGINE_OPERATIONS)
        # Looking up a combination of labels is slow, so each is looked up once.
        self._known_requests: dict[tuple[str, str, int], Counter] = {}
        self._known_routes: dict[tuple[str, str], Histogram] = {}

    def add(self, collector: Collector) -> None:
        """Adds a collector, which is called whenever the metrics are read."""
        self._registry.register(collector)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(_Lean(self._registry))

    def families(self) -> list[Metric]:
        """All metrics with their present values."""
        return list(_Lean(self._registry).collect())

    def request(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """Records an answered request; `seconds` is None for streams.

        The caller bounds the route.
        """
        key = method, route, status
        counter = self._known_requests.get(key)
        if counter is None:
            counter = self._known_requests[key] = self._requests.labels(*map(str, key))
        counter.inc()
        if seconds is not None:
            histogram = self._known_routes.get((method, route))
            if histogram is None:
                histogram = self._request_seconds.labels(method, route)
                self._known_routes[method, route] = histogram
            histogram.observe(seconds)

    def not_http(self) -> None:
        """Records a client that sent something other than HTTP."""
        self._not_http.inc()

    def rate_limited(self, limit: str) -> None:
        """Records a request that was refused by that limit."""
        self._rate_limited[limit].inc()

    @contextmanager
    def creation(self) -> Iterator[Callable[[str], None]]:
        """Measures a session's creation; call the yielded function with its level at the end."""
        started = time.perf_counter()
        try:
            yield lambda level: self._create[level].observe(time.perf_counter() - started)
        except Exception as error:
            code = error.code if isinstance(error, PaddockError) else PaddockError.code
            self._create_failures.labels(code).inc()
            raise

    def warm_claimed(self, level: str, age: float | None) -> None:
        """Records that a session needed a sandbox; `age` is None if none was waiting."""
        self._warm_claims.labels(level, WARM_OUTCOMES[age is None]).inc()
        if age is not None:
            self._warm_age.observe(age)

    def command_started(self, level: str, seconds: float) -> None:
        """Records the start of a command and the seconds that it took."""
        self._start[level].observe(seconds)

    def command_ended(self, level: str, seconds: float) -> None:
        """Records the end of a command and its run time in seconds."""
        self._duration[level].observe(seconds)

    def denied(self, rule: str | None) -> None:
        """Records a denial. Sandboxes report some denials, so the rule may be any text."""
        self._denials.get(rule or OTHER, self._denials[OTHER]).inc()

    def budget_exceeded(self, kind: Kind) -> None:
        """Counts a recorded budget excess by its kind."""
        self._budgets[kind].inc()

    def agent_reconnected(self) -> None:
        """Records that the agent of a running sandbox connected again."""
        self._reconnects.inc()

    def agent_violation(self) -> None:
        """Records that a sandbox agent broke the protocol."""
        self._violations.inc()

    def task_restarted(self, name: TaskName) -> None:
        """Records that a background task failed and is restarted."""
        self._restarts[name].inc()

    def hook_delivery(self, outcome: str) -> None:
        """Counts what became of a message to a hook; one of `HOOK_OUTCOMES`."""
        self._hooks[outcome].inc()

    @contextmanager
    def engine_call(self, operation: str) -> Iterator[None]:
        """Measures a call to the engine; the operation is the name of its method."""
        failures = self._engine_failures[operation]
        started = time.perf_counter()
        try:
            yield
        except Exception:
            failures.inc()
            raise
        finally:
            self._engine_seconds.labels(operation).observe(time.perf_counter() - started)


def _series(counter: Counter, values: Iterable[_Value]) -> dict[_Value, Counter]:
    """A counter's series of one label, all from the start."""
    return {value: counter.labels(value) for value in values}


class _ByLevel(dict[str, Histogram]):
    """A histogram's series: packaged levels have theirs at once, others from their first use."""

    def __init__(self, histogram: Histogram) -> None:
        super().__init__({name: histogram.labels(name) for name in LEVEL_NAMES})
        self._histogram = histogram

    def __missing__(self, level: str) -> Histogram:
        self[level] = self._histogram.labels(level)
        return self[level]


class _Lean(Collector):
    """A registry without creation times of series, because nobody reads them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric
