"""Break-glass: admins touch other keys' sessions only by an access, on record and told."""

import asyncio
import json
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientResponse, web

from api.catalog import OPERATIONS
from api.shape.access import ROLES, Glass
from orchestrator.ground.errors import PermissionDeniedError
from orchestrator.operate.hooks.messages import HookMessage, messages_of, without_content
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.settings.settings import Settings
from paddock.contract.scopes import SCOPES
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, Api
from tests.api.test_live_terminals import PROTOCOLS, client_of, refused, ticket, url_of
from tests.api.test_roles import _request
from tests.support.cli import run_beside
from tests.support.documents import blocks
from tests.support.fake_agent import Play
from tests.support.keys import entry
from tests.support.limits import WAIT_SECONDS
from tests.support.previews import previews, program
from tests.support.restart import reopened
from tests.support.server import ROOT
from tests.support.until import until

CANARY = "canary-7f3a9c51"
SECOND = "pdk_second-admin-of-the-tests"
GLASS = "/api/sessions/box/break-glass"
EXEC = "/api/sessions/box/exec"
WHY = {"reason": "incident 4711"}
_QUERIES = {
    "describe_file": "?path=a.txt",
    "stat_file": "?path=a.txt",
    "search_files": "?text=a",
}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    assert settings.keys_file is not None
    settings.keys_file.write_text(
        entry("operator", OPERATOR_KEY) + entry("second", SECOND, "admin")
    )
    return settings.model_copy(
        update={"break_glass": True, "compat": ("e2b", "swerex", "openhands")}
    )


async def _with_content(api: Api) -> dict[str, Any]:
    """A session of the operator with a canary in all that it does; the command that still runs."""
    made = await api.session(id="box", key=OPERATOR_KEY, permission_level="low")
    api.agent.plays["tail"] = Play(stdout=CANARY.encode(), holds=True)
    api.agent.plays["cat"] = Play(stdout=CANARY.encode())
    await api.json("POST", EXEC, key=OPERATOR_KEY, json={"argv": ["cat", CANARY]})
    running = {"argv": ["tail", CANARY], "background": True}
    command = await api.json("POST", EXEC, status=202, key=OPERATOR_KEY, json=running)
    refused = {"argv": ["curl", CANARY]}
    await api.json("POST", EXEC, status=403, key=OPERATOR_KEY, json=refused)
    path = f"/api/sessions/box/files?path={CANARY}"
    await api.call("PUT", path, key=OPERATOR_KEY, data=CANARY.encode())
    note = {"text": CANARY, "tags": [CANARY]}
    await api.json("POST", "/api/memory", status=200, key=OPERATOR_KEY, json=note)
    return {**made, "command_id": command["command_id"]}


async def test_no_operation_gives_an_admin_any_content(api: Api) -> None:
    """All operations of the table, but those that end it, which come last."""
    made = await _with_content(api)
    recorded = await api.json("GET", "/api/sessions/box/audit", key=OPERATOR_KEY)
    assert CANARY in json.dumps(recorded)
    asked = len(api.agent.requests)
    ending = {"complete_session", "abort_session", "close_session", "pause_session"}
    stopping = {*ending, "interrupt_session"}
    outside = {"inspect_session", "move_session", "open_break_glass", "close_break_glass"}
    of_session = [each for each in OPERATIONS if "{session_id}" in each.path]
    assert {each.id for each in of_session if each.glass is Glass.OUTSIDE} == stopping | outside
    agent, guarded = api.agent, set()
    asked = len(agent.requests)
    for operation in OPERATIONS:
        if operation.id in (*stopping, "open_break_glass", "follow_all"):
            continue
        if Role.ADMIN not in ROLES[operation.access]:
            continue
        path, arguments = _request(operation, made["command_id"])
        path += _QUERIES.get(operation.id, "")
        headers = {"Mcp-Session-Id": "x"} if operation.id in SCOPES["mcp"].operations else {}
        response = await api.call(operation.method, path, headers=headers, **arguments)
        text = await response.text()
        assert CANARY not in text, operation.id
        if "{session_id}" in operation.path and operation.glass is not Glass.OUTSIDE:
            if response.status == 403:
                guarded.add(operation.id)
            if response.status == 403 and text:
                assert json.loads(text)["rule"] == "break-glass", operation.id
    assert len(agent.requests) == asked
    expected = {each.id for each in of_session if each.glass is not Glass.OUTSIDE}
    # It may exist already; it has no pack; and for a WebSocket, see below.
    other = {"ensure_session", "show_pack", "refine_session", "open_run_socket"}
    assert expected - guarded == other | {"open_live_terminal"}


