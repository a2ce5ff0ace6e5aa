"""Several requests for one session at once: one creates it, the others wait and get it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientResponse

from orchestrator.ground.errors import EngineUnavailableError, ValidationError
from orchestrator.sessions.creation import Creation
from tests.api.conftest import OPERATOR_KEY, OTHER_KEY, Api
from tests.support.until import until

PATH = "/api/sessions/box"


class Gate:
    """Holds each creation until it is opened; `asked` counts them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.failures: list[BaseException] = []
        self.open = asyncio.Event()
        start = Creation._start

        async def held(creation: Creation, *arguments: Any) -> None:
            self.asked += 1
            await self.open.wait()
            if self.failures:
                raise self.failures.pop(0)
            await start(creation, *arguments)

        patch.setattr(Creation, "_start", held)


@pytest.fixture
async def gate(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.open.set()


async def _asked(api: Api, count: int, body: Any = None, key: str = OPERATOR_KEY) -> list[Any]:
    """Requests that are under way; each waits for the session."""
    found = [
        asyncio.create_task(api.call("PUT", PATH, key=key, json=body or {})) for _ in range(count)
    ]
    await until(lambda: _waiting(api) >= count - 1)
    return found


def _waiting(api: Api) -> int:
    creations = api.plane.sessions.creation.running._by_id.values()
    return sum(creation._waiting for creation in creations)


async def _told(found: list[Any]) -> list[tuple[int, dict[str, Any]]]:
    responses: list[ClientResponse] = await asyncio.gather(*found)
    return [(each.status, await each.json(content_type=None)) for each in responses]


async def test_eight_at_once_are_one_creation(api: Api, gate: Gate) -> None:
    found = await _asked(api, 8, {"labels": {"a": "b"}})
    gate.open.set()
    told = await _told(found)
    assert sorted(status for status, _ in told) == [200] * 7 + [201]
    assert {body["labels"]["a"] for _, body in told} == {"b"}
    assert sum("handle" in body for _, body in told) == 1
    assert gate.asked == 1
    events = (await api.json("GET", "/api/sessions/box/audit?operation=session.create"))["items"]
    assert len(events) == 1


async def test_eight_at_once_without_a_gate(api: Api) -> None:
    calls = [asyncio.create_task(api.call("PUT", PATH, json={})) for _ in range(8)]
    assert sorted(status for status, _ in await _told(calls)) == [200] * 7 + [201]
    assert len(api.engine.containers) == 1


async def test_a_post_in_progress_is_waited_for(api: Api, gate: Gate) -> None:
    first = asyncio.create_task(api.call("POST", "/api/sessions", json={"id": "box"}))
    await until(lambda: gate.asked == 1)
    # A creation by POST is of a new session.
    await api.problem(409, "conflict", "POST", "/api/sessions", json={"id": "BOX"})
    found = [asyncio.create_task(api.call("PUT", PATH, json={}))]
    await until(lambda: _waiting(api) == 1)
    gate.open.set()
    assert [status for status, _ in await _told([first, *found])] == [201, 200]


async def test_somebody_elses_is_a_conflict(api: Api, gate: Gate) -> None:
    found = await _asked(api, 1)
    await until(lambda: gate.asked == 1)
    await api.problem(409, "conflict", "PUT", PATH, json={}, key=OTHER_KEY)
    gate.open.set()
    assert [status for status, _ in await _told(found)] == [201]
    await api.problem(409, "conflict", "PUT", PATH, json={}, key=OTHER_KEY)


async def test_a_failure_of_the_host_is_everyones(api: Api, gate: Gate) -> None:
    found = await _asked(api, 4)
    gate.failures.append(EngineUnavailableError("the engine does not answer", reason="slow"))
    gate.open.set()
    told = await _told(found)
    assert [(status, body["code"]) for status, body in told] == [(503, "engine_unavailable")] * 4
    assert gate.asked == 1
    # Nothing is left of it.
    await api.json("PUT", PATH, json={}, status=201)


async def test_a_request_that_was_refused_leaves_the_turn_to_the_next(api: Api, gate: Gate) -> None:
    found = await _asked(api, 4)
    gate.failures.append(ValidationError("not like this", field="labels"))
    gate.open.set()
    assert sorted(status for status, _ in await _told(found)) == [200, 200, 201, 400]
    assert gate.asked == 2


async def _left(api: Api, *gone: asyncio.Task[Any]) -> None:
    """Clients that leave, once the server has noticed it."""
    assert api.server.handler is not None
    before = len(api.server.handler.connections)
    for each in gone:
        each.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    await until(lambda: len(api.server.handler.connections) == before - len(gone))


async def test_what_others_wait_for_outlives_the_client_that_left(
    api: Api, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(api.plane.sessions, "close", lambda *given, **_more: closed.append(given))
        first = asyncio.create_task(api.call("PUT", PATH, json={}))
        await until(lambda: gate.asked == 1)
        second = asyncio.create_task(api.call("PUT", PATH, json={}))
        await until(lambda: _waiting(api) == 1)
        await _left(api, first)
        gate.open.set()
        assert [status for status, _ in await _told([second])] == [200]
        assert (closed, (await api.json("GET", PATH))["status"]) == ([], "active")


async def test_what_nobody_waits_for_is_closed(api: Api, gate: Gate) -> None:
    first = asyncio.create_task(api.call("PUT", PATH, json={}))
    await until(lambda: gate.asked == 1)
    second = asyncio.create_task(api.call("PUT", PATH, json={}))
    await until(lambda: _waiting(api) == 1)
    await _left(api, first, second)
    gate.open.set()
    registry = api.plane.sessions.registry
    await until(lambda: (found := registry.get("box")) is not None and not found.live)
    assert (await api.json("GET", PATH))["status"] == "completed"
