"""What becomes of a handler's failure: an answer, or a connection that breaks."""

import asyncio
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.serving import stream
from orchestrator.ground.serving.errors import describe

Explain = Callable[[PaddockError], web.StreamResponse]


async def answered_or_broken(
    request: web.Request,
    handler: Handler,
    explain: Explain,
    ordinary: tuple[type[Exception], ...] = (ConnectionError, TimeoutError),
) -> web.StreamResponse:
    """The handler's answer, or what `explain` makes of its failure.

    Once an answer has begun, only a broken connection can show that it is incomplete. `ordinary`
    are failures of such an answer that nobody has to look at.
    """
    try:
        return await handler(request)
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - nothing else may reach a client
        begun: web.StreamResponse | None = request.get(stream.STREAM)
        if begun is None:
            return explain(describe(error))
        if not isinstance(error, ordinary):
            describe(error)
        stream.abort(request)
        return begun
