"""A gateway with all of its own answers, whose nodes are small servers with records in memory."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.app import create_app
from gateway.faces.asking import Asking
from gateway.faces.routes import Faces
from gateway.faces.streams import Pauses
from gateway.http import http_options
from gateway.open import open_gateway
from orchestrator.cluster.base import Summary
from orchestrator.cluster.directory import (
    ListedSession,
    Position,
    SessionFilters,
    SessionsPage,
)
from orchestrator.ground.errors import ConflictError, NotFoundError
from orchestrator.rules.access.keys import KeyRing, Principal, Role, digest
from tests.support.fake_cluster import FakeCluster, FakeDirectory, no_tls

ADMIN = {"Authorization": "Bearer admin-key"}
OPERATOR = {"Authorization": "Bearer operator-key"}
VIEWER = {"Authorization": "Bearer viewer-key"}
KEYS = {
    digest("admin-key"): Principal("admin", Role.ADMIN),
    digest("operator-key"): Principal("ci", Role.OPERATOR),
    digest("viewer-key"): Principal("eye", Role.VIEWER, owner="ci"),
    digest("metrics-key"): Principal("meter", Role.METRICS),
}
# A test waits for a node that never answers only so long.
SOON = Pauses(heartbeat=0.2, silence=5.0, first=0.01, longest=0.05, answer=2.0, start=0.5)
_HEARTBEAT = 0.05
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def moment(second: int) -> str:
    """A time in the form of events."""
    return datetime.fromtimestamp(1_700_000_000 + second, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class FakeNode:
    """What one node has. `instead` answers in its place; `asked` are the requests that it got."""

    name: str
    events: list[dict[str, Any]] = field(default_factory=list)
    approvals: list[dict[str, Any]] = field(default_factory=list)
    sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    denials: list[dict[str, Any]] = field(default_factory=list)
    instead: Answer | None = None
    asked: list[web.Request] = field(default_factory=list)
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    # Bytes of events that were written, and streams that are open.
    written: int = 0
    streams: list[web.Request] = field(default_factory=list)

    def happens(self, second: int, **members: Any) -> dict[str, Any]:
        """Records an event, and wakes those who follow."""
        event = {
            **{"id": len(self.events) + 1, "time": moment(second), "session_id": self.name},
            **{"operation": "command.start", "decision": "allow", **members},
        }
        self.events.append(event)
        self.grown.set()
        self.grown = asyncio.Event()
        return event

    def cut(self) -> None:
        """Breaks all streams."""
        for request in self.streams:
            if request.transport is not None:
                request.transport.abort()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """As a control plane would."""
        self.asked.append(request)
        if self.instead is not None:
            return await self.instead(request)
        match request.method, request.path:
            case "GET", "/api/audit":
                return self._searched(request)
            case "GET", "/api/events":
                return await self._followed(request)
            case "GET", "/api/sessions":
                return self._listed(request)
            case "GET", "/api/approvals":
                return self._waiting(request)
            case "GET", "/api/usage":
                return web.json_response(self.usage)
            case "GET", "/api/audit/denials":
                return web.json_response({"items": self.denials, "next": None, "missing": []})
            case "POST", path if path.startswith("/api/approvals/"):
                return await self._decided(request)
        return web.json_response({"code": "not_found"}, status=404)

    def _searched(self, request: web.Request) -> web.Response:
        query = request.query
        before = int(query.get("cursor", 10**18))
        found = [
            event
            for event in reversed(self.events)
            if event["id"] < before and event["time"] <= query.get("to", "9")
        ]
        limit = int(query.get("limit", 100))
        following = found[limit - 1]["id"] if len(found) > limit else None
        return web.json_response({"items": found[:limit], "next": following, "archived": 1})

    async def _followed(self, request: web.Request) -> web.StreamResponse:
        at = int(request.query["after"])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.streams.append(request)
        try:
            while True:
                grown = self.grown
                for event in self.events[at:]:
                    text = json.dumps(event)
                    sent = f"id: {event['id']}\nevent: {event['operation']}\ndata: {text}\n\n"
                    self.written += len(sent)
                    await response.write(sent.encode())
                    at = event["id"]
                await response.write(b": alive\n\n")
                with suppress(TimeoutError):
                    async with asyncio.timeout(_HEARTBEAT):
                        await grown.wait()
        finally:
            self.streams.remove(request)

    def _listed(self, request: web.Request) -> web.Response:
        keys = request.query["keys"].split(",")
        items = [self.sessions[key] for key in keys if key in self.sessions]
        return web.json_response({"items": items, "next": None, "missing": []})

    def _waiting(self, request: web.Request) -> web.Response:
        cursor, limit = request.query.get("cursor"), int(request.query["limit"])
        newest = self.approvals[::-1]
        ids = [each["id"] for each in newest]
        rest = newest[0 if cursor is None else ids.index(cursor) + 1 :]
        following = "7" if len(rest) > limit else None
        return web.json_response({"items": rest[:limit], "next": following, "missing": []})

    async def _decided(self, request: web.Request) -> web.Response:
        for each in self.approvals:
            if each["id"] == request.path.rpartition("/")[2]:
                if each.get("status") == "approved":
                    return web.json_response({"code": "conflict"}, status=409)
                each["status"] = f"{(await request.json())['decision']}d"
                return web.json_response(each)
        return web.json_response({"code": "not_found"}, status=404)


class ListingDirectory(FakeDirectory):
    """A database that has rows of sessions, and changes nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[ListedSession] = []
        self.asked: list[tuple[str | None, Position | None, int, SessionFilters]] = []

    def lives(self, node: FakeNode, number: int, owner: str = "ci", **members: Any) -> None:
        """A session of that node; its key has that number, and it was created in that second."""
        key, created = f"{number:016x}", moment(number)
        summary = Summary("active", "low", created)
        self.rows.append(ListedSession(f"s{number}", key, owner, node.name, summary, None))
        session = {"id": f"s{number}", "owner": owner, "created_at": created, "node": node.name}
        node.sessions[key] = session | members

    async def sessions(
        self, owner: str | None, after: Position | None, limit: int, filters: SessionFilters
    ) -> SessionsPage:
        """Rows of the owner, newest first."""
        self._answer()
        self.asked.append((owner, after, limit, filters))
        found = [
            row
            for row in sorted(self.rows, key=lambda each: each.summary.created_at, reverse=True)
            if owner in (None, row.owner)
            and (after is None or (row.summary.created_at, row.session_key) < after)
        ]
        last = found[limit - 1] if len(found) > limit else None
        following = None if last is None else (last.summary.created_at, last.session_key)
        return SessionsPage(found[:limit], following)

    async def drain(self, name: str) -> None:
        """As the database does."""
        self._set(name, "draining")

    async def undrain(self, name: str) -> None:
        """As the database does."""
        self._set(name, "ready")

    async def forget(self, name: str) -> None:
        """As the database does."""
        if self.known[name].alive:
            raise ConflictError(f"the node {name} is alive")
        del self.known[name]

    def _set(self, name: str, state: str) -> None:
        if name not in self.known:
            raise NotFoundError(f"no node {name}")
        known = self.known[name]
        self.known[name] = replace(known, report=replace(known.report, state=state))


