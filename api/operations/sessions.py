"""Sessions: their life and their settings."""

from http import HTTPStatus

from api import stops
from api.auth import Access
from api.operations.base import SESSION, SESSIONS, Operation, Reply, ok
from api.queries import CloseQuery, SessionsQuery
from api.routes import sessions, settings
from api.schemas import NamedSessionBody, NoBody, SessionBody, SettingsBody
from paddock.contract.budget import Budget
from paddock.contract.inspection import InspectedSession
from paddock.contract.sessions import (
    CreatedSession,
    Handle,
    PurgedWorkspace,
    Session,
    Sessions,
    SessionSettings,
)

_TAG = "Sessions"
_CREATING = ("conflict", "capacity_exhausted", "engine_unavailable", "sandbox_unavailable")
_FREEZING = ("invalid_transition", "engine_unavailable", "sandbox_unavailable")
_SMALLEST: dict[str, object] = {}
_LABELLED = {
    "permission_level": "low",
    "labels": {"team": "search"},
    "limits": {"memory_bytes": 134217728},
    "idle_timeout": 600,
}
_SECRET = {"permission_level": "high", "secrets": {"SECRET_TOKEN": "tok_2b1f9c07d4e8"}}
_LIMITED = {
    "permission_level": "low",
    "wall_timeout": 86400,
    "budget": {"commands": 100, "cpu_seconds": 60},
}
_CREATED = Reply("The new session, with its handle.", CreatedSession, headers=("Location",))

OPERATIONS = (
    Operation(
        "POST",
        SESSIONS,
        sessions.create,
        Access.MANAGE,
        body=SessionBody,
        id="create_session",
        tag=_TAG,
        summary="Create a session",
        replies={HTTPStatus.CREATED: _CREATED},
        errors=_CREATING,
        examples={
            "smallest": _SMALLEST,
            "labelled": _LABELLED,
            "limited": _LIMITED,
            "secret": _SECRET,
        },
    ),
    Operation(
        "GET",
        SESSIONS,
        sessions.list_all,
        Access.READ_ALL,
        query=SessionsQuery,
        id="list_sessions",
        tag=_TAG,
        summary="List sessions",
        replies=ok("A page of sessions.", Sessions),
    ),
    Operation(
        "GET",
        SESSION,
        sessions.inspect,
        Access.READ,
        id="inspect_session",
        tag=_TAG,
        summary="Inspect a session",
        replies=ok("The session.", InspectedSession),
    ),
    Operation(
        "GET",
        SESSION + "/budget",
        sessions.show_budget,
        Access.READ,
        id="show_budget",
        tag=_TAG,
        summary="Show a session's budget",
        replies=ok("The budget.", Budget),
    ),
    Operation(
        "PUT",
        SESSION,
        sessions.ensure,
        Access.MANAGE,
        body=NamedSessionBody,
        id="ensure_session",
        tag=_TAG,
        summary="Get or create a session",
        replies={
            HTTPStatus.OK: Reply("The session as it is.", Session),
            HTTPStatus.CREATED: _CREATED,
        },
        errors=_CREATING,
        examples={
            "smallest": _SMALLEST,
            "labelled": _LABELLED,
            "limited": _LIMITED,
            "secret": _SECRET,
        },
    ),
    Operation(
        "DELETE",
        SESSION,
        sessions.close,
        Access.MANAGE,
        query=CloseQuery,
        stops=stops.ends_session,
        id="close_session",
        tag=_TAG,
        summary="Close a session",
        replies=ok("The session as it ended.", Session, others=(PurgedWorkspace,)),
        errors=("conflict",),
    ),
    Operation(
        "POST",
        SESSION + "/pause",
        sessions.pause,
        Access.MANAGE,
        body=NoBody,
        stops=stops.pauses_session,
        id="pause_session",
        tag=_TAG,
        summary="Pause a session",
        replies=ok("The paused session.", Session),
        errors=_FREEZING,
    ),
    Operation(
        "POST",
        SESSION + "/resume",
        sessions.resume,
        Access.MANAGE,
        body=NoBody,
        id="resume_session",
        tag=_TAG,
        summary="Resume a session",
        replies=ok("The session, active again.", Session),
        errors=(*_FREEZING, "capacity_exhausted"),
    ),
    Operation(
        "POST",
        SESSION + "/complete",
        sessions.complete,
        Access.MANAGE,
        body=NoBody,
        stops=stops.ends_session,
        id="complete_session",
        tag=_TAG,
        summary="End a session as a success",
        replies=ok("The session as it ended.", Session),
        errors=("invalid_transition",),
    ),
    Operation(
        "POST",
        SESSION + "/abort",
        sessions.abort,
        Access.MANAGE,
        body=NoBody,
        stops=stops.ends_session,
        id="abort_session",
        tag=_TAG,
        summary="End a session as a failure",
        replies=ok("The session as it ended.", Session),
        errors=("invalid_transition",),
    ),
    Operation(
        "POST",
        SESSION + "/interrupt",
        sessions.interrupt,
        Access.WORK,
        body=NoBody,
        stops=stops.interrupts,
        id="interrupt_session",
        tag=_TAG,
        summary="End what runs in a session",
        replies=ok("The session, which goes on.", Session),
        errors=("session_terminated", "invalid_transition", "conflict", "sandbox_unavailable"),
    ),
    Operation(
        "POST",
        SESSION + "/handle",
        sessions.rotate_handle,
        Access.MANAGE,
        body=NoBody,
        id="rotate_handle",
        tag=_TAG,
        summary="Replace a session's handle",
        replies=ok("The new handle.", Handle),
        errors=("session_terminated",),
    ),
    Operation(
        "GET",
        SESSION + "/settings",
        settings.show,
        Access.READ,
        id="show_settings",
        tag=_TAG,
        summary="Show a session's settings",
        replies=ok("The settings.", SessionSettings),
    ),
    Operation(
        "PUT",
        SESSION + "/settings",
        settings.change,
        Access.MANAGE,
        body=SettingsBody,
        stops=stops.lowers_level,
        id="change_settings",
        tag=_TAG,
        summary="Change a session's permission level",
        replies=ok("The settings as they are now.", SessionSettings),
        errors=(
            "session_terminated",
            "invalid_transition",
            "engine_unavailable",
            "sandbox_unavailable",
        ),
        examples={"level": {"settings": {"permission_level": "high"}}},
    ),
)
