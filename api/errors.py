"""Problem documents (RFC 9457): how what went wrong looks on the wire."""

import json
import logging
import math
from http import HTTPStatus
from typing import Any

from aiohttp import web

from orchestrator.errors import AuditUnavailableError, PaddockError, ValidationError
from orchestrator.log_context import cut_known
from orchestrator.store.database import StoreError

log = logging.getLogger(__name__)

STATUSES = {
    "validation_error": HTTPStatus.BAD_REQUEST,
    "unauthorized": HTTPStatus.UNAUTHORIZED,
    "permission_denied": HTTPStatus.FORBIDDEN,
    "not_found": HTTPStatus.NOT_FOUND,
    "method_not_allowed": HTTPStatus.METHOD_NOT_ALLOWED,
    "conflict": HTTPStatus.CONFLICT,
    "invalid_transition": HTTPStatus.CONFLICT,
    "busy": HTTPStatus.CONFLICT,
    "session_terminated": HTTPStatus.GONE,
    "too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "misdirected_request": HTTPStatus.MISDIRECTED_REQUEST,
    "budget_exceeded": HTTPStatus.TOO_MANY_REQUESTS,
    "rate_limited": HTTPStatus.TOO_MANY_REQUESTS,
    "sandbox_unavailable": HTTPStatus.BAD_GATEWAY,
    "capacity_exhausted": HTTPStatus.SERVICE_UNAVAILABLE,
    "audit_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "engine_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "internal_error": HTTPStatus.INTERNAL_SERVER_ERROR,
}
_CODES = {
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too_large",
}
_DETAILS = {
    "not_found": "there is nothing at this path",
    "method_not_allowed": "this path does not take this method",
    "too_large": "the body is over the limit",
}
_INTERNAL = "something failed inside the control plane; its log has the request id"


def describe(error: Exception) -> PaddockError:
    """What a client may know of an error; the unexpected is logged with its traceback."""
    if isinstance(error, PaddockError):
        return error
    if isinstance(error, web.HTTPException):
        return _from_http(error)
    if isinstance(error, ConnectionError | web.RequestPayloadError):
        return ValidationError("the body did not arrive whole")
    if isinstance(error, StoreError):
        log.error("the store failed: %s", error)
        return AuditUnavailableError("the audit store can't be read")
    log.error("a request failed", exc_info=error)
    return PaddockError(_INTERNAL)


def title(status: HTTPStatus) -> str:
    """A status in words, which Python 3.13 changed for this one."""
    too_large = status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return "Content Too Large" if too_large else status.phrase


def document(error: PaddockError, request_id: str) -> dict[str, Any]:
    """The problem document: `{type, title, status, code, detail, request_id, …}`.

    Secrets that the request's context knows are not in it.
    """
    status = STATUSES.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
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


def problem(error: PaddockError, request_id: str) -> web.Response:
    """The response that carries the problem document."""
    body = document(error, request_id)
    headers = {}
    if body["status"] == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="paddock"'
    if "retry_after" in error.fields:
        headers["Retry-After"] = str(math.ceil(error.fields["retry_after"]))
    if "allow" in error.fields:
        headers["Allow"] = ", ".join(error.fields["allow"])
    return web.Response(
        status=body["status"],
        text=json.dumps(body),
        content_type="application/problem+json",
        headers=headers,
    )


class _HttpError(PaddockError):
    """What aiohttp itself refused."""

    def __init__(self, code: str, detail: str, **fields: Any) -> None:
        super().__init__(detail, **fields)
        self.code = code


def _from_http(error: web.HTTPException) -> PaddockError:
    code = _CODES.get(HTTPStatus(error.status), "validation_error")
    detail = _DETAILS.get(code, "the request can't be understood")
    if isinstance(error, web.HTTPMethodNotAllowed):
        return _HttpError(code, detail, allow=sorted(error.allowed_methods))
    return _HttpError(code, detail)
