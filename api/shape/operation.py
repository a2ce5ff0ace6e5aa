"""Declares operations: a decorator for the function that performs one.

The rest is read from the function: its name is the operation's id, its docstring the description,
and its annotations are the parameters and the answer.
"""

import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import ModuleType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from api.shape.access import Access, Glass
from api.shape.answers import (
    BYTES,
    JSON,
    NOTHING,
    Answer,
    Attached,
    Empty,
    EventStream,
    Exchange,
    Lines,
    Text,
    Upload,
)
from api.shape.byte_answers import Download, Packed, Printed, Recording
from paddock.contract.base import Model
from paddock.contract.requests import Body, Query
from paddock.contract.scopes import SCOPE_OF

SESSIONS = "/api/sessions"
SESSION = "/api/sessions/{session_id}"

# The codes of operations that work in a session's sandbox.
WORK_ERRORS = (
    "session_terminated",
    "invalid_transition",
    "conflict",
    "busy",
    "permission_denied",
    "sandbox_unavailable",
)

# The parameters that the request itself gives, besides those in the path.
_OF_REQUEST = frozenset({"context", "body", "query", "upload"})

_OF_FILE = "The file's bytes; an empty body creates an empty file."

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])


@dataclass(frozen=True, slots=True)
class Events:
    """A stream of Server-Sent Events.

    `kinds` maps event names to the type of their `data`; an empty name stands for all others.
    `position` describes what their ids count; None: they have none, and nobody can resume.
    """

    kinds: Mapping[str, type[Model]]
    position: str | None


@dataclass(frozen=True, slots=True)
class Reply:
    """A success: its meaning, and its content, which may be one of several models.

    If there are both models and events, the client's `Accept` decides.
    """

    description: str
    models: tuple[type[Model], ...] = ()
    media_type: str = JSON
    events: Events | None = None
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of a WebSocket, except the server's text frames, which are the answer's models.

    `text` is a client's text frame; `data` describes binary frames, in both directions, if there
    are any. `closes` says by code why the server closes it.
    """

    protocol: str
    text: type[Body]
    data: str | None
    closes: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path.

    `errors` are its own codes, in addition to those that follow from its form. `upload`: the body
    is bytes, which the function reads itself. `services` are the function's other parameters.
    `stops` determines from the context, the body and the services that it names whether the
    request stops something; such a request is not counted. `restores`: it needs the
    session's sandbox, so a suspended session gets one again first. `own_origin`: no page of
    another origin may call it. `frames`: it is a WebSocket. `headers`: those that it reads.
    `glass`: what it touches of the session in its path.
    """

    method: str
    path: str
    access: Access
    id: str
    tag: str
    summary: str
    description: str
    handler: Callable[..., Coroutine[Any, Any, Any]]
    # The path parameters that the function takes.
    parameters: tuple[str, ...]
    body: type[Body] | None
    query: type[Query] | None
    upload: bool
    # The media type of these bytes, and what they are.
    upload_as: tuple[str, str]
    services: Mapping[str, type[Any]]
    replies: Mapping[HTTPStatus, Reply]
    errors: tuple[str, ...]
    examples: Mapping[str, Any]
    stops: Callable[..., bool] | None
    stop_services: Mapping[str, type[Any]]
    restores: bool
    own_origin: bool
    frames: Frames | None
    headers: tuple[str, ...]
    glass: Glass

    @property
    def scope(self) -> str | None:
        """The scope that a key with scopes needs; None for what needs none."""
        return None if self.access in (Access.OPEN, Access.SELF) else SCOPE_OF[self.id]

    @property
    def socket(self) -> bool:
        """Whether it is a WebSocket, which pages open with a ticket."""
        return self.frames is not None

    @property
    def codes(self) -> frozenset[str]:
        """All error codes that it may return."""
        codes = {"internal_error", "misdirected_request", "validation_error", *self.errors}
        if self.access is not Access.OPEN:
            codes |= {"unauthorized", "audit_unavailable", "rate_limited"}
        if self.own_origin or self.access is not Access.OPEN:
            codes.add("permission_denied")
        if self.body is not None:
            codes |= {"too_large", "capacity_exhausted"}
        if "{session_id}" in self.path:
            codes |= {"not_found", "node_unavailable", "cluster_unavailable"}
        if self.restores:
            codes |= {"capacity_exhausted", "engine_unavailable", "sandbox_unavailable"}
        if "session_terminated" in codes:
            codes.add("budget_exceeded")  # the budget may have ended it, too
            codes.add("capacity_exhausted")  # there may be no room to record the request
        return frozenset(codes)

    @property
    def resumable(self) -> bool:
        """Whether its events can be resumed with `Last-Event-ID`."""
        return self.method == "GET" and any(
            reply.events is not None and reply.events.position is not None
            for reply in self.replies.values()
        )


