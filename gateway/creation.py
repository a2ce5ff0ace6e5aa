"""New sessions: a node is chosen and asked, and another one if it refuses.

A node that refuses (503) has made nothing, so another may be asked with the same body. A node that
went away after it was asked may have made the session: then the client is told so (502), and nobody
else is asked.
"""

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from aiohttp import web

from gateway.errors import NodeLostError, lost_creation, unavailable
from gateway.members import Member, Members
from gateway.placed import Placements
from gateway.placement import MOST_ASKED, Against
from gateway.places.asked import Asked
from gateway.places.holders import Holders
from gateway.proxy import Exchange, Refusal
from gateway.routing import Routes
from orchestrator.cluster.directory import Hold
from orchestrator.ground.errors import (
    CapacityExhaustedError,
    ClusterUnavailableError,
    NodeUnavailableError,
    NotFoundError,
    PaddockError,
)
from orchestrator.ground.serving.headers import Headers

_REFUSES = frozenset({503})
_CREATED = 201
_SESSION = "/api/sessions/"
_RETRY_SECONDS = 5.0


class Sent(NamedTuple):
    """What a node gets; `body`: None if it is passed as it comes, behind `first`, and only once.

    `added` are headers besides the client's, `asking` those with which nodes are asked for what a
    session needs.
    """

    asking: Headers
    body: bytes | None = None
    first: bytes = b""
    added: Headers = ()


class Creations:
    """Puts what is new on nodes."""

    def __init__(
        self, members: Members, routes: Routes, placements: Placements, holders: Holders
    ) -> None:
        self._members = members
        self._routes = routes
        self._placements = placements
        self._holders = holders

    async def create(self, request: web.Request, asked: Asked, sent: Sent) -> web.StreamResponse:
        """The answer of the node that has the session then, or refuses it for good.

        Raises: CapacityExhaustedError with how many nodes refused for what; NotFoundError,
        ConflictError, NodeUnavailableError, NodeLostError with the session's id, RefusedError,
        ClusterUnavailableError.
        """
        try:
            return await self._created(request, asked, sent)
        except NodeLostError as error:
            if asked.session_id is None:
                raise
            raise lost_creation(error.fields["node"], asked.session_id) from None

    async def _created(self, request: web.Request, asked: Asked, sent: Sent) -> web.StreamResponse:
        member = await self._settled(asked)
        if member is not None:
            answer = await _exchange(request, member, sent).answer()
            return self._answered(member, answer, asked)
        if asked.needs:
            only = await self._holders.all_of(asked.needs, sent.asking)
            asked = asked._replace(wanted=replace(asked.wanted, only=only))
        refused: Counter[str] = Counter()
        excluded: list[str] = []
        while len(excluded) < MOST_ASKED:
            node = self._placements.choose(asked.wanted, excluded)
            if node is None:
                break
            excluded.append(node.name)
            said = await self._said(request, node.name, asked, sent)
            if isinstance(said, web.StreamResponse):
                return said
            self._placements.refused(node, asked.wanted)
            refused[said] += 1
        return await self._nowhere(request, asked, sent, refused)

    async def _said(
        self, request: web.Request, name: str, asked: Asked, sent: Sent
    ) -> web.StreamResponse | str:
        """The node's answer, or the code of its refusal."""
        member = self._members.named(name)
        if member is None:
            return NodeUnavailableError.code
        may_repeat = sent.body is not None
        try:
            answer = await _exchange(request, member, sent).answer(
                _REFUSES if may_repeat else frozenset()
            )
        except NodeLostError:
            raise
        except NodeUnavailableError as error:
            return error.code
        if isinstance(answer, Refusal):
            return answer.code or str(answer.answer.status)
        return self._answered(member, answer, asked)

    def _answered(
        self, member: Member, answer: web.StreamResponse | Refusal, asked: Asked
    ) -> web.StreamResponse:
        assert isinstance(answer, web.StreamResponse)  # noqa: S101 - no refusals were asked for
        path = answer.headers.get("Location", "")
        if answer.status == _CREATED and path.startswith(_SESSION):
            self._routes.learn(path.removeprefix(_SESSION), member.name)
        elif answer.status == _CREATED and asked.session_id is not None:
            self._routes.learn(asked.session_id, member.name)
        return answer

    async def _settled(self, asked: Asked) -> Member | None:
        """The node that alone may have it: that of its id, or of the session that it is near."""
        own = None if asked.is_new else asked.session_id
        for session_id, holds in ((own, True), (asked.near, False)):
            if session_id is None:
                continue
            where = await self._routes.look_up(session_id)
            if where is None or where.hold is Hold.RECORD:
                if holds:
                    continue
                raise NotFoundError(f"no session {session_id[:128]}", field="placement.near")
            member = self._members.named(where.node)
            if member is None or not member.alive:
                raise unavailable(where.node)
            return member
        return None

    async def _nowhere(
        self, request: web.Request, asked: Asked, sent: Sent, refused: Counter[str]
    ) -> web.StreamResponse:
        """No node has taken it. What no node knows, any of them says in its own words."""
        reasons = self._placements.reasons(asked.wanted)
        unknown = reasons.keys() & {Against.LEVEL, Against.IMAGE}
        member = self._members.any()
        if unknown and not refused and not reasons[Against.LABELS] and member is not None:
            answer = await _exchange(request, member, sent).answer()
            return self._answered(member, answer, asked)
        raise _exhausted(refused, reasons)


def _exchange(request: web.Request, member: Member, sent: Sent) -> Exchange:
    return Exchange(request, member, body=sent.body, first=sent.first, added=sent.added)


def _exhausted(refused: Counter[str], reasons: Counter[Against]) -> PaddockError:
    parts = [f"{count} refused it ({code})" for code, count in refused.most_common()]
    parts += [f"{count} {reason}" for reason, count in reasons.most_common()]
    said = ", ".join(parts) or "the cluster has none"
    if set(refused) == {ClusterUnavailableError.code}:
        return ClusterUnavailableError(
            "a new session needs the cluster's database, which the nodes that were asked do not"
            f" reach, or have not reached again yet: of the nodes, {said}"
        )
    return CapacityExhaustedError(
        f"no node takes this session now: of the nodes, {said}", retry_after=_RETRY_SECONDS
    )
