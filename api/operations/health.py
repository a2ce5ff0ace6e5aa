"""Health and metrics."""

from api.shape.access import Access
from api.shape.answers import Text, Unready
from api.shape.context import Context
from api.shape.operation import operation
from orchestrator.ground import check as base
from orchestrator.ground.check import healthy
from orchestrator.ground.metrics import CONTENT_TYPE, Metrics
from orchestrator.operate.checks.readiness import Readiness as ReadinessService
from paddock.contract.system import Check, Health, Readiness


@operation(
    "GET",
    "/healthz",
    Access.OPEN,
    tag="Health",
    summary="Check that the process is alive",
    answers="It is.",
)
async def healthz(context: Context) -> Health:
    """The process serves requests."""
    return Health(status="ok")


@operation(
    "GET",
    "/readyz",
    Access.OPEN,
    tag="Health",
    summary="Check that sessions can be created",
    answers={200: "Sessions can be created.", 503: "A check failed."},
)
async def readyz(context: Context, ready: ReadinessService) -> Readiness | Unready[Readiness]:
    """Whether sessions can be created: 503 if something that they need is missing."""
    found = await ready.checks()
    checks = {check.name: _view(check) for check in found}
    if healthy(found):
        return Readiness(status="ready", checks=checks)
    return Unready(Readiness(status="not ready", checks=checks))


def _view(check: base.Check) -> Check:
    return Check(ok=check.ok, status=check.status.value, detail=check.detail, remedy=check.remedy)


@operation(
    "GET",
    "/metrics",
    Access.METRICS,
    tag="Health",
    summary="Read the metrics",
    answers="The Prometheus text format.",
)
async def metrics(context: Context, metrics: Metrics) -> Text:
    """Metrics for Prometheus: counters and histograms since the start, and current values."""
    return Text(metrics.render(), CONTENT_TYPE)
