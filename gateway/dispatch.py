"""Finds out what a request is for, and has it answered there."""

from aiohttp import web

from gateway.errors import RETRY_SECONDS
from gateway.faces.answers import refused
from gateway.faces.asking import RefusedError
from gateway.members import Member
from gateway.open import Gateway
from gateway.paths import E2B_HEADER, Aim, Kind, aim_of, is_target
from gateway.places.asked import need_of_template, signature_of, template_in
from gateway.places.bodies import Bodies
from gateway.places.building import Building
from gateway.places.making import Making, asking_headers
from gateway.places.named import Named, without_node
from gateway.previews import session_of
from gateway.proxy import Exchange
from orchestrator.cluster.tls import Face
from orchestrator.ground.errors import (
    NodeUnavailableError,
    NotFoundError,
    ValidationError,
)

KIND = web.RequestKey("kind", str)
# Answers with which a node says that it has not got a session, or its handle, any more.
_NOT_MINE = frozenset({401, 404, 410})
# All operations below it need a credential; other interfaces have some that need none.
_PROVING = "/api/"
_EVERY_NODE = (
    "a gateway does not answer this: each node of the cluster has its own; name one of them with "
    "the parameter `node`"
)


class Dispatch:
    """Answers what a gateway does not answer itself."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._bodies = Bodies(gateway.limits, gateway.aside)
        self._making = Making(gateway, self._bodies)
        self._named = Named(gateway.holders)
        self._building = Building(gateway)

    async def api(self, request: web.Request) -> web.StreamResponse:
        """A request to the API. Raises: PaddockError."""
        _check(request)
        proves = request.raw_path.startswith(_PROVING)
        with self._gateway.open_requests.counted(request, proves=proves):
            aim = aim_of(request.method, request.raw_path, request.headers.get(E2B_HEADER))
            request[KIND] = aim.kind.name.lower()
            try:
                return await self._sent(request, aim)
            except RefusedError as error:
                return refused(error.refusal)

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
                return await self._making.session(request)
            case Kind.SANDBOX:
                return await self._making.sandbox(request)
            case Kind.RESTORE:
                return await self._making.restored(request)
            case Kind.VOLUME:
                return await self._making.volume(request)
            case Kind.SIGNED:
                return await self._signed(request)
            case Kind.BUILD:
                return await self._built(request)
            case Kind.TEMPLATE:
                return await self._of_template(request, aim.member)
            case Kind.NAMED:
                return await self._at(request, await self._named.node_of(request, aim))
            case Kind.BODY:
                return await self._named_in_body(request, aim.member)
            case Kind.ONE:
                return await self._at(request, self._named.chosen(request))
            case Kind.NONE:
                member = self._named.chosen(request)
                if member is None:
                    raise NotFoundError(_EVERY_NODE)
                return await self._at(request, member)
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
        has_body = request.can_read_body
        exchange = Exchange(request, member, face, body)
        answer = await exchange.answer(_NOT_MINE)
        if isinstance(answer, web.StreamResponse):
            return answer
        # The session may be elsewhere by now, or it is a file of it that is not there.
        other = await self._gateway.routes.moved_from(session_id, member)
        if other is None:
            return answer.answer
        if not has_body or exchange.body is not None:
            return await self._exchanged(request, other, face, exchange.body)
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

    async def _signed(self, request: web.Request) -> web.StreamResponse:
        """The answer of the node that knows who has signed; it is asked for that before."""
        need = signature_of(request.method, request.rel_url.raw_query_string)
        found = await self._gateway.holders.one(need, asking_headers(request))
        if found is None:
            return await self._to_any(request)  # which says what is wrong with the signature
        return await self._at(request, self._gateway.holders.reached(found))

    async def _at(self, request: web.Request, member: Member | None) -> web.StreamResponse:
        """The answer of that node, or of any, to what a query may name a node for."""
        if member is None:
            return await self._to_any(request)
        target = without_node(request.raw_path)
        answer = await Exchange(request, member, target=target).answer()
        assert isinstance(answer, web.StreamResponse)  # noqa: S101 - no refusals were asked for
        return answer

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
        return await self._making.session(request, session_id)

    async def _built(self, request: web.Request) -> web.StreamResponse:
        async with self._bodies.whole(request) as body:
            name = template_in(await self._bodies.json(body), "name", "alias")
            member = await self._building.node_of(request, name)
            return await self._exchanged(request, member, Face.API, body)

    async def _of_template(self, request: web.Request, member: str) -> web.StreamResponse:
        async with self._bodies.whole(request) as body:
            name = template_in(await self._bodies.json(body), member)
            if name is None:
                return await self._to_any(request, body=body)
            holders = self._gateway.holders
            found = await holders.one(need_of_template(name), asking_headers(request))
            if found is None:
                return await self._to_any(request, body=body)
            return await self._exchanged(request, holders.reached(found), Face.API, body)

    async def _named_in_body(self, request: web.Request, member: str) -> web.StreamResponse:
        async with self._bodies.whole(request) as body:
            found = await self._bodies.json(body)
            session_id = found.get(member) if isinstance(found, dict) else None
            known = isinstance(session_id, str) and len(session_id) <= 128
            return await self._to_session(request, session_id if known else None, body=body)


def _check(request: web.Request) -> None:
    """Raises: ValidationError for what no server of ours answers."""
    if not is_target(request.raw_path):
        raise ValidationError(
            "the target of a request must be a path in visible ASCII: encode other characters",
            field="path",
        )
