"""The routes that a gateway answers itself, for all nodes.

The caller's key is known here by the cluster's database. The nodes that are asked get the caller's
credentials, and decide for themselves.
"""

import time
from collections.abc import Callable
from contextlib import aclosing

from aiohttp import web

from gateway.access import ADMINS
from gateway.faces.answering import Asked, FaceRoute, add_routes, answer_page, short_body
from gateway.faces.answers import listed, small
from gateway.faces.asking import Answer, Query
from gateway.faces.asking import Asked as AllAnswers
from gateway.faces.decisions import Decisions
from gateway.faces.key_routes import KeyFaces
from gateway.faces.nodes import NodeChanges, NodeList, drain_of
from gateway.faces.pages import APPROVALS, SEARCH, MergedList
from gateway.faces.positions import Position, Positions, Series
from gateway.faces.queries import (
    ClusterApprovalsQuery,
    ClusterEventsQuery,
    ClusterSearchQuery,
)
from gateway.faces.sessions import ListPage, SessionList
from gateway.faces.streams import PAUSES, EventStream, Pauses, Sent, starts_of
from gateway.faces.sums import all_denials, all_usage, is_denials, is_usage
from gateway.open import Gateway
from gateway.proxy import Exchange
from orchestrator.ground.serving import stream
from paddock.contract.audit import DenialsQuery
from paddock.contract.cluster import Nodes
from paddock.contract.requests import NoQuery
from paddock.contract.session_requests import SessionsQuery
from paddock.contract.usage import UsageQuery

_EVENT_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "X-Accel-Buffering": "no",
    "Cache-Control": "no-store",
}
_ALIVE = b": alive\n\n"
_FIRST = "0"


