"""Passes a request to a node and its answer back, as they come, and never more than a little ahead.

Who does not read holds the other side back. What breaks is seen as broken: the connection to the
client is reset, and no answer ends that has not ended.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import NamedTuple

from aiohttp import ClientError, ServerDisconnectedError, hdrs, web

from gateway.call import Body, NodeAnswer, NodeRequest
from gateway.errors import lost, unavailable
from gateway.headers import for_client, for_node
from gateway.limits import answered
from gateway.members import Member
from gateway.reasons import HUNG_UP
from gateway.upstream import UnreachableError
from orchestrator.cluster.tls import Face
from orchestrator.ground.errors import ValidationError
from orchestrator.ground.serving import stream
from orchestrator.ground.serving.headers import Headers
from orchestrator.ground.serving.websocket import (
    is_accepted,
    is_websocket,
    pass_websocket,
    upgrade,
)

# A client that sends nothing of its body for so long is disconnected, as by a node.
_BODY_IDLE_SECONDS = 300.0
# Smaller bodies, of requests and of answers, are read whole: they cost less so.
_SMALL_BYTES = 32 * 1024


class Refusal(NamedTuple):
    """An answer that was not passed on yet; `code` is the problem document's."""

    answer: web.Response
    code: str


class Exchange:
    """One request to one node.

    `body` has been read already; None: it is passed as it comes, behind `first`, which was read of
    it. `added` are headers besides the client's, `target` is instead of the client's.
    """

    def __init__(
        self,
        request: web.Request,
        member: Member,
        face: Face = Face.API,
        body: bytes | None = None,
        first: bytes = b"",
        added: Headers = (),
        target: str | None = None,
    ) -> None:
        self._request = request
        self._member = member
        self._face = face
        self._body = body
        self._first = first
        self._added = added
        self._target = target
        self._arrived_badly = False

    async def answer(self, refusals: frozenset[int] = frozenset()) -> web.StreamResponse | Refusal:
        """The node's answer, passed on unless its status is one of `refusals` and it is short.

        Raises: NodeUnavailableError if nothing was sent, NodeLostError if it was; ValidationError
        if the body does not arrive whole; ConnectionError if it breaks later.
        """
        task = asyncio.current_task()
        with self._member.exchanges.by_this_task():
            try:
                return await self._answered(refusals)
            except asyncio.CancelledError:
                if self._member.alive or task is None:
                    raise  # the client has gone
                task.uncancel()
                raise self._broken() from None
            except UnreachableError as error:
                self._member.complain(str(error))
                raise unavailable(self._member.name) from None
            except ServerDisconnectedError:
                self._member.complain(HUNG_UP)
                raise self._broken() from None
            except (ClientError, TimeoutError):
                raise self._broken() from None

    @property
    def body(self) -> bytes | None:
        """What was sent, if it was read whole: it can be sent to another node, too."""
        return self._body

    def _broken(self) -> Exception:
        """What has happened to a request that was sent."""
        if self._request.get(stream.STREAM) is not None:
            return ConnectionResetError("the node's answer ended early")
        if self._arrived_badly:
            return ValidationError("the body did not arrive whole")
        return lost(self._member.name)

    async def _answered(self, refusals: frozenset[int]) -> web.StreamResponse | Refusal:
        request = self._request
        sent = [*request.headers.items()]
        headers = [*for_node(sent, request.remote or "", request.scheme), *self._added]
        body: Body = self._body
        if is_websocket(request):
            headers = [pair for pair in headers if not pair[0].lower().startswith("sec-websocket-")]
            headers += upgrade(request)
        elif body is None and (self._first or request.can_read_body):
            self._body = None if self._first else await self._small_body()
            body = self._pieces() if self._body is None else self._body
        length = request.content_length
        asked = NodeRequest(request.method, self._target or request.raw_path, headers, body, length)
        async with self._member.upstream(self._face).asked(asked) as answer:
            answered(request, answer.status)
            if answer.status in refusals and _is_short(request, answer):
                return await _refusal(answer)
            if is_accepted(request, answer):
                return await pass_websocket(request, answer, answer.protocol, [], None)
            if answer.status < HTTPStatus.OK:
                raise ClientError("the node changes the protocol")
            return await self._passed(answer)

    async def _passed(self, answer: NodeAnswer) -> web.StreamResponse:
        request = self._request
        if _is_short(request, answer):
            # Read whole, it is sent with its head at once; until then, nothing has begun.
            return await _whole(answer)
        headers = for_client([*answer.headers.items()])
        response = web.StreamResponse(status=answer.status, headers=headers)
        await stream.begin(request, response)
        async for piece in answer.content.iter_any():
            await stream.write(request, response, piece)
        await stream.within_time(request, response.write_eof())
        return response

    async def _small_body(self) -> bytes | None:
        """The body, if it says that it is small."""
        length = self._request.content_length
        if length is None or length > _SMALL_BYTES:
            return None
        return await read_body(self._request, _SMALL_BYTES)

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self._first:
            yield self._first
        try:
            while piece := await _piece(self._request):
                yield piece
        except (web.RequestPayloadError, ValidationError):
            self._arrived_badly = True
            raise


async def read_first(request: web.Request, size: int) -> bytes:
    """The first bytes of the body, at least so many if there are, and no more than have arrived.

    Raises: ValidationError.
    """
    found = bytearray()
    try:
        while len(found) < size and (piece := await _piece(request)):
            found += piece
    except web.RequestPayloadError:
        raise ValidationError("the body did not arrive whole") from None
    return bytes(found)


async def read_body(request: web.Request, most: int) -> bytes | None:
    """The whole body; None: it is longer than that. Raises: ValidationError."""
    pieces, size = [], 0
    try:
        while piece := await _piece(request):
            size += len(piece)
            if size > most:
                return None
            pieces.append(piece)
    except web.RequestPayloadError:
        raise ValidationError("the body did not arrive whole") from None
    return b"".join(pieces)


async def _piece(request: web.Request) -> bytes:
    if request.content.is_eof():
        # All of it is here, as most bodies are at once: nothing waits, so nothing limits it.
        return request.content.read_nowait()
    try:
        async with asyncio.timeout(_BODY_IDLE_SECONDS):
            return await request.content.readany()
    except TimeoutError:
        raise ValidationError("the body did not arrive in time") from None


def _is_short(request: web.Request, answer: NodeAnswer) -> bool:
    length = answer.content_length
    return length is not None and length <= _SMALL_BYTES and request.method != hdrs.METH_HEAD


async def _whole(answer: NodeAnswer) -> web.Response:
    headers = for_client([*answer.headers.items()])
    return web.Response(status=answer.status, headers=headers, body=await answer.content.read())


async def _refusal(answer: NodeAnswer) -> Refusal:
    """It with the code of its problem document; empty if it is none."""
    whole = await _whole(answer)
    try:
        found = json.loads(whole.body) if isinstance(whole.body, bytes) else None
    except (ValueError, RecursionError):
        found = None
    code = found.get("code") if isinstance(found, dict) else None
    return Refusal(whole, code if isinstance(code, str) else "")