@dataclass
class FacedCluster:
    """A gateway, its nodes by name, and what its database says."""

    cluster: FakeCluster
    directory: ListingDirectory
    nodes: dict[str, FakeNode]

    @property
    def url(self) -> str:
        """Where the gateway is."""
        return self.cluster.url

    async def dies(self, name: str) -> None:
        """The lease of the node ends, and the gateway learns of it."""
        self.directory.dies(name)
        await self.cluster.gateway.members.refresh()

    async def returns(self, name: str) -> None:
        """The node renews its lease again."""
        self.directory.known[name] = replace(self.directory.known[name], alive=True)
        await self.cluster.gateway.members.refresh()

    async def joins(self, name: str) -> FakeNode:
        """A node that was not there."""
        node = self.nodes[name] = FakeNode(name)
        await self.cluster.serve(name, node.answer)
        return node


@asynccontextmanager
async def faced_cluster(
    names: Sequence[str] = ("a", "b", "c"), *, seconds: float = 5.0, pauses: Pauses = SOON
) -> AsyncIterator[FacedCluster]:
    """Such a cluster. All nodes together may take so many seconds for an answer."""
    directory = ListingDirectory()
    cluster = FakeCluster(directory)
    gateway = await open_gateway(directory, KeyRing(dict(KEYS)), no_tls, asking=Asking(seconds))
    cluster.gateway = gateway
    async with cluster.closers:
        cluster.closers.push_async_callback(gateway.close)
        faces = Faces(gateway, "lab", directory, pauses=pauses)
        cluster.server = TestServer(create_app(gateway, faces=faces))
        await cluster.server.start_server(shutdown_timeout=0.1, **http_options(gateway))
        cluster.closers.push_async_callback(cluster.server.close)
        faced = FacedCluster(cluster, directory, {})
        for name in names:
            await faced.joins(name)
        yield faced
