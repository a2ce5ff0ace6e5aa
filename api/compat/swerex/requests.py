"""What a request of SWE-ReX passes: its session, its credential, and what was answered before."""

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from api.compat.call import Call
from api.compat.long_texts import size_of
from api.compat.replies import long_reply
from api.compat.swerex.failures import exception, failure
from api.compat.swerex.last_answers import Answer, LastAnswers
from orchestrator.ground.errors import NotFoundError, PaddockError, UnauthorizedError
from orchestrator.ground.serving.errors import describe
from orchestrator.state.session import Session

_MOST_ID = 128
_LOST = (
    "the connection of this request broke before it was answered; a command that ran was stopped"
)


def credential(request: web.Request) -> str:
    """The key or handle. Raises: UnauthorizedError."""
    values = request.headers.getall("X-API-Key", [])
    if len(values) != 1 or not values[0].strip():
        raise UnauthorizedError("the header X-API-Key is missing: a key or the session's handle")
    return values[0].strip()


def session_of(call: Call) -> Session:
    """The session. Raises: UnauthorizedError if the caller has none of that id."""
    try:
        return call.context.session()
    except NotFoundError:
        raise UnauthorizedError("the key or handle is not one of this session") from None


Handler = Callable[[Call], Awaitable[web.Response]]


def of_session(handler: Handler) -> Handler:
    """The handler for a caller who may use the session."""

    async def checked(call: Call) -> web.Response:
        session_of(call)
        return await handler(call)

    return checked


def answered_once(work: Callable[[Call], Awaitable[dict[str, Any]]]) -> Handler:
    """A handler that answers a repeated request as it did before."""

    async def handler(call: Call) -> web.Response:
        name = call.request.headers.get("X-Request-ID", "")
        if not name or len(name) > _MOST_ID:
            return await _reply(call, await work(call))

        async def serve() -> Answer:
            try:
                return _kept(await _reply(call, await work(call)))
            except Exception as error:
                known = describe(error)
                if "retry_after" in known.fields:
                    raise  # nothing was done: it may be made again
                return _kept(failure(known, call.context.request_id))

        lost = _kept(failure(_lost(), call.context.request_id))
        answers = call.context.kept.of(LastAnswers)
        named = f"{call.context.principal.name} {call.request.path} {name}"
        session = session_of(call)
        return (await answers.once(session.owner, session.key, named, serve, lost)).response()

    return of_session(handler)


async def _reply(call: Call, answer: dict[str, Any]) -> web.Response:
    """What a command printed may be long."""
    return await long_reply(answer, size_of(answer), call.plane.aside)


def _lost() -> PaddockError:
    return exception("SwerexException", _LOST)


def _kept(response: web.Response) -> Answer:
    body = response.body
    assert isinstance(body, bytes)  # noqa: S101 - `json_reply` made it
    return Answer(response.status, body)