async def test_lists_and_searches_show_no_content_of_other_keys(api: Api) -> None:
    await _with_content(api)
    await api.session(id="own")
    await api.json("POST", "/api/sessions/own/exec", json={"argv": ["cat", CANARY]})
    shown = await api.json("GET", "/api/sessions/box")
    assert (shown["commands"], shown["denials"], shown["processes"]) == ([], [], None)
    assert (shown["owner"], shown["break_glass"]) == ("operator", [])
    (box,) = (
        each for each in (await api.json("GET", "/api/sessions"))["items"] if each["id"] == "box"
    )
    assert box["commands"] == []
    found = (await api.json("GET", "/api/audit?limit=1000"))["items"]
    of_box = [each for each in found if each["session_id"] == "box"]
    assert CANARY not in json.dumps(of_box)
    assert "command.start" in [each["operation"] for each in of_box]
    assert all("salt" not in each or each["salt"] is None for each in of_box)
    # His own sessions are whole, and words find nothing elsewhere.
    assert CANARY in json.dumps([each for each in found if each["session_id"] == "own"])
    words = (await api.json("GET", f"/api/audit?text={CANARY}"))["items"]
    assert {each["session_id"] for each in words} == {"own"}
    async with api.client.get(
        "/api/events?after=0", headers={"Authorization": f"Bearer {ADMIN_KEY}"}
    ) as stream:
        lines = await _read_events(stream, len(found))
    assert CANARY not in json.dumps([each for each in lines if each["session_id"] == "box"])
    assert CANARY in json.dumps(lines)


