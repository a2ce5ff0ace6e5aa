"""SWE-ReX's routes. The client's `host` is the address of the control plane with this path."""

from typing import Any

from aiohttp import web

from api.compat.call import Call
from api.compat.protocol import Protocol, Route
from api.compat.replies import json_reply
from api.compat.swerex.commands import execute
from api.compat.swerex.failures import failure
from api.compat.swerex.files import read_file, upload, write_file
from api.compat.swerex.requests import answered_once, credential, of_session, session_of
from api.compat.swerex.shells import close, close_session, create_session, run_in_session
from api.shape.access import Access


async def _hello(call: Call) -> web.Response:
    return json_reply({"message": "hello world"})


async def _is_alive(call: Call) -> web.Response:
    session = session_of(call)
    status = str(session.status)
    message = "" if session.live else f"the session is {status}"
    return json_reply({"is_alive": session.live, "message": message})


async def _upload(call: Call) -> web.Response:
    return json_reply(await upload(call))


async def _nothing(call: Call) -> web.Response:
    return json_reply({"detail": "Not Found"}, 404)


def _post(path: str, work: Any, **more: Any) -> Route:
    return Route("POST", path, Access.WORK, answered_once(work), **more)


PROTOCOL = Protocol(
    "swerex",
    "/compat/swerex/{session_id}",
    (
        Route("GET", "", Access.READ, of_session(_hello)),
        Route("GET", "/", Access.READ, of_session(_hello)),
        Route("GET", "/is_alive", Access.READ, _is_alive),
        _post("/create_session", create_session),
        _post("/run_in_session", run_in_session),
        _post("/close_session", close_session, stops=True),
        _post("/execute", execute),
        _post("/write_file", write_file),
        _post("/close", close, stops=True),
        Route("POST", "/read_file", Access.WORK, of_session(read_file)),
        Route("POST", "/upload", Access.WORK, of_session(_upload)),
        # Everything else demands a credential, too.
        Route("*", "", Access.READ, of_session(_nothing)),
        Route("*", "/{rest:.*}", Access.READ, of_session(_nothing)),
    ),
    credential,
    failure,
)
