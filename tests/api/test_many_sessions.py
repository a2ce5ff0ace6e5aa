"""40 sessions: they are listed as a whole, and closing all but one does not delay that one."""

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import ExitStack
from typing import TypeVar

import pytest

from orchestrator.rules.access.keys import Principal, Role
from orchestrator.settings.settings import Settings
from tests.api.conftest import ADMIN_KEY, Api

pytestmark = pytest.mark.slow

COUNT = 40
_AT_ONCE = 8
_AUTH = {"Authorization": f"Bearer {ADMIN_KEY}"}
_TESTER = Principal("test", Role.ADMIN)

T = TypeVar("T")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"max_active": COUNT})


async def _some_at_a_time(calls: Iterable[Awaitable[T]]) -> list[T]:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Awaitable[T]) -> T:
        async with turns:
            return await call

    return await asyncio.gather(*map(one, calls))


async def _create(api: Api) -> str:
    body = {"permission_level": "low"}
    async with api.client.post("/api/sessions", json=body, headers=_AUTH) as response:
        assert response.status == 201, await response.text()
        return str((await response.json())["id"])


async def test_removals_that_hang_delay_no_other_session(api: Api) -> None:
    first, *others = await _some_at_a_time(_create(api) for _ in range(COUNT))
    listed = await api.json("GET", "/api/sessions?limit=1000")
    assert len(listed["items"]) == COUNT
    with ExitStack() as used:
        for session in api.plane.sessions.registry.live:
            used.enter_context(session.using())
        await api.problem(503, "capacity_exhausted", "POST", "/api/sessions", json={})
    hanging = [api.engine.hang_next("remove") for _ in others]
    # Without HTTP: a client has fewer connections.
    sessions = api.plane.sessions
    closings = [
        asyncio.create_task(sessions.close(_TESTER, session, purge=True))
        for session in sessions.registry.all
        if session.id != first
    ]
    try:
        while api.engine.calls.count("remove") < _AT_ONCE:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)
        path = f"/api/sessions/{first}/exec"
        result = await api.json("POST", path, json={"argv": ["ls"]})
        assert result["exit_code"] == 0
        assert not any(closing.done() for closing in closings)
    finally:
        for released in hanging:
            released.set()
        await asyncio.gather(*closings)
    assert len(api.engine.containers) == 1
    assert (await api.json("GET", f"/api/sessions/{first}"))["status"] == "active"
