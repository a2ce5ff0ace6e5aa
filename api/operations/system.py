"""Health, and what the policies are and say."""

from http import HTTPStatus

from api.auth import Access
from api.operations.base import Operation, Reply, ok
from api.routes import policies, system
from api.schemas import ExplainBody
from paddock.contract.system import Explanation, Health, Levels, Readiness

_HEALTH = "Health"
_POLICIES = "Policies"

OPERATIONS = (
    Operation(
        "GET",
        "/healthz",
        system.healthz,
        Access.OPEN,
        id="healthz",
        tag=_HEALTH,
        summary="Is the process alive?",
        replies=ok("It is.", Health),
    ),
    Operation(
        "GET",
        "/readyz",
        system.readyz,
        Access.OPEN,
        id="readyz",
        tag=_HEALTH,
        summary="Can sessions be created?",
        replies={
            HTTPStatus.OK: Reply("They can.", Readiness),
            HTTPStatus.SERVICE_UNAVAILABLE: Reply("A check says why not.", Readiness),
        },
    ),
    Operation(
        "GET",
        "/metrics",
        system.metrics,
        Access.METRICS,
        id="metrics",
        tag=_HEALTH,
        summary="Read the metrics",
        replies=ok("Prometheus' text format.", media_type="text/plain"),
    ),
    Operation(
        "GET",
        "/api/policies",
        policies.list_all,
        Access.READ_ALL,
        id="list_policies",
        tag=_POLICIES,
        summary="List the permission levels",
        replies=ok("The levels.", Levels),
    ),
    Operation(
        "POST",
        "/api/policies/explain",
        policies.explain,
        Access.READ,
        body=ExplainBody,
        id="explain_policy",
        tag=_POLICIES,
        summary="Ask what would be allowed",
        replies=ok("The verdict.", Explanation),
        errors=("permission_denied", "not_found"),
        examples={
            "command": {"level": "low", "command": "curl example.org"},
            "argv": {"level": "medium", "argv": ["cat", "../etc/passwd"], "cwd": "src"},
            "path": {"level": "low", "path": "/etc/passwd"},
        },
    ),
)
