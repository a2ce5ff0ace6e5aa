"""Every operation of the API, in one table: the routes are made from it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web

from api import schemas
from api.auth import Access
from api.routes import audit, commands, events, files, processes, sessions, settings, system

Handler = Callable[..., Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    `handler` takes the call, and `body` and `query` where they have a model. `status` is
    that of its success.
    """

    method: str
    path: str
    handler: Handler
    access: Access = Access.HANDLE
    body: type[schemas.Body] | None = None
    query: type[schemas.Query] | None = None
    status: HTTPStatus = HTTPStatus.OK


_SESSIONS = "/api/sessions"
_SESSION = "/api/sessions/{session_id}"
_PROCESS = _SESSION + "/processes/{command_id}"
_FILES = _SESSION + "/files"
_AUDIT = _SESSION + "/audit"

OPERATIONS = (
    Operation("GET", "/healthz", system.healthz, Access.OPEN),
    Operation("GET", "/readyz", system.readyz, Access.OPEN),
    Operation("GET", "/api/policies", system.policies, Access.KEY),
    Operation(
        "POST",
        _SESSIONS,
        sessions.create,
        Access.KEY,
        body=schemas.SessionBody,
        status=HTTPStatus.CREATED,
    ),
    Operation("GET", _SESSIONS, sessions.list_all, Access.KEY, query=schemas.SessionsQuery),
    Operation("GET", _SESSION, sessions.inspect),
    Operation("PUT", _SESSION, sessions.ensure, Access.KEY, body=schemas.NamedSessionBody),
    Operation("DELETE", _SESSION, sessions.close, Access.KEY, query=schemas.CloseQuery),
    Operation("POST", _SESSION + "/pause", sessions.pause, Access.KEY, body=schemas.NoBody),
    Operation("POST", _SESSION + "/resume", sessions.resume, Access.KEY, body=schemas.NoBody),
    Operation("POST", _SESSION + "/complete", sessions.complete, Access.KEY, body=schemas.NoBody),
    Operation("POST", _SESSION + "/abort", sessions.abort, Access.KEY, body=schemas.NoBody),
    Operation("POST", _SESSION + "/interrupt", sessions.interrupt, body=schemas.NoBody),
    Operation(
        "POST", _SESSION + "/handle", sessions.rotate_handle, Access.KEY, body=schemas.NoBody
    ),
    Operation("GET", _SESSION + "/settings", settings.show),
    Operation(
        "PUT", _SESSION + "/settings", settings.change, Access.KEY, body=schemas.SettingsBody
    ),
    Operation("POST", _SESSION + "/exec", commands.execute, body=schemas.ExecBody),
    Operation("GET", _SESSION + "/processes", processes.list_all),
    Operation("GET", _PROCESS, processes.read, query=schemas.OutputQuery),
    Operation("POST", _PROCESS + "/stdin", processes.feed, body=schemas.StdinBody),
    Operation("POST", _PROCESS + "/signal", processes.signal, body=schemas.SignalBody),
    Operation("GET", _FILES, files.read, query=schemas.PathQuery),
    Operation("PUT", _FILES, files.write, query=schemas.WriteQuery),
    Operation("DELETE", _FILES, files.delete, query=schemas.PathQuery),
    Operation("GET", _FILES + "/list", files.list_directory, query=schemas.ListQuery),
    Operation(
        "POST",
        _FILES + "/mkdir",
        files.make_directory,
        body=schemas.PathBody,
        status=HTTPStatus.CREATED,
    ),
    Operation("POST", _FILES + "/move", files.move, body=schemas.MoveBody),
    Operation("GET", _SESSION + "/events", events.of_session, query=schemas.EventsQuery),
    Operation("GET", "/api/events", events.of_all, Access.KEY, query=schemas.EventsQuery),
    Operation("GET", _AUDIT, audit.search, query=schemas.AuditQuery),
    Operation("GET", _AUDIT + "/stats", audit.stats),
    Operation("GET", _AUDIT + "/export", audit.export, query=schemas.ExportQuery),
    Operation("GET", _AUDIT + "/verify", audit.verify, query=schemas.VerifyQuery),
)
