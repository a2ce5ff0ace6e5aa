"""A session's settings: its permission level, and where its workspace is."""

from aiohttp import web

from api.call import Call, reply
from api.schemas import SettingsBody
from orchestrator.sessions.view import settings_view


async def show(call: Call) -> web.Response:
    """The settings as they are."""
    return reply(settings_view(call.session()))


async def change(call: Call, body: SettingsBody) -> web.Response:
    """Changes the permission level; the new one holds when this returns.

    Where that a session is lowered can't be put on record now, the answer is 503
    `audit_unavailable`, and it is lowered all the same: what ran is ended, the session has the
    lower level and takes no work, and the record follows as soon as it can. To work in it again,
    set the level again then.
    """
    session = call.session()
    await call.work.complete(
        call.plane.sessions.change_settings(
            call.principal, session, body.permission_level, body.ignored
        )
    )
    return reply(settings_view(session))
