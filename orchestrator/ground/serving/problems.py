"""Problem documents (RFC 9457), which report errors."""

from http import HTTPStatus
from typing import Any

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.log_context import cut_known

STATUSES = {
    "validation_error": HTTPStatus.BAD_REQUEST,
    "unauthorized": HTTPStatus.UNAUTHORIZED,
    "permission_denied": HTTPStatus.FORBIDDEN,
    "not_found": HTTPStatus.NOT_FOUND,
    "method_not_allowed": HTTPStatus.METHOD_NOT_ALLOWED,
    "conflict": HTTPStatus.CONFLICT,
    "invalid_transition": HTTPStatus.CONFLICT,
    "busy": HTTPStatus.CONFLICT,
    "max_refinements_exceeded": HTTPStatus.CONFLICT,
    "session_terminated": HTTPStatus.GONE,
    "precondition_failed": HTTPStatus.PRECONDITION_FAILED,
    "range_not_satisfiable": HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    "too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "misdirected_request": HTTPStatus.MISDIRECTED_REQUEST,
    "budget_exceeded": HTTPStatus.TOO_MANY_REQUESTS,
    "rate_limited": HTTPStatus.TOO_MANY_REQUESTS,
    "sandbox_unavailable": HTTPStatus.BAD_GATEWAY,
    "capacity_exhausted": HTTPStatus.SERVICE_UNAVAILABLE,
    "audit_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "engine_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "cluster_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "sign_in_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "node_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "internal_error": HTTPStatus.INTERNAL_SERVER_ERROR,
}

_PHRASES = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Content Too Large",
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE: "Range Not Satisfiable",
}


def title(status: HTTPStatus) -> str:
    """The status phrase; Python 3.13 changed those for 413 and 416."""
    return _PHRASES.get(status) or status.phrase


def document(
    error: PaddockError, request_id: str, status: HTTPStatus | None = None
) -> dict[str, Any]:
    """The problem document: `{type, title, status, code, detail, request_id, …}`.

    Secrets that the request's context knows are removed. `status` instead of its code's.
    """
    status = status or STATUSES.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
    return {
        **{name: _cut(value) for name, value in error.fields.items()},
        "type": "about:blank",
        "title": title(status),
        "status": status.value,
        "code": error.code,
        "detail": cut_known(error.detail),
        "request_id": request_id,
    }


def _cut(value: Any) -> Any:
    return cut_known(value) if isinstance(value, str) else value
