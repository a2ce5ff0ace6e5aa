"""Errors as E2B's SDKs read them."""

from http import HTTPStatus
from typing import Any

from aiohttp import web

from api.compat.replies import explained, retry_headers, sentence
from orchestrator.ground.errors import PaddockError
from orchestrator.ground.serving.problems import document

# Where the SDKs expect another status: a session that has ended is not found.
_STATUSES = {"session_terminated": HTTPStatus.NOT_FOUND}
# The SDKs repeat requests that got 429, 502, 503 or 504. This one would get it again.
_FINAL = frozenset({"budget_exceeded"})


def failure(error: PaddockError, request_id: str) -> web.Response:
    """The response to an error."""
    body = error_body(error)
    headers = retry_headers(error)
    if error.code in _FINAL:
        headers["Should-Retry"] = "false"
    return web.json_response(body, status=body["code"], headers=headers)


def error_body(error: PaddockError) -> dict[str, Any]:
    """`{"code": STATUS, "message": …}`; the message has the rule and the remedy, if any."""
    status = _STATUSES.get(error.code) or HTTPStatus(document(error, "")["status"])
    return {"code": status.value, "message": message(error)}


def message(error: PaddockError) -> str:
    """What was refused or failed, by which rule, and what to do instead."""
    return sentence(explained(error, ""))
