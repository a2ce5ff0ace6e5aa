"""Checks responses against the API's declarations: status, code, headers, and every member."""

import json
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from aiohttp import ClientResponse
from pydantic import BaseModel, ValidationError

from api.catalog import OPERATIONS
from api.openapi.problems import MEDIA_TYPE
from api.shape.answers import JSON, NOTHING
from api.shape.operation import Operation
from orchestrator.ground.serving.problems import STATUSES
from paddock.contract.problem import Problem
from paddock.contract.words import ID_PATTERN

_PARAMETERS = {
    "session_id": ID_PATTERN,
    "command_id": r"[^/]+",
    "terminal_id": r"[^/]+",
    "approval_id": r"[^/]+",
    "name": r"[^/]+",
    "entry_id": r"[^/]+",
    "hook_id": r"[^/]+",
    "delivery_id": r"[^/]+",
    "port": r"[^/]+",
    "number": r"[^/]+",
}
# Headers that say what is not always known.
_MAY_LACK = {"X-Paddock-Modified", "ETag"}
# Refused before an operation is found.
_WITHOUT_OPERATION = {"misdirected_request", "not_found", "method_not_allowed", "validation_error"}


def find_operation(method: str, path: str) -> Operation | None:
    """The operation that answers a request."""
    for operation in OPERATIONS:
        pattern = re.sub(r"{(\w+)}", lambda name: _PARAMETERS[name[1]], operation.path)
        if operation.method == method and re.fullmatch(pattern, path):
            return operation
    return None


async def check_response(response: ClientResponse) -> None:
    """Fails if a response differs from its operation's declaration. Streams are left unread."""
    operation = find_operation(response.method, response.url.raw_path)
    assert "X-Request-Id" in response.headers
    if response.method == "HEAD":
        assert operation is not None
        assert await response.read() == b""
    elif response.content_type == MEDIA_TYPE:
        _check_problem(operation, response.status, json.loads(await response.read()))
    elif operation is not None:
        reply = operation.replies.get(HTTPStatus(response.status))
        assert reply is not None, f"{operation.id} is not said to answer {response.status}"
        for name in set(reply.headers) - _MAY_LACK:
            assert name in response.headers, f"{operation.id} lacks {name}"
        if reply.media_type == NOTHING:
            assert await response.read() == b""
        elif response.content_type == JSON:
            _check_any(reply.models, json.loads(await response.read()))
        else:
            assert response.content_type in {reply.media_type, reply.events and "text/event-stream"}


def check_event(response: ClientResponse, name: str, data: Any) -> None:
    """Fails if an event of a stream differs from its operation's declaration."""
    operation = find_operation(response.method, response.url.raw_path)
    assert operation is not None
    events = operation.replies[HTTPStatus.OK].events
    assert events is not None, operation.id
    model = events.kinds.get(name) or events.kinds[""]
    model.model_validate(data)


def _check_problem(operation: Operation | None, status: int, body: Any) -> None:
    problem = Problem.model_validate(body)
    assert STATUSES[problem.code] == problem.status == status
    codes = _WITHOUT_OPERATION if operation is None else operation.codes
    name = operation.id if operation else "no operation"
    assert problem.code in codes, f"{name} is not said to fail with {problem.code}"


def _check_any(models: Sequence[type[BaseModel]], body: Any) -> None:
    failures = []
    for model in models:
        try:
            model.model_validate(body)
        except ValidationError as error:
            failures.append(str(error))
        else:
            return
    raise AssertionError("\n".join(failures))
