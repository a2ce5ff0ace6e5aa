"""Finds out what a request is for, and has it answered there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from aiohttp import web

from gateway.access import owner_of
from gateway.creation import Asked, asked_in
from gateway.errors import RETRY_SECONDS
from gateway.members import Member
from gateway.open import Gateway
from gateway.paths import E2B_HEADER, Aim, Kind, aim_of, is_target
from gateway.placement import Wanted
from gateway.previews import session_of
from gateway.proxy import Exchange, read_body
from orchestrator.cluster.tls import Face
from orchestrator.ground import strict_json
from orchestrator.ground.errors import (
    CapacityExhaustedError,
    NodeUnavailableError,
    NotFoundError,
    TooLargeError,
    ValidationError,
)

KIND = web.RequestKey("kind", str)
# Answers with which a node says that it has not got a session (any more).
_NOT_MINE = frozenset({404, 410})
_EVERY_NODE = (
    "a gateway does not answer this yet: each node of the cluster has its own; ask the nodes "
    "themselves"
)


class Dispatch:
    """Answers what a gateway does not answer itself."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        # Bytes of bodies that are read before they are passed on.
        self._held = 0

    async def api(self, request: web.Request) -> web.StreamResponse:
        """A request to the API. Raises: PaddockError."""
        _check(request)
        with self._gateway.open_requests.counted(request):
            aim = aim_of(request.method, request.raw_path, request.headers.get(E2B_HEADER))
            request[KIND] = aim.kind.name.lower()
            return await self._sent(request, aim)

    async def previews(self, request: web.Request) -> web.StreamResponse:
        """A request to a port of a session. Raises: PaddockError."""
        _check(request)
        request[KIND] = "previews"
        with self._gateway.open_requests.counted(request):
            hosts = request.headers.getall("Host", ())
            sandbox = request.headers.get(E2B_HEADER)
            session_id = session_of(hosts, request.raw_path, self._gateway.domain, sandbox)
            return await self._to_session(request, session_id, Face.PREVIEWS)

    async def _sent(self, request: web.Request, aim: Aim) -> web.StreamResponse:
        match aim.kind:
            case Kind.SESSION:
                return await self._to_session(request, aim.session_id)
            case Kind.ENSURE:
                return await self._ensured(request, aim.session_id)
            case Kind.CREATE:
                return await self._created(request)
            case Kind.STREAM:
                owner = owner_of(self._gateway.keys, request)
                asked = Asked(Wanted(owner=owner))
                return await self._gateway.creations.create(request, asked, None)
            case Kind.BODY:
                return await self._named_in_body(request, aim.member)
            case Kind.NONE:
                raise NotFoundError(_EVERY_NODE)
        return await self._to_any(request)

    async def _to_session(
        self,
        request: web.Request,
        session_id: str | None,
        face: Face = Face.API,
        body: bytes | None = None,
    ) -> web.StreamResponse:
        """To the node of the session. Who may know of it, and whether it is there, a node says."""
        if session_id is None:
            return await self._to_any(request, face, body)
        member, remembered = await self._gateway.routes.node_of(session_id)
        if member is None:
            return await self._to_any(request, face, body)
        if not remembered:
            return await self._exchanged(request, member, face, body)
        has_body = body is None and request.can_read_body
        answer = await Exchange(request, member, face, body).answer(_NOT_MINE)
        if isinstance(answer, web.StreamResponse):
            return answer
        # The session may be elsewhere by now, or it is a file of it that is not there.
        other = await self._gateway.routes.moved_from(session_id, member)
        if other is None:
            return answer.answer
        if not has_body:
            return await self._exchanged(request, other, face, body)
        raise NodeUnavailableError(
            "the session has moved to another node: ask again; nothing has been done",
            retry_after=RETRY_SECONDS,
        )

    async def _to_any(
        self, request: web.Request, face: Face = Face.API, body: bytes | None = None
    ) -> web.StreamResponse:
        member = self._gateway.members.any()
        if member is None:
            raise NodeUnavailableError(
                "no node of the cluster answers: try again", retry_after=RETRY_SECONDS
            )
        return await self._exchanged(request, member, face, body)

    async def _exchanged(
        self, request: web.Request, member: Member, face: Face, body: bytes | None
    ) -> web.StreamResponse:
        answer = await Exchange(request, member, face, body).answer()
        assert isinstance(answer, web.StreamResponse)  # noqa: S101 - no refusals were asked for
        return answer

    async def _ensured(self, request: web.Request, session_id: str) -> web.StreamResponse:
        member, _ = await self._gateway.routes.node_of(session_id)
        if member is not None:
            return await self._exchanged(request, member, Face.API, None)
        return await self._created(request, session_id)

    async def _created(
        self, request: web.Request, session_id: str | None = None
    ) -> web.StreamResponse:
        async with self._body(request) as body:
            asked = asked_in(await self._json(body), owner_of(self._gateway.keys, request))
            if session_id is not None:
                asked = asked._replace(session_id=session_id)
            return await self._gateway.creations.create(request, asked, body)

    async def _named_in_body(self, request: web.Request, member: str) -> web.StreamResponse:
        async with self._body(request) as body:
            found = await self._json(body)
            session_id = found.get(member) if isinstance(found, dict) else None
            known = isinstance(session_id, str) and len(session_id) <= 128
            return await self._to_session(request, session_id if known else None, body=body)

    @asynccontextmanager
    async def _body(self, request: web.Request) -> AsyncIterator[bytes]:
        """The whole body, which counts until the end of the block.

        Raises: ValidationError, TooLargeError, CapacityExhaustedError.
        """
        limits = self._gateway.limits
        # A body without a length may have any up to the limit.
        size = limits.body_bytes if request.content_length is None else request.content_length
        if size > limits.body_bytes:
            raise _too_large(limits.body_bytes)
        if self._held + size > limits.all_bodies_bytes:
            raise CapacityExhaustedError(
                "too many bodies of new sessions are being read: try again",
                retry_after=RETRY_SECONDS,
            )
        self._held += size
        try:
            body = await read_body(request, limits.body_bytes)
            if body is None:
                raise _too_large(limits.body_bytes)
            yield body
        finally:
            self._held -= size

    async def _json(self, body: bytes) -> Any:
        """What the body says; None if it can't be read, which the node explains."""
        try:
            return await self._gateway.aside.call(
                len(body), partial(strict_json.parse, body, "the body")
            )
        except (strict_json.JsonError, ValueError, RecursionError):
            return None


def _check(request: web.Request) -> None:
    """Raises: ValidationError for what no server of ours answers."""
    if not is_target(request.raw_path):
        raise ValidationError(
            "the target of a request must be a path in visible ASCII: encode other characters",
            field="path",
        )


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(f"the body is over the limit of a gateway, {most} bytes")
