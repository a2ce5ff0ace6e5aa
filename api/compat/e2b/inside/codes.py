"""Errors as Connect has them: a code, its HTTP status, and the message. Pure, but for responses."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from api.compat.e2b.failure import message
from orchestrator.ground.errors import (
    ConflictError,
    NotFoundError,
    PaddockError,
    SandboxUnavailableError,
)

_STATUSES = {
    "canceled": 499,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "unimplemented": 501,
    "unavailable": 503,
    "unauthenticated": 401,
    "internal": 500,
}
_CODES: Mapping[str, str] = {
    "validation_error": "invalid_argument",
    "unauthorized": "unauthenticated",
    "permission_denied": "permission_denied",
    "not_found": "not_found",
    "method_not_allowed": "unimplemented",
    "conflict": "invalid_argument",
    "invalid_transition": "failed_precondition",
    "busy": "resource_exhausted",
    "session_terminated": "unavailable",
    "budget_exceeded": "resource_exhausted",
    "rate_limited": "resource_exhausted",
    "too_large": "resource_exhausted",
    "capacity_exhausted": "resource_exhausted",
    "sandbox_unavailable": "unavailable",
    "engine_unavailable": "unavailable",
    "cluster_unavailable": "unavailable",
    "sign_in_unavailable": "unavailable",
    "node_unavailable": "unavailable",
    "audit_unavailable": "unavailable",
    "misdirected_request": "invalid_argument",
    "precondition_failed": "failed_precondition",
    "range_not_satisfiable": "invalid_argument",
}


class ExistsError(ConflictError):
    """There is something at the path already."""


class DeadlineError(PaddockError):
    """The time that the caller gave is over."""

    code = "deadline_exceeded"


class GoneError(SandboxUnavailableError):
    """The sandbox has ended, or is paused. The SDKs know it by the words `was not found`."""

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(f"The sandbox {sandbox_id[:128]} was not found")


class NoProcessError(NotFoundError):
    """No process of that number or tag runs."""


def code_of(error: PaddockError) -> str:
    """The code of an error."""
    if isinstance(error, ExistsError):
        return "already_exists"
    if isinstance(error, DeadlineError):
        return "deadline_exceeded"
    return _CODES.get(error.code, "internal")


def members(error: PaddockError) -> dict[str, Any]:
    """The error as a response or the end of a stream has it."""
    return {"code": code_of(error), "message": message(error)}


def failure(error: PaddockError, request_id: str) -> web.Response:
    """The response to a call that failed."""
    return web.json_response(members(error), status=_STATUSES[code_of(error)])
