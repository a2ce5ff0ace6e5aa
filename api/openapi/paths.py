"""Describes the operations in the document."""

import json
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from api.openapi.problems import problem_responses
from api.shape.access import ROLES, Access
from api.shape.answers import BYTES, JSON, NOTHING
from api.shape.operation import Events, Frames, Operation, Reply
from api.shape.schemas import Schema, query_parameters, ref
from orchestrator.rules.access.keys import Role
from paddock.contract.base import Model, model_example
from paddock.contract.requests import NoBody

SSE = "text/event-stream"
_BINARY = {"type": "string", "format": "binary"}


def paths(operations: Iterable[Operation]) -> Schema:
    """The Paths Object."""
    found: Schema = {}
    for operation in operations:
        item = found.setdefault(operation.path, _path_item(operation.path))
        item[operation.method.lower()] = _operation(operation)
    return found


def _path_item(path: str) -> Schema:
    found = re.findall(r"(\w+)/{(\w+)}", path)
    if not found:
        return {}
    # A name is that of one of the collection before it.
    names = [f"{of}_name" if name == "name" else name for of, name in found]
    return {"parameters": [{"$ref": f"#/components/parameters/{name}"} for name in names]}


def _operation(operation: Operation) -> Schema:
    described: Schema = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.description,
        "security": _security(operation.access),
        "x-roles": sorted(ROLES[operation.access]),
        **({} if operation.scope is None else {"x-scope": operation.scope}),
    }
    parameters = [] if operation.query is None else query_parameters(operation.query)
    if operation.resumable:
        parameters.append({"$ref": "#/components/parameters/Last-Event-ID"})
    parameters += [{"$ref": f"#/components/parameters/{name}"} for name in operation.headers]
    if parameters:
        described["parameters"] = parameters
    if body := _request_body(operation):
        described["requestBody"] = body
    described["responses"] = _responses(operation)
    if operation.frames is not None:
        described["x-websocket"] = _websocket(operation.frames, operation.replies)
    return described


def _websocket(frames: Frames, replies: Mapping[HTTPStatus, Reply]) -> Schema:
    """The frames after the handshake, for which OpenAPI has no words."""
    data = {} if frames.data is None else {"binary": {"description": frames.data}}
    server_text = _schema(replies[HTTPStatus.SWITCHING_PROTOCOLS])
    return {
        "subprotocols": {
            frames.protocol: "The one that the server picks; it must be offered with a ticket.",
            "ticket.<ticket>": "Instead of a credential: a ticket of `POST /api/tickets`.",
        },
        "client": {"text": {"schema": ref(frames.text)}, **data},
        "server": {"text": {"schema": server_text}, **data},
        "close": {str(code): text for code, text in frames.closes.items()},
    }


def _security(access: Access) -> list[Schema]:
    if access is Access.OPEN:
        return []
    return [{"key": []}, *([{"handle": []}] if Role.HANDLE in ROLES[access] else [])]


def _request_body(operation: Operation) -> Schema | None:
    if operation.upload:
        return {
            "description": operation.upload_as[1],
            "content": {operation.upload_as[0]: {"schema": _BINARY}},
        }
    if operation.body is None:
        return None
    content: Schema = {"schema": ref(operation.body)}
    if operation.examples:
        content["examples"] = {name: {"value": value} for name, value in operation.examples.items()}
    return {
        "description": f"At most {operation.body.MOST_BYTES // 1024} KiB.",
        "required": not issubclass(operation.body, NoBody),
        "content": {JSON: content},
    }


def _responses(operation: Operation) -> Schema:
    responses = {
        str(status.value): _response(operation, reply)
        for status, reply in operation.replies.items()
    }
    for status, name in problem_responses(operation.codes).items():
        # A health answer has its own content where other operations have a problem document.
        responses.setdefault(status, {"$ref": f"#/components/responses/{name}"})
    return dict(sorted(responses.items()))


def _response(operation: Operation, reply: Reply) -> Schema:
    content: Schema = {}
    if reply.models:
        content[reply.media_type] = {"schema": _schema(reply)}
    elif reply.media_type not in (JSON, NOTHING):
        content[reply.media_type] = {"schema": _BINARY if reply.media_type == BYTES else _TEXT}
    if reply.events is not None:
        content[SSE] = _event_stream(reply.events)
    return {
        "description": reply.description,
        "headers": {
            name: {"$ref": f"#/components/headers/{name}"}
            for name in ("X-Request-Id", *reply.headers)
        },
        "content": content,
    }


_TEXT = {"type": "string"}


def _schema(reply: Reply) -> Schema:
    if reply.media_type != JSON:
        # One object per line.
        (model,) = reply.models
        kind = {"type": "string", "contentMediaType": reply.media_type}
        return kind | {"contentSchema": ref(model)}
    kinds = [ref(model) for model in reply.models]
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _event_stream(events: Events) -> Schema:
    """Server-Sent Events; the schema describes one event, before its `data` is parsed."""
    kinds = [_event(name, model) for name, model in events.kinds.items()]
    resumes = f"Its `id` is {events.position}, the position to resume at."
    if events.position is None:
        resumes = "It has no `id`: a client that connects again has missed what happened meanwhile."
    schema: Schema = {"description": f"One event. {resumes}"}
    schema |= kinds[0] if len(kinds) == 1 else {"oneOf": kinds}
    return {"schema": schema, "examples": {"stream": {"value": _sample(events)}}}


def _event(name: str, data: type[Model]) -> Schema:
    kind: Schema = {"const": name} if name else {"description": "The event's `operation`."}
    return {
        "title": name or data.__name__,
        "type": "object",
        "required": ["event", "data"],
        "properties": {
            "id": {"type": "string", "pattern": "^[0-9]+$"},
            "event": {"type": "string", **kind},
            "data": {
                "type": "string",
                "description": f"JSON on one line: `{data.__name__}`.",
                "contentMediaType": JSON,
                "contentSchema": ref(data),
            },
        },
    }


def _sample(events: Events) -> str:
    """A sample with one event of each kind, as sent."""
    lines = []
    for name, model in events.kinds.items():
        data = model_example(model)
        text = json.dumps(data, separators=(",", ":"))
        lines.append(f"event: {name or data['operation']}\ndata: {text}\n\n")
    return "".join(lines)
