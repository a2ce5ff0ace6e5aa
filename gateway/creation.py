"""New sessions: a node is chosen and asked, and another one if it refuses.

A node that refuses (503) has made nothing, so another may be asked with the same body. A node that
went away after it was asked may have made the session: then the client is told so (502), and nobody
else is asked.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aiohttp import web

from gateway.errors import NodeLostError, unavailable
from gateway.members import Member, Members
from gateway.placed import Placements
from gateway.placement import MOST_ASKED, Against, Wanted
from gateway.proxy import Exchange, Refusal
from gateway.routing import Routes
from orchestrator.cluster.directory import Hold
from orchestrator.ground.errors import (
    CapacityExhaustedError,
    NodeUnavailableError,
    NotFoundError,
    PaddockError,
)

_REFUSES = frozenset({503})
_CREATED = 201
_SESSION = "/api/sessions/"
_RETRY_SECONDS = 5.0
# The contract's default.
_USUAL_LEVEL = "medium"
_MOST_LABELS = 32
_MOST_NUMBER = 2**50

# The name of the key that a request's credential is; None: not known here.
Owners = Callable[[web.Request], str | None]


class Asked(NamedTuple):
    """What the body of a request for a session says about its place."""

    wanted: Wanted = Wanted()
    session_id: str | None = None
    near: str | None = None


def asked_in(body: Any, owner: str | None) -> Asked:
    """Reads a body; what is not as it should be counts as not said, for the node to refuse it."""
    if not isinstance(body, dict):
        return Asked(Wanted(owner=owner))
    level = _text(body, "permission_level")
    if level is None and _text(body, "template") is None:
        level = _USUAL_LEVEL
    limits, placement = _members(body, "limits"), _members(body, "placement")
    labels = _members(placement, "labels")
    wanted = Wanted(
        level,
        _text(body, "image"),
        owner,
        {name: value for name, value in labels.items() if isinstance(value, str)},
        _number(limits, "cpus"),
        _whole(limits, "memory_bytes"),
    )
    return Asked(wanted, _text(body, "id"), _text(placement, "near"))


class Creations:
    """Puts new sessions on nodes."""

    def __init__(self, members: Members, routes: Routes, placements: Placements) -> None:
        self._members = members
        self._routes = routes
        self._placements = placements

    async def create(
        self, request: web.Request, asked: Asked, body: bytes | None
    ) -> web.StreamResponse:
        """The answer of the node that has the session then, or refuses it for good.

        `body`: None if it has not been read, so that it can be sent once. Raises:
        CapacityExhaustedError with how many nodes refused for what; NotFoundError,
        NodeUnavailableError, NodeLostError, ClusterUnavailableError.
        """
        member = await self._settled(asked)
        if member is not None:
            answer = await Exchange(request, member, body=body).answer()
            return self._answered(member, answer)
        refused: Counter[str] = Counter()
        excluded: list[str] = []
        while len(excluded) < MOST_ASKED:
            node = self._placements.choose(asked.wanted, excluded)
            if node is None:
                break
            excluded.append(node.name)
            said = await self._asked(request, node.name, body)
            if isinstance(said, web.StreamResponse):
                return said
            self._placements.refused(node, asked.wanted)
            refused[said] += 1
        return await self._nowhere(request, asked, body, refused)

    async def _asked(
        self, request: web.Request, name: str, body: bytes | None
    ) -> web.StreamResponse | str:
        """The node's answer, or the code of its refusal."""
        member = self._members.named(name)
        if member is None:
            return NodeUnavailableError.code
        may_repeat = body is not None
        try:
            answer = await Exchange(request, member, body=body).answer(
                _REFUSES if may_repeat else frozenset()
            )
        except NodeLostError:
            raise
        except NodeUnavailableError as error:
            return error.code
        if isinstance(answer, Refusal):
            return answer.code or str(answer.answer.status)
        return self._answered(member, answer)

    def _answered(self, member: Member, answer: web.StreamResponse | Refusal) -> web.StreamResponse:
        assert isinstance(answer, web.StreamResponse)  # noqa: S101 - no refusals were asked for
        path = answer.headers.get("Location", "")
        if answer.status == _CREATED and path.startswith(_SESSION):
            self._routes.learn(path.removeprefix(_SESSION), member.name)
        return answer

    async def _settled(self, asked: Asked) -> Member | None:
        """The node that alone may have it: that of its id, or of the session that it is near."""
        for session_id, holds in ((asked.session_id, True), (asked.near, False)):
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
        self, request: web.Request, asked: Asked, body: bytes | None, refused: Counter[str]
    ) -> web.StreamResponse:
        """No node has taken it. What no node knows, any of them says in its own words."""
        reasons = self._placements.reasons(asked.wanted)
        unknown = reasons.keys() & {Against.LEVEL, Against.IMAGE}
        member = self._members.any()
        if unknown and not refused and not reasons[Against.LABELS] and member is not None:
            answer = await Exchange(request, member, body=body).answer()
            return self._answered(member, answer)
        raise _exhausted(refused, reasons)


def _exhausted(refused: Counter[str], reasons: Counter[Against]) -> PaddockError:
    parts = [f"{count} refused it ({code})" for code, count in refused.most_common()]
    parts += [f"{count} {reason}" for reason, count in reasons.most_common()]
    said = ", ".join(parts) or "the cluster has none"
    return CapacityExhaustedError(
        f"no node takes this session now: of the nodes, {said}", retry_after=_RETRY_SECONDS
    )


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    return value if isinstance(value, str) else None


def _members(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    return value if isinstance(value, dict) and len(value) <= _MOST_LABELS else {}


def _number(body: Mapping[str, Any], name: str) -> float | None:
    """A number of the body that a node could have."""
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 < value < _MOST_NUMBER else None


def _whole(body: Mapping[str, Any], name: str) -> int | None:
    value = _number(body, name)
    return None if value is None else int(value)
