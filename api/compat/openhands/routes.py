"""OpenHands' routes. The workspace's `host` is the address of the control plane with this path."""

from aiohttp import web

from api.compat.call import Call
from api.compat.openhands import bash, files, git
from api.compat.openhands.failures import failure
from api.compat.openhands.requests import credential
from api.compat.protocol import Protocol, Route
from api.compat.replies import json_reply
from api.shape.access import Access
from api.shape.version import VERSION
from orchestrator.ground.errors import SessionTerminatedError

_SESSION = "/compat/openhands/{session_id}"


async def _health(call: Call) -> web.Response:
    """Clients ask this without a credential, so it tells nothing of a session."""
    return json_reply({"status": "ok"})


async def _server_info(call: Call) -> web.Response:
    """What the server is."""
    session = call.context.session()
    if not session.live:
        raise SessionTerminatedError(f"the session is {session.status}")
    return json_reply({"title": "Paddock", "version": VERSION, "workspace": session.workspace_path})


PROTOCOL = Protocol(
    "openhands",
    _SESSION,
    (
        Route("GET", "/health", Access.OPEN, _health),
        Route("GET", "/alive", Access.OPEN, _health),
        Route("GET", "/server_info", Access.READ, _server_info),
        Route("POST", "/api/bash/start_bash_command", Access.WORK, bash.start),
        Route("GET", "/api/bash/bash_events/search", Access.READ, bash.search),
        Route(
            "POST", "/api/bash/bash_commands/{command_id}/stop", Access.WORK, bash.stop, stops=True
        ),
        Route("POST", "/api/file/upload", Access.WORK, files.upload),
        Route("GET", "/api/file/download", Access.WORK, files.download),
        Route("GET", "/api/git/changes", Access.WORK, git.changes),
        Route("GET", "/api/git/diff", Access.WORK, git.difference),
    ),
    credential,
    failure,
)
