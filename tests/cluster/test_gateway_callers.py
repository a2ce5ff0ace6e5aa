"""What a gateway knows of users, and for how long."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest_asyncio
from aiohttp import ClientSession, web

from gateway.callers import KNOWN_SECONDS, Callers
from tests.support.faced_cluster import FacedCluster, faced_cluster
from tests.support.manual_clock import ManualClock

TOKEN = "eyJhbGciOiJub25lIn0.e30.c2ln"
NOW = datetime(2030, 1, 31, 9, tzinfo=UTC)
USER = {
    **{"name": "alice@corp", "role": "admin", "owner": None, "scopes": None, "max_level": None},
    "expires_at": (NOW + timedelta(seconds=600)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
}


class Nodes:
    """Says who the caller is, or refuses, and counts how often it is asked."""

    def __init__(self, faced: FacedCluster) -> None:
        self.faced = faced
        self.clock = ManualClock()
        self.asked: list[str] = []
        self.said: Any = USER
        self.status = 200
        gateway = faced.cluster.gateway
        self.ring = gateway.callers._keys
        callers = Callers(self.ring, gateway.members, self.clock.now, lambda: NOW)
        object.__setattr__(gateway, "callers", callers)
        for node in faced.nodes.values():
            node.instead = self.answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        assert request.path == "/api/caller"
        self.asked.append(request.headers["Authorization"])
        return web.json_response(self.said, status=self.status)

    async def status_of(self, token: str = TOKEN) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            ClientSession(headers=headers) as http,
            http.get(f"{self.faced.url}/api/nodes") as answer,
        ):
            return answer.status


@pytest_asyncio.fixture
async def nodes() -> AsyncIterator[Nodes]:
    async with faced_cluster() as faced:
        yield Nodes(faced)


async def test_a_user_is_asked_for_once_and_again_after_a_while_or_at_news(nodes: Nodes) -> None:
    assert [await nodes.status_of() for _ in range(5)] == [200] * 5
    assert nodes.asked == [f"Bearer {TOKEN}"]
    nodes.clock.advance(KNOWN_SECONDS)
    assert await nodes.status_of() == 200
    assert len(nodes.asked) == 2
    nodes.ring.announce()
    nodes.said, nodes.status = {"code": "unauthorized"}, 401
    assert await nodes.status_of() == 401
    assert len(nodes.asked) == 3


async def test_no_answer_outlasts_its_token(nodes: Nodes) -> None:
    ends = NOW + timedelta(seconds=3)
    nodes.said = {**USER, "expires_at": ends.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    assert await nodes.status_of() == 200
    nodes.clock.advance(3.0)
    assert await nodes.status_of() == 200
    assert len(nodes.asked) == 2


async def test_news_that_come_while_a_node_answers_count(nodes: Nodes) -> None:
    async def late(request: web.Request) -> web.StreamResponse:
        answer = await nodes.answer(request)
        nodes.ring.announce()
        return answer

    for node in nodes.faced.nodes.values():
        node.instead = late
    assert [await nodes.status_of() for _ in range(2)] == [200, 200]
    assert len(nodes.asked) == 2


async def test_nodes_that_answer_nothing_useful_make_nobody_known(nodes: Nodes) -> None:
    for status, said in (
        (200, {}),
        (200, {**USER, "role": "handle"}),
        (200, {**USER, "role": "king"}),
        (200, []),
        (404, {"code": "not_found"}),
        (500, {}),
    ):
        nodes.status, nodes.said = status, said
        assert await nodes.status_of() == 503
    # What is no user's token is no question for a node.
    before = len(nodes.asked)
    assert await nodes.status_of("pdk_unknown") == 401
    assert await nodes.status_of("admin-key") == 200
    assert len(nodes.asked) == before


async def test_a_role_that_is_not_sufficient_is_refused_here(nodes: Nodes) -> None:
    nodes.said = {**USER, "role": "metrics"}
    assert await nodes.status_of() == 403
    nodes.said = {**USER, "scopes": ["exec"]}
    nodes.ring.announce()
    assert await nodes.status_of() == 403
