"""Terminals and approvals of sessions whose id was used again, also after a restart."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.settings.settings import Settings
from paddock import NotFoundError, Paddock, ValidationError
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api, served
from tests.api.test_client_terminals import TOOLS
from tests.support.cli import run_beside
from tests.support.fake_agent import Agents
from tests.support.restart import reopened

pytestmark = pytest.mark.slow

BOX = "/api/sessions/box"
APPROVALS = "/api/approvals"
KEY: dict[str, Any] = {"key": OPERATOR_KEY}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Ended sessions are not kept in memory."""
    return settings.model_copy(update={"terminated_ttl": 0, "tools_dir": TOOLS})


async def use(api: Api, word: str) -> tuple[str, str]:
    """A session that wrote a line to a terminal and requested an approval; the two ids."""
    await api.session(id="box", tools=["fake"], **KEY)
    opened = await api.json("POST", f"{BOX}/ptys", json={"tool": "fake"}, status=201, **KEY)
    lines = f"{BOX}/ptys/{opened['id']}/interactions"
    said = {"tool": "fake.say", "command": f"say {word}"}
    await api.json("POST", lines, json=said, **KEY)
    asked = {"tool": "fake.reset", "command": f"reset {word}"}
    pending = await api.json("POST", lines, json=asked, status=202, **KEY)
    return opened["id"], pending["approval"]["id"]


async def twice(api: Api) -> list[tuple[str, str]]:
    """Two sessions of one id; the second is live."""
    first = await use(api, "one")
    await api.json("DELETE", BOX, **KEY)
    return [first, await use(api, "two")]


async def names(api: Api, path: str, **arguments: Any) -> list[str]:
    answer = await api.json("GET", path, **{**KEY, **arguments})
    return [item["id"] for item in answer["items"]]


async def check_past(api: Api, made: list[tuple[str, str]]) -> None:
    """Each session is found by its number, and the latest one without a number."""
    for number, word in ((1, "one"), (2, "two")):
        pty, approval = made[number - 1]
        for which in (f"incarnation={number}", *([""] if number == 2 else [])):
            assert await names(api, f"{BOX}/ptys?{which}") == [pty]
            read = await api.json("GET", f"{BOX}/ptys/{pty}?{which}", **KEY)
            assert (read["id"], read["interaction_count"]) == (pty, 1)
            response = await api.call("GET", f"{BOX}/ptys/{pty}/transcript?{which}", **KEY)
            assert f"say {word}" in await response.text()
            assert await names(api, f"{APPROVALS}?session=box&{which}") == [approval]
        (listed,) = (await api.json("GET", f"{APPROVALS}?session=box&incarnation={number}"))[
            "items"
        ]
        assert (listed["incarnation"], listed["command"]) == (number, f"reset {word}")
    first, second = made
    ended = await api.json("GET", f"{BOX}/ptys/{first[0]}?incarnation=1", **KEY)
    assert (ended["reason"], ended["evidence"]["raw_bytes"] > 0) == ("session_ended", True)
    # Neither session has the other's terminals.
    for suffix in ("", "/transcript"):
        for pty, which in (
            (first[0], ""),
            (first[0], "?incarnation=2"),
            (second[0], "?incarnation=1"),
        ):
            path = f"{BOX}/ptys/{pty}{suffix}{which}"
            await api.problem(404, "not_found", "GET", path, **KEY)
    assert await names(api, f"{APPROVALS}?session=box&incarnation=1&status=expired") == [first[1]]
    assert await names(api, f"{APPROVALS}?session=box&incarnation=1&status=pending") == []
    assert await names(api, APPROVALS) == [second[1], first[1]]


async def test_terminals_and_approvals_of_an_earlier_use(api: Api) -> None:
    made = await twice(api)
    await check_past(api, made)
    # Only live sessions accept lines and decisions.
    said = {"tool": "fake.say", "command": "say more"}
    lines = f"{BOX}/ptys/{made[0][0]}/interactions"
    await api.problem(404, "not_found", "POST", lines, json=said, **KEY)
    assert (await api.call("POST", f"{lines}?incarnation=1", json=said, **KEY)).status == 400
    await api.json("DELETE", BOX, **KEY)
    # No session is live, so the latest is the one that ended last.
    assert await names(api, f"{BOX}/ptys") == [made[1][0]]
    await check_past(api, made)


