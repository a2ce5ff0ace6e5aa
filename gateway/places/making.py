"""What is new: its body is read, a node is chosen by it, and it gets its id before any is asked.

A client that names no id learns the one that it has got, also if its node is lost before the
answer, so that it can look the session up instead of making a second one.
"""

import secrets
from urllib.parse import parse_qs

from aiohttp import web

from gateway.creation import Sent
from gateway.headers import for_asking
from gateway.open import Gateway
from gateway.placement import Wanted
from gateway.places.archive_head import HEAD_BYTES, manifest_size, session_in
from gateway.places.asked import (
    Asked,
    Known,
    asked_in,
    asked_in_e2b,
    volume_in,
    with_id,
)
from gateway.places.bodies import Bodies
from gateway.proxy import read_first
from orchestrator.cluster.session_ids import (
    REPEATED_HEADER,
    is_repeatable,
    new_session_id,
    repeated_session_id,
)
from orchestrator.ground.serving.headers import Headers
from orchestrator.rules.access.keys import Principal

_USUAL_LEVEL = "medium"
_MOST_ID = 128


class Making:
    """Makes sessions, sandboxes of E2B's, and volumes."""

    def __init__(self, gateway: Gateway, bodies: Bodies) -> None:
        self._gateway = gateway
        self._bodies = bodies

    async def session(
        self, request: web.Request, session_id: str | None = None
    ) -> web.StreamResponse:
        """A new session, with the id of its path, of its body, or one that is made here."""
        async with self._bodies.whole(request) as body:
            found = await self._bodies.json(body)
            asked = asked_in(found, await self._owner(request))
            if session_id is not None:
                asked = asked._replace(session_id=session_id)
            elif isinstance(found, dict) and "id" not in found:
                asked = asked._replace(session_id=new_session_id(), is_new=True)
                body = with_id(body, found, asked.session_id or "")
            sent = Sent(asking_headers(request), body)
            return await self._gateway.creations.create(request, asked, sent)

    async def sandbox(self, request: web.Request) -> web.StreamResponse:
        """A new sandbox, whose id follows from its `Idempotency-Key`, or from one made here."""
        caller = await self._gateway.callers.principal_of(request)
        async with self._bodies.whole(request) as body:
            nodes = [member.node.report for member in self._gateway.members.all]
            known = Known(
                {level for node in nodes for level in node.levels},
                {image for node in nodes for image in node.images},
            )
            found = await self._bodies.json(body)
            asked = asked_in_e2b(found, _name(caller), _usual_level(caller), known)
            key, added = request.headers.get(REPEATED_HEADER), []
            if key is None and caller is not None:
                key = secrets.token_hex(16)
                added.append((REPEATED_HEADER, key))
            if key is not None and caller is not None and is_repeatable(key):
                session_id = repeated_session_id(caller.account, key)
                asked = asked._replace(session_id=session_id, is_new=bool(added))
            sent = Sent(asking_headers(request), body, added=added)
            return await self._gateway.creations.create(request, asked, sent)

    async def restored(self, request: web.Request) -> web.StreamResponse:
        """The session of a snapshot, of which only the beginning is read here."""
        owner = await self._owner(request)
        first = await read_first(request, HEAD_BYTES)
        size = manifest_size(first)
        length = request.content_length
        # What is longer than a body may be, or than what is sent, is not looked at.
        most = self._gateway.limits.body_bytes if length is None else length
        if size is None or size > min(most, self._gateway.limits.body_bytes):
            return await self._restored(request, Asked(Wanted(owner=owner)), first)
        with self._bodies.counted(HEAD_BYTES + size):
            end = HEAD_BYTES + size
            first += await read_first(request, end - len(first))
            session = session_in(await self._bodies.json(first[HEAD_BYTES:end]))
            return await self._restored(request, asked_in(session, owner), first)

    async def _restored(
        self, request: web.Request, asked: Asked, first: bytes
    ) -> web.StreamResponse:
        named = parse_qs(request.rel_url.raw_query_string[:1024]).get("id", [])
        if len(named) == 1 and len(named[0]) <= _MOST_ID:
            asked = asked._replace(session_id=named[0])
        sent = Sent(asking_headers(request), first=first)
        return await self._gateway.creations.create(request, asked, sent)

    async def volume(self, request: web.Request) -> web.StreamResponse:
        """A new volume. Whether its name is free, its node asks the cluster."""
        async with self._bodies.whole(request) as body:
            asked = volume_in(await self._bodies.json(body), await self._owner(request))
            sent = Sent(asking_headers(request), body)
            return await self._gateway.creations.create(request, asked, sent)

    async def _owner(self, request: web.Request) -> str | None:
        return _name(await self._gateway.callers.principal_of(request))


def asking_headers(request: web.Request) -> Headers:
    """The headers with which nodes are asked something else for a request."""
    return for_asking([*request.headers.items()], request.remote or "", request.scheme)


def _name(caller: Principal | None) -> str | None:
    """Whose a new session is."""
    return None if caller is None else caller.name


def _usual_level(caller: Principal | None) -> str | None:
    """The level of a session for which none is named; None: not known here."""
    return _USUAL_LEVEL if caller is None or caller.bounds.max_level is None else None