async def _read_events(stream: ClientResponse, most: int) -> list[dict[str, Any]]:
    """The next events of a stream."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while len(found) < most:
            line = (await stream.content.readline()).decode()
            if line.startswith("data: {"):
                found.append(json.loads(line.removeprefix("data: ")))
    return found


async def test_the_faces_of_other_protocols_need_it_too(api: Api) -> None:
    made = await _with_content(api)
    agent = api.agent
    asked = len(agent.requests)
    headers = {"X-API-Key": ADMIN_KEY, "E2b-Sandbox-Id": "box", "X-Access-Token": ADMIN_KEY}
    for method, path in (
        ("GET", "swerex/box/is_alive"),
        ("POST", "swerex/box/execute"),
        ("POST", "swerex/box/read_file"),
        ("GET", "e2b/files?path=a.txt"),
        ("GET", "e2b/envs"),
        ("POST", "e2b/process.Process/List"),
        ("GET", "e2b/sandboxes/box/metrics"),
        ("POST", "e2b/sandboxes/box/connect"),
        ("GET", "openhands/box/server_info"),
        ("GET", "openhands/box/api/bash/bash_events/search"),
    ):
        response = await api.client.request(
            method,
            f"/compat/{path}",
            headers={**headers, "X-Session-API-Key": ADMIN_KEY},
            json={"command": "cat", "path": "a.txt", "timeout": 60},
        )
        text = await response.text()
        assert response.status in (403, 511), (path, response.status, text)
        assert "open access to its content first" in text, (path, text)
        assert CANARY not in text
        assert made["handle"] not in text
    assert len(agent.requests) == asked
    shown = await api.client.get("/compat/e2b/sandboxes/box", headers=headers)
    assert CANARY not in await shown.text()
    wanted = {"session_id": "box"}
    await api.problem(403, "permission_denied", "POST", "/api/tickets", json=wanted)
    # What stops acts there, too.
    killed = await api.client.delete("/compat/e2b/sandboxes/box", headers=headers)
    assert killed.status == 204


async def test_an_access_is_on_record_told_and_marks_what_is_done_by_it(api: Api) -> None:
    await _with_content(api)
    hook = {"url": "https://ci.example.com/told", "events": ["access.break_glass"]}
    await api.json("POST", "/api/hooks", status=201, json=hook)
    opened = await api.json("POST", GLASS, status=201, json={**WHY, "seconds": 600})
    assert (opened["key"], opened["reason"]) == ("admin", "incident 4711")
    # Told to its owner.
    shown = await api.json("GET", "/api/sessions/box", key=OPERATOR_KEY)
    assert shown["break_glass"] == [opened]
    answer = await api.json("POST", EXEC, json={"argv": ["cat", "a.txt"]})
    assert CANARY in answer["stdout"]
    closed = await api.json("DELETE", GLASS)
    assert closed["id"] == opened["id"]
    await api.problem(403, "permission_denied", "POST", EXEC, json={"argv": ["cat"]})
    await api.problem(404, "not_found", "DELETE", GLASS)
    events = await api.json("GET", "/api/sessions/box/audit?limit=1000", key=OPERATOR_KEY)
    marked = [each for each in events["items"] if "break_glass" in each["args"]]
    assert {each["args"]["break_glass"] for each in marked} == {opened["id"]}
    assert [each["operation"] for each in marked] == [
        "access.break_glass",
        "command.start",
        "command.exit",
        "access.end",
    ]
    first = marked[0]
    assert first["actor"] == "admin"
    assert (first["args"]["reason"], first["args"]["seconds"]) == ("incident 4711", 600)
    assert first["result"] == {"key": "admin", "until": opened["until"]}
    # What the owner does meanwhile is not marked, and an admin's search shows the reason.
    found = await api.json("GET", "/api/audit?operation=access.break_glass", key=SECOND)
    assert found["items"][0]["args"]["reason"] == "incident 4711"
    verdict = await api.json("GET", "/api/sessions/box/audit/verify", key=OPERATOR_KEY)
    assert verdict["ok"]


async def test_an_access_is_one_admin_s_and_one_session_s(api: Api) -> None:
    await _with_content(api)
    await api.session(id="other", key=OPERATOR_KEY)
    await api.json("POST", GLASS, status=201, json=WHY)
    body = {"argv": ["cat", "a.txt"]}
    await api.problem(403, "permission_denied", "POST", EXEC, key=SECOND, json=body)
    await api.problem(403, "permission_denied", "POST", "/api/sessions/other/exec", json=body)
    where = ("POST", GLASS)
    await api.problem(403, "permission_denied", *where, key=OPERATOR_KEY, json=WHY)
    await api.session(id="own")
    await api.problem(409, "conflict", "POST", "/api/sessions/own/break-glass", json=WHY)


async def test_another_request_replaces_the_access(api: Api) -> None:
    await _with_content(api)
    ids = [
        (await api.json("POST", GLASS, status=201, json={**WHY, "seconds": seconds}))["id"]
        for seconds in (60, 600)
    ]
    shown = await api.json("GET", "/api/sessions/box", key=OPERATOR_KEY)
    assert [each["id"] for each in shown["break_glass"]] == ids[1:]
    path = "/api/sessions/box/audit?operation=access.break_glass"
    events = (await api.json("GET", path, key=OPERATOR_KEY))["items"]
    assert [each["args"]["break_glass"] for each in events] == ids


async def test_nothing_is_handed_out_that_outlives_the_access(api: Api) -> None:
    made = await _with_content(api)
    await api.json("POST", GLASS, status=201, json=WHY)
    for path, body in (
        ("handle", {}),
        ("ports", {"port": 8000}),
        ("spawn", {"label": "reader"}),
    ):
        where = ("POST", f"/api/sessions/box/{path}")
        problem = await api.problem(403, "permission_denied", *where, json=body)
        assert (problem["rule"], "outlive" in problem["detail"]) == ("break-glass", True)
    response = await api.client.post(
        "/compat/e2b/sandboxes/box/connect", headers={"X-API-Key": ADMIN_KEY}, json={"timeout": 60}
    )
    assert made["handle"] not in await response.text()


@pytest.mark.parametrize("end", ["close", "time", "key"])
async def test_streams_end_with_the_access(api: Api, settings: Settings, end: str) -> None:
    await _with_content(api)
    opened = await api.json("POST", GLASS, status=201, json=WHY)
    headers = {"Authorization": f"Bearer {ADMIN_KEY if end != 'key' else SECOND}"}
    if end == "key":
        await api.json("POST", GLASS, status=201, key=SECOND, json=WHY)
    async with api.client.get("/api/sessions/box/events", headers=headers) as stream:
        await stream.content.readline()
        session = api.plane.sessions.registry.get("box")
        assert session is not None
        if end == "close":
            await api.json("DELETE", GLASS)
        elif end == "time":
            access = api.plane.glass.get(session.key, "admin")
            assert access is not None
            assert access.id == opened["id"]
            api.plane.accesses._end(access, "expired")
        else:
            assert settings.keys_file is not None
            settings.keys_file.write_text(entry("operator", OPERATOR_KEY))
            await api.plane.reload.look()
            assert api.plane.glass.get(session.key, "second") is None
        with suppress(ClientError):
            async with asyncio.timeout(WAIT_SECONDS):
                await stream.content.read()
    assert session.streams["events"] == 0


async def test_a_shell_ends_with_the_access(api: Api) -> None:
    await api.session(id="web", key=OPERATOR_KEY, permission_level="high")
    body = {"session_id": "web"}
    await api.problem(403, "permission_denied", "POST", "/api/tickets", json=body)
    glass = "/api/sessions/web/break-glass"
    await api.json("POST", glass, status=201, json=WHY)
    protocols = (*PROTOCOLS, f"ticket.{await ticket(api, 'web', ADMIN_KEY)}")
    async with client_of(api).ws_connect(url_of(api, "web"), protocols=protocols) as socket:
        await socket.receive()
        (live,) = api.plane.terminals.all_live
        await api.json("DELETE", glass)
        async with asyncio.timeout(WAIT_SECONDS):
            while not socket.closed:
                await socket.receive()
        await until(lambda: api.plane.terminals.all_live == [])
    assert live.reason == "key_revoked"
    # A ticket of before is worth nothing.
    assert await refused(api, "web", key=ADMIN_KEY) == 403


async def test_what_stops_needs_no_access(api: Api) -> None:
    made = await _with_content(api)
    shown = await api.json("POST", "/api/sessions/box/interrupt", json={})
    assert shown["commands"] == []
    message = {"message": "stop"}
    where = ("POST", "/api/sessions/box/interrupt")
    await api.problem(403, "permission_denied", *where, json=message)
    assert CANARY not in json.dumps(await api.json("POST", "/api/sessions/box/pause", json={}))
    await api.problem(403, "permission_denied", "POST", "/api/sessions/box/resume", json={})
    shown = await api.json("POST", "/api/sessions/box/abort", json={})
    assert (shown["status"], CANARY in json.dumps(shown)) == ("aborted", False)
    assert made["id"] == shown["id"]
    # What ended long ago stays closed, too.
    await api.problem(403, "permission_denied", "GET", "/api/sessions/box/audit")
    await api.problem(410, "session_terminated", "POST", GLASS, json=WHY)


async def test_the_end_of_a_session_ends_its_accesses(api: Api) -> None:
    await _with_content(api)
    await api.json("POST", GLASS, status=201, json=WHY)
    await api.json("DELETE", "/api/sessions/box", key=OPERATOR_KEY)
    await until(lambda: api.plane.glass.all == [])
    await api.problem(403, "permission_denied", "GET", "/api/sessions/box/audit")


async def test_bad_requests_open_nothing(api: Api) -> None:
    await _with_content(api)
    for body, field in (
        ({}, "reason"),
        ({"reason": ""}, "reason"),
        ({"reason": "  "}, "reason"),
        ({"reason": "x" * 1025}, "reason"),
        ({**WHY, "seconds": 0}, "seconds"),
        ({**WHY, "seconds": 28801}, "seconds"),
        ({**WHY, "seconds": "1"}, "seconds"),
        ({**WHY, "session": "x"}, "session"),
    ):
        problem = await api.problem(400, "validation_error", "POST", GLASS, json=body)
        assert problem["field"] == field
    assert api.plane.glass.all == []


async def test_it_is_off_by_default(api: Api) -> None:
    assert Settings.model_fields["break_glass"].default is False


async def test_a_restart_ends_every_access(api: Api, settings: Settings) -> None:
    await _with_content(api)
    await api.json("POST", GLASS, status=201, json=WHY)
    await api.plane.close()
    plane = await reopened(settings, api.engine, api.agents)
    try:
        admin = Principal("admin", Role.ADMIN)
        with pytest.raises(PermissionDeniedError, match="paddock break-glass box --reason"):
            plane.sessions.finder.find(admin, "box")
        assert plane.sessions.finder.outside(admin, "box").id == "box"
    finally:
        await plane.close()


async def test_the_page_s_example_works(
    api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each command of docs/break-glass.md, in its order."""
    await api.session(id="web-1", key=OPERATOR_KEY)
    api.agent.plays["ls"] = Play(stdout=CANARY.encode())
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = blocks((ROOT / "docs" / "break-glass.md").read_text())
    first, opening, told = [each.text.splitlines() for each in found if each.language == "sh"]
    ended = await run_beside(*shlex.split(first[0])[1:])
    assert (ended.status != 0, "paddock break-glass web-1" in ended.err) == (True, True)
    open_, use, end = [shlex.split(line)[1:] for line in opening]
    ended = await run_beside(*open_)
    assert (ended.status, "web-1 is open to admin until" in ended.out + ended.err) == (0, True)
    shown = await api.json("GET", "/api/sessions/web-1", key=OPERATOR_KEY)
    assert shown["break_glass"][0]["reason"] == "the build hangs: incident 4711"
    assert (await run_beside(*use)).out == CANARY
    assert (await run_beside(*end)).status == 0
    monkeypatch.setenv("PADDOCK_KEY", OPERATOR_KEY)
    ended = await run_beside(*shlex.split(told[0])[1:])
    assert "access.break_glass" in ended.out
    assert (await run_beside("break-glass", "web-1")).status == 2