@asynccontextmanager
async def restarted(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> AsyncIterator[tuple[Api, list[tuple[str, str]]]]:
    """The API after a restart, with what was created before the restart."""
    plane = await ControlPlane.open(settings, engine)
    async with served(plane, engine, agents) as api:
        made = await twice(api)
    await plane.close()
    plane = await reopened(settings, engine, agents)
    try:
        async with served(plane, engine, agents) as api:
            yield api, made
            await api.json("DELETE", BOX, **KEY)
    finally:
        await plane.close()


async def test_they_outlive_a_restart(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    async with restarted(settings, engine, agents) as (api, made):
        await check_past(api, made)


@pytest.mark.parametrize("what", ["/ptys", "/ptys/{}", "/ptys/{}/transcript", None])
async def test_what_can_not_be_read(api: Api, what: str | None) -> None:
    (pty, _), _ = await twice(api)
    path = f"{APPROVALS}?session=box&" if what is None else f"{BOX}{what.format(pty)}?"
    assert (await api.call("GET", f"{path}incarnation=1", **KEY)).status == 200
    await api.problem(404, "not_found", "GET", f"{path}incarnation=3", **KEY)
    for bad in ("0", "-1", "x", "1.0", ""):
        problem = await api.problem(400, "validation_error", "GET", f"{path}incarnation={bad}")
        assert problem["field"] == "incarnation"
    # Other callers don't find it either.
    await api.problem(404, "not_found", "GET", f"{path}incarnation=1", key=OTHER_KEY)
    handle = (await api.json("POST", f"{BOX}/handle", json={}))["handle"]
    expected = (403, "permission_denied") if what is None else (404, "not_found")
    await api.problem(*expected, "GET", f"{path}incarnation=1", key=handle)


@pytest.mark.parametrize("path", [APPROVALS, "/api/audit"])
async def test_a_number_is_of_a_session(api: Api, path: str) -> None:
    problem = await api.problem(400, "validation_error", "GET", f"{path}?incarnation=1")
    assert problem["field"] == "incarnation"
    problem = await api.problem(404, "not_found", "GET", f"{APPROVALS}?session=none")
    assert "no session none" in problem["detail"]


async def test_by_the_client(api: Api) -> None:
    (pty, approval), latest = await twice(api)
    async with Paddock(str(api.server.make_url("")), OPERATOR_KEY) as paddock:
        past = paddock.sessions.terminals("box", incarnation=1)
        (terminal,) = await past.list()
        assert terminal.id == pty == (await past.get(pty)).id
        assert "say one" in await terminal.transcript()
        assert (await terminal.refresh()).reason == "session_ended"
        with pytest.raises(NotFoundError):
            await past.get(latest[0])
        assert [each.id for each in await paddock.sessions.terminals("box").list()] == [latest[0]]
        (asked,) = await paddock.approvals.list(session="box", incarnation=1)
        assert (asked.id, asked.incarnation) == (approval, 1)
        assert [each.id for each in await paddock.approvals.list(session="box")] == [latest[1]]
        with pytest.raises(ValidationError):
            await paddock.approvals.list(incarnation=1)


async def test_at_the_command_line(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    (pty, approval), latest = await twice(api)
    one = ("--incarnation", "1")
    for which, wanted in ((one, pty), ((), latest[0])):
        listed = await run_beside("ptys", "list", "box", *which, "--json")
        assert [each["id"] for each in json.loads(listed.out)] == [wanted]
    transcript = await run_beside("ptys", "transcript", "box", pty, *one)
    assert (transcript.status, "say one" in transcript.out) == (0, True)
    assert (await run_beside("ptys", "transcript", "box", pty)).status != 0
    for which, wanted in ((one, approval), ((), latest[1])):
        listed = await run_beside("approvals", "list", "--session", "box", *which, "--json")
        assert [each["id"] for each in json.loads(listed.out)] == [wanted]
    assert "incarnation" in (await run_beside("approvals", "list", *one)).err
