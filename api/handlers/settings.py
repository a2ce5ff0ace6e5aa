"""A session's settings: its permission level, and where its workspace is."""

from api import stops
from api.access import Access
from api.context import Context
from api.operation import SESSION, operation
from api.views.sessions import settings
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
    """The settings as they are."""
    return settings(context.session())


@operation(
    "PUT",
    SESSION + "/settings",
    Access.MANAGE,
    tag="Sessions",
    summary="Change a session's permission level",
    answers="The settings as they are now.",
    errors=(
        "session_terminated",
        "invalid_transition",
        "engine_unavailable",
        "sandbox_unavailable",
    ),
    examples={"level": {"settings": {"permission_level": "high"}}},
    stops=stops.lowers_level,
)
async def change_settings(context: Context, body: SettingsBody) -> SessionSettings:
    """Changes the permission level; the new one holds when this returns.

    Where that a session is lowered can't be put on record now, the answer is 503
    `audit_unavailable`, and it is lowered all the same: what ran is ended, the session has the
    lower level and takes no work, and the record follows as soon as it can. To work in it again,
    set the level again then.
    """
    session = context.session()
    await context.work.complete(
        context.plane.sessions.change_settings(
            context.principal, session, body.permission_level, body.ignored
        )
    )
    return settings(session)