async def test_a_hook_tells_of_the_access_and_an_admin_s_hook_has_no_content(api: Api) -> None:
    event: dict[str, Any] = {
        "operation": "access.break_glass",
        "session_id": "box",
        "args": {"break_glass": "acc-1", "reason": "incident 4711", "seconds": 60},
        "result": {"key": "admin", "until": "2026-03-04T10:30:12.482113Z"},
    }
    (message,) = messages_of(event, ["access.break_glass"])
    assert message.data == {**event["args"], **event["result"]}
    missed = HookMessage("context.miss", {"error": CANARY})
    assert without_content(missed).data == {}
    body = {"url": "https://ci.example.com/told", "events": ["session.closed"]}
    hook = await api.json("POST", "/api/hooks", status=201, json=body)
    assert not api.plane.hooks._running[hook["id"]].deliveries._whole


async def test_a_page_of_a_port_is_not_for_an_admin(api: Api) -> None:
    async with previews(api.plane) as shown, program(_told) as running:
        await api.session(id="box", key=OPERATOR_KEY)
        body = {"port": running.port}
        path = "/api/sessions/box/ports"
        await api.json("POST", path, json=body, key=OPERATOR_KEY, status=201)
        page = f"/s/box/{running.port}/"
        answer = await shown.get(page, key=ADMIN_KEY)
        assert (answer.status, CANARY in await answer.text()) == (403, False)
        await api.json("POST", GLASS, status=201, json=WHY)
        answer = await shown.get(page, key=ADMIN_KEY)
        assert (answer.status, await answer.text()) == (200, CANARY)
        await api.json("DELETE", GLASS)
        assert (await shown.get(page, key=ADMIN_KEY)).status == 403
        assert (await shown.get(page, key=OPERATOR_KEY)).status == 200


async def _told(request: web.Request) -> web.Response:
    return web.Response(text=CANARY)