class Faces:
    """Answers for all nodes."""

    def __init__(
        self,
        gateway: Gateway,
        cluster: str,
        changes: NodeChanges,
        *,
        pauses: Pauses = PAUSES,
    ) -> None:
        """`cluster` is its name, which positions have; `changes` are the database's."""
        self._gateway = gateway
        self._pauses = pauses
        members = gateway.members
        self._asking = asking = gateway.asking
        self._sessions = SessionList(gateway.directory, members, asking)
        self._approvals = MergedList(APPROVALS, cluster, members, asking)
        self._search = MergedList(SEARCH, cluster, members, asking)
        self._decisions = Decisions(members, asking)
        self._of_keys = KeyFaces(gateway)
        self._nodes = NodeList(gateway.directory, members, changes)
        self._positions = Positions(cluster, Series.EVENTS)

    def add_to(self, app: web.Application) -> None:
        """Adds the routes."""
        approval = "/api/approvals/{approval_id}"
        change = "/api/nodes/{name}/{change:drain|undrain|forget}"
        own = (
            FaceRoute("GET", "/api/sessions", "list_sessions", self._list_sessions),
            FaceRoute("GET", "/api/approvals", "list_approvals", self._list_approvals),
            FaceRoute("POST", approval, "decide_approval", self._decide),
            FaceRoute("GET", "/api/audit", "search_all_audit", self._search_audit),
            FaceRoute("GET", "/api/audit/denials", "count_denials", self._count_denials),
            FaceRoute("GET", "/api/usage", "show_usage", self._show_usage),
            FaceRoute("GET", "/api/events", "follow_all", self._follow_all),
            FaceRoute("GET", "/api/nodes", "list_nodes", self._list_nodes),
            FaceRoute("POST", change, "drain_node", self._change_node, ADMINS),
        )
        add_routes(app, self._gateway, (*own, *self._of_keys.routes))

    async def _list_sessions(self, asked: Asked) -> web.StreamResponse:
        query = asked.query(SessionsQuery)
        owner = asked.caller.sees_owner
        page = await self._sessions.page(owner, query, asked.parameters, asked.headers)
        return await answer_page(asked.request, page)

    async def _list_approvals(self, asked: Asked) -> web.StreamResponse:
        query = asked.query(ClusterApprovalsQuery)
        page = await self._approvals.page(
            query.cursor, query.limit, asked.parameters, asked.headers
        )
        return await answer_page(asked.request, page)

    async def _search_audit(self, asked: Asked) -> web.StreamResponse:
        query = asked.query(ClusterSearchQuery)
        page = await self._search.page(query.cursor, query.limit, asked.parameters, asked.headers)
        return await answer_page(asked.request, page)

    async def _count_denials(self, asked: Asked) -> web.StreamResponse:
        asked.query(DenialsQuery)
        found = await self._of_all(asked, "/api/audit/denials", asked.parameters, is_denials)
        groups = all_denials(found.answers)
        return await answer_page(asked.request, ListPage(groups, None, found.missing))

    async def _show_usage(self, asked: Asked) -> web.StreamResponse:
        query = asked.query(UsageQuery)
        wanted = {} if query.session is None else {"session": query.session}
        found = await self._of_all(asked, "/api/usage", wanted, is_usage)
        usage = all_usage(found.answers, time.time(), query.after)
        items = usage.pop("items")
        return await listed(asked.request, items, {**usage, "missing": found.missing})

    async def _of_all(
        self, asked: Asked, path: str, query: Query, check: Callable[[Answer], bool]
    ) -> AllAnswers:
        members = list(self._gateway.members.all)
        return await self._asking.pages(members, path, lambda *_: query, asked.headers, check, 1)

    async def _decide(self, asked: Asked) -> web.StreamResponse:
        asked.query(NoQuery)
        body = await short_body(asked)
        raw = asked.request.rel_url.raw_parts[-1]
        return small(await self._decisions.decide(raw, body, asked.headers))

    async def _list_nodes(self, asked: Asked) -> web.StreamResponse:
        asked.query(NoQuery)
        # What machines have and use is everybody's: it is for those who see everybody's sessions.
        sees_all = asked.caller.sees_owner is None
        nodes = await self._nodes.all() if sees_all else Nodes(items=[], next=None)
        return _model(nodes.encode())

    async def _change_node(self, asked: Asked) -> web.StreamResponse:
        asked.query(NoQuery)
        request = asked.request
        info = request.match_info
        body = await short_body(asked)
        moves = info["change"] == "drain" and drain_of(body).move
        node = await self._nodes.change(info["name"], info["change"])
        member = self._gateway.members.named(info["name"]) if moves else None
        if member is None:
            return _model(node.encode())
        # The node moves its sessions by itself, by the word of the same caller.
        answer = await Exchange(request, member, body=body).answer()
        assert isinstance(answer, web.StreamResponse)  # noqa: S101 - no refusals were asked for
        return answer

    async def _follow_all(self, asked: Asked) -> web.StreamResponse:
        request = asked.request
        begin = await self._begin(asked)
        following = EventStream(self._gateway.members, asked.headers, begin, self._pauses)
        response = web.StreamResponse(headers=_EVENT_HEADERS)
        await stream.begin(request, response)
        async with aclosing(following.events()) as events:
            async for event in events:
                await stream.write(request, response, self._encoded(event))
        await stream.within_time(request, response.write_eof())
        return response

    async def _begin(self, asked: Asked) -> Position:
        """Where the client has got to: now, if it has got nowhere. Raises: ValidationError."""
        query = asked.query(ClusterEventsQuery)
        last = asked.request.headers.get("Last-Event-ID")
        after, name = (query.after, "after") if last is None else (last, "Last-Event-ID")
        if after == _FIRST:
            return Position()
        if after is not None:
            return self._positions.read(after, name)
        now = int(time.time() * 1e6)
        found = await starts_of(list(self._gateway.members.all), asked.headers, self._pauses.start)
        return Position(found, now)

    def _encoded(self, sent: Sent | None) -> bytes:
        if sent is None:
            return _ALIVE
        position = self._positions.write(sent.position).encode()
        return b"id: %s\nevent: %s\ndata: %s\n\n" % (position, sent.name, sent.data)


def _model(body: bytes) -> web.Response:
    return web.Response(body=body, headers={"Content-Type": "application/json; charset=utf-8"})
