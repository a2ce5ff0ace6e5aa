"""What the table of operations says of each: enough to serve it and to describe it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from aiohttp import web

from api.auth import ROLES, Access
from api.queries import Query
from api.schemas import Body
from orchestrator.keys import Role
from paddock.contract.base import Model

Handler = Callable[..., Awaitable[web.StreamResponse]]

SESSIONS = "/api/sessions"
SESSION = "/api/sessions/{session_id}"

JSON = "application/json"
BYTES = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Events:
    """A stream of Server-Sent Events.

    `kinds` are the events by name, with what their `data` is; an empty name stands for
    all others. `position` says what their ids count, where a client can resume.
    """

    kinds: Mapping[str, type[Model]]
    position: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A success: what it means and what it carries.

    Where there are both `model` and `events`, the client's `Accept` decides.
    """

    description: str
    model: type[Model] | None = None
    media_type: str = JSON
    events: Events | None = None
    headers: tuple[str, ...] = ()
    # Other objects that it may be instead.
    others: tuple[type[Model], ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    `handler` takes the call, and `body` and `query` where they have a model; its docstring
    describes the operation. `errors` are the codes that are its own, besides those that
    follow from its form. `upload`: the body is bytes, which the handler reads itself. `stops`
    tells, from the call and its body, whether the request stops something: then it is not counted.
    """

    method: str
    path: str
    handler: Handler
    access: Access
    body: type[Body] | None = None
    query: type[Query] | None = None
    upload: bool = False
    stops: Callable[..., bool] | None = None
    id: str = field(kw_only=True)
    tag: str = field(kw_only=True)
    summary: str = field(kw_only=True)
    replies: Mapping[HTTPStatus, Reply] = field(kw_only=True)
    errors: tuple[str, ...] = field(kw_only=True, default=())
    examples: Mapping[str, Any] = field(kw_only=True, default_factory=dict)

    @property
    def codes(self) -> frozenset[str]:
        """Every code that its errors may have."""
        codes = {"internal_error", "misdirected_request", "validation_error", *self.errors}
        if self.access is not Access.OPEN:
            codes |= {"unauthorized", "audit_unavailable", "rate_limited"}
        if ROLES[self.access] != frozenset(Role):
            codes.add("permission_denied")
        if self.body is not None:
            codes.add("too_large")
        if "{session_id}" in self.path:
            codes.add("not_found")
        if "session_terminated" in codes:
            codes.add("budget_exceeded")  # what else may have ended it
            codes.add("capacity_exhausted")  # for want of room to record what is asked for
        return frozenset(codes)

    @property
    def resumable(self) -> bool:
        """Whether its events go on after `Last-Event-ID`."""
        return self.method == "GET" and any(reply.events for reply in self.replies.values())


def ok(description: str, model: type[Model] | None = None, **more: Any) -> dict[HTTPStatus, Reply]:
    """The replies of an operation that only ever answers 200."""
    return {HTTPStatus.OK: Reply(description, model, **more)}
