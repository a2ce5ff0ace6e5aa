"""Makes responses of errors."""

import json
import math
from http import HTTPStatus
from typing import Any

from aiohttp import web

from orchestrator.ground.errors import PaddockError, ValidationError
from orchestrator.ground.serving.failures import failed
from orchestrator.ground.serving.problems import document

_CODES = {
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too_large",
}
_DETAILS = {
    "not_found": "there is nothing at this path",
    "method_not_allowed": "this path does not support this method",
    "too_large": "the body is over the limit",
}


def describe(error: Exception) -> PaddockError:
    """What a client may learn about an error; unexpected errors are logged with a traceback."""
    if isinstance(error, web.HTTPException):
        return _from_http(error)
    if isinstance(error, web.RequestPayloadError):
        return ValidationError("the body did not arrive whole")
    return failed(error)


def problem(error: PaddockError, request_id: str, status: HTTPStatus | None = None) -> web.Response:
    """The response that carries the problem document; `status` instead of its code's."""
    body = document(error, request_id, status)
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
    """An error that aiohttp itself raised."""

    def __init__(self, code: str, detail: str, **fields: Any) -> None:
        super().__init__(detail, **fields)
        self.code = code


def _from_http(error: web.HTTPException) -> PaddockError:
    code = _CODES.get(HTTPStatus(error.status), "validation_error")
    detail = _DETAILS.get(code, "the request can't be understood")
    if isinstance(error, web.HTTPMethodNotAllowed):
        return _HttpError(code, detail, allow=sorted(error.allowed_methods))
    return _HttpError(code, detail)