def operation(
    method: str,
    path: str,
    access: Access,
    *,
    tag: str,
    summary: str,
    answers: str | Mapping[int, str],
    name: str | None = None,
    errors: tuple[str, ...] = (),
    examples: Mapping[str, Any] | None = None,
    events: Events | None = None,
    stops: Callable[..., bool] | None = None,
    restores: bool = False,
    own_origin: bool = False,
    frames: Frames | None = None,
    upload_as: tuple[str, str] = (BYTES, _OF_FILE),
    headers: tuple[str, ...] = (),
    glass: Glass = Glass.INSIDE,
) -> Callable[[F], F]:
    """Declares the function as an operation: `(context, …) -> answer`.

    Its parameters `body` and `query` are models of the contract, `upload` is the body's bytes,
    those in `path` are texts, and all others are services, which are found by their types.
    `answers` describes the answer, by status if there are several. `name` is the id if it can't be
    the function's name. `upload_as`: the media type of the upload, and what it is.
    """

    def declare(handler: F) -> F:
        signature = inspect.signature(handler)
        taken = _parameters(handler)
        handler.operation = Operation(  # type: ignore[attr-defined]
            method=method,
            path=path,
            access=access,
            id=name or handler.__name__,
            tag=tag,
            summary=summary,
            description=inspect.getdoc(handler) or "",
            handler=handler,
            parameters=tuple(each for each in taken if f"{{{each}}}" in path),
            body=taken.get("body"),
            query=taken.get("query"),
            upload=taken.get("upload") is Upload,
            upload_as=upload_as,
            services=_services(handler, path),
            replies=_replies(signature.return_annotation, answers, events),
            errors=errors,
            examples=examples or {},
            stops=stops,
            stop_services={} if stops is None else _services(stops, path),
            restores=restores,
            own_origin=own_origin,
            frames=frames,
            headers=headers,
            glass=glass,
        )
        return handler

    return declare


def operations_of(module: ModuleType) -> Iterator[Operation]:
    """The operations that a module declares, in order."""
    for value in vars(module).values():
        found = getattr(value, "operation", None)
        if isinstance(found, Operation) and value.__module__ == module.__name__:
            yield found


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function's parameters."""
    return {each.name: each.annotation for each in inspect.signature(function).parameters.values()}


def _services(function: Callable[..., Any], path: str) -> dict[str, type[Any]]:
    """The types of the parameters that are no part of a request."""
    return {
        name: kind
        for name, kind in _parameters(function).items()
        if name not in _OF_REQUEST and f"{{{name}}}" not in path
    }


def _replies(
    annotation: Any, answers: str | Mapping[int, str], events: Events | None
) -> dict[HTTPStatus, Reply]:
    """The replies that the return annotation declares, by status."""
    descriptions = {200: answers} if isinstance(answers, str) else answers
    found: dict[HTTPStatus, Reply] = {}
    for kind in _members(annotation):
        status, reply = _reply(kind, events)
        before = found.get(status)
        found[status] = Reply(
            descriptions[status] if len(descriptions) > 1 else next(iter(descriptions.values())),
            reply.models if before is None else before.models + reply.models,
            reply.media_type if before is None else before.media_type,
            reply.events or (before.events if before else None),
            reply.headers,
        )
    return found


def _reply(kind: Any, events: Events | None) -> tuple[HTTPStatus, Reply]:
    origin = get_origin(kind) or kind
    models = tuple(model for each in get_args(kind) for model in _members(each))
    if origin is EventStream:
        return HTTPStatus.OK, Reply("", events=events)
    if issubclass(origin, Empty):
        return origin.STATUS, Reply("", media_type=NOTHING, headers=origin.HEADERS)
    if issubclass(origin, Answer):
        return origin.STATUS, Reply("", models, headers=origin.HEADERS)
    if issubclass(origin, Download | Printed):
        return origin.STATUS, Reply("", media_type=origin.MEDIA, headers=origin.HEADERS)
    if issubclass(origin, Packed):
        return HTTPStatus.OK, Reply("", media_type=origin.MEDIA, headers=origin.HEADERS)
    if issubclass(origin, Attached | Exchange):
        return origin.STATUS, Reply("", models)
    if issubclass(origin, Text | Lines | Recording):
        return HTTPStatus.OK, Reply("", models, media_type=origin.MEDIA)
    return HTTPStatus.OK, Reply("", (kind,))


def _members(annotation: Any) -> tuple[Any, ...]:
    union = get_origin(annotation) in (Union, UnionType)
    return get_args(annotation) if union else (annotation,)
