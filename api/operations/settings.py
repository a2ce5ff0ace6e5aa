"""A session's settings: its permission level, its time-outs, the location of its workspace."""

from api.shape import stops
from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import SESSION, operation
from api.views.sessions import settings
from orchestrator.sessions.sessions import Sessions
from orchestrator.state.requests import NewTimeouts
from paddock.contract.session_requests import SettingsBody
from paddock.contract.sessions import SessionSettings


@operation(
    "GET",
    SESSION + "/settings",
    Access.READ,
    tag="Sessions",
    summary="Show a session's settings",
    answers="The settings.",
)
async def show_settings(context: Context) -> SessionSettings:
    """The current settings."""
    return settings(context.session())


@operation(
    "PUT",
    SESSION + "/settings",
    Access.MANAGE,
    tag="Sessions",
    summary="Change a session's permission level or time-outs",
    answers="The new settings.",
    errors=(
        "session_terminated",
        "invalid_transition",
        "engine_unavailable",
        "cluster_unavailable",
        "sandbox_unavailable",
    ),
    examples={
        "level": {"settings": {"permission_level": "high"}},
        "times": {"settings": {"idle_timeout": 600, "wall_timeout": 7200}},
        "longer": {"settings": {"keep_alive": 3600}},
    },
    stops=stops.by_settings,
)
async def change_settings(
    context: Context, sessions: Sessions, body: SettingsBody
) -> SessionSettings:
    """Changes the permission level, the time-outs, or both; they apply when this returns.

    Nothing else can be changed: other members, and another `workspace` than the session's, are
    refused. The answer's `deadlines` say when the session ends now; the change is an activity, with
    which its idle time begins anew. A session that is due by the new time-outs ends at once (with
    `idle_action: "suspend"` it is suspended, if it was idle).

    If a lower level can't be recorded now, the answer is 503 `audit_unavailable`, but the session
    is lowered all the same: running commands are ended, the session has the lower level and accepts
    no work, and the record follows as soon as possible. To continue working in it, set the level
    again afterwards.
    """
    session, wanted = context.session(), body.settings
    times = NewTimeouts(*wanted.times)
    if wanted.sets_time:
        sessions.changes.check_timeouts(context.principal, session, times)
    await context.work.complete(
        sessions.changes.set_level(
            context.principal, session, wanted.permission_level, wanted.workspace.given
        )
    )
    if wanted.sets_time:
        await context.work.complete(
            sessions.changes.set_timeouts(context.principal, session, times)
        )
    return settings(session)
