"""Live terminals with a fake agent: who may open them, tickets, origins, frames, recordings."""

import asyncio
import json
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, WSServerHandshakeError
from yarl import URL

from orchestrator.ground.errors import BusyError
from orchestrator.rules.access.keys import KeyRing, Principal, Role, digest
from orchestrator.sessions.tickets import MOST_OF_KEY
from orchestrator.work.terminals import evidence
from orchestrator.work.terminals.shell import SHELL_LIMITS
from orchestrator.work.terminals.viewers import Size
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.live import LiveViewer, live
from tests.support.until import until

PROTOCOLS = ("paddock.terminal",)


def viewer(
    api: Api, session_id: str, key: str | None = OPERATOR_KEY, **options: Any
) -> AbstractAsyncContextManager[LiveViewer]:
    query = options.pop("query", {})
    return live(client_of(api), str(url_of(api, session_id, query)), key, **options)


def client_of(api: Api) -> ClientSession:
    return api.client.session


def url_of(api: Api, session_id: str, query: Any = None) -> URL:
    return api.server.make_url(f"/api/sessions/{session_id}/terminal").with_query(query or {})


async def high(api: Api, session_id: str, **more: Any) -> dict[str, Any]:
    return await api.session(id=session_id, permission_level="high", key=OPERATOR_KEY, **more)


async def ticket(api: Api, session_id: str, key: str = OPERATOR_KEY) -> str:
    body = {"session_id": session_id}
    made = await api.json("POST", "/api/tickets", json=body, key=key, status=201)
    found: str = made["ticket"]
    return found


async def refused(api: Api, session_id: str, **options: Any) -> int:
    with pytest.raises(WSServerHandshakeError) as failure:
        async with viewer(api, session_id, **options):
            pass
    return failure.value.status


async def events(api: Api, session_id: str, operation: str) -> list[dict[str, Any]]:
    path = f"/api/sessions/{session_id}/audit?operation={operation}"
    found: list[dict[str, Any]] = (await api.json("GET", path))["items"]
    return found


async def test_a_shell_from_its_start_to_its_recording(api: Api) -> None:
    session = await high(api, "web", secrets={"TOKEN": "hidden-value-1"})
    async with viewer(api, "web", query={"cols": 100, "rows": 30}) as one:
        assert one.terminal == {
            **{"id": one.terminal["id"], "kind": "shell", "tool": "shell"},
            **{"writable": True, "cols": 100, "rows": 30},
        }
        await one.until("$ ")
        await one.type("echo é hidden-value-1\r")
        await one.until("value-1\r")
        async with viewer(api, "web", query={"pty": one.terminal["id"], "watch": "1"}) as two:
            assert two.terminal["writable"] is False
            await two.until("value-1\r")  # it was printed before
            await one.resize(120, 40)
            while two.told[-1] != {"resize": {"cols": 120, "rows": 40}}:
                await two.next()
            api.agent.terminals.end(one.terminal["id"], 3, None)
            ended = {"exit": {"exit_code": 3, "signal": None, "reason": "exited"}}
            assert [await one.end(), await two.end()] == [ended, ended]
            assert [each.closed and each.closed[0] for each in (one, two)] == [1000, 1000]
    path = f"/api/sessions/web/ptys/{one.terminal['id']}"
    shown = await api.json("GET", path, key=OPERATOR_KEY)
    assert (shown["kind"], shown["tool"], shown["exit_code"]) == ("shell", "shell", 3)
    response = await api.call("GET", f"{path}/recording", key=OPERATOR_KEY)
    text = await response.text()
    assert "hidden-value-1" not in text
    header, *lines = map(json.loads, text.splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, 100, 30)
    assert [line[1:] for line in lines if line[1] == "r"] == [["r", "120x40"]]
    typed = "".join(line[2] for line in lines if line[1] == "i")
    printed = "".join(line[2] for line in lines if line[1] == "o")
    assert typed.startswith("echo é ")
    assert printed == f"$ {typed}"
    assert [line[0] for line in lines] == sorted(line[0] for line in lines)
    (closed,) = await events(api, "web", "pty.close")
    assert closed["result"]["recording_hash"] == f"sha256:{digest(text)}"
    assert closed["result"]["recording_bytes"] == len(text.encode())
    handle = session["handle"]
    await api.problem(403, "permission_denied", "GET", f"{path}/recording", key=handle)
    assert api.plane.sessions.registry.get("web").streams.total() == 0  # type: ignore[union-attr]


async def test_only_a_level_with_any_command_has_a_shell(api: Api) -> None:
    await api.session(id="box", permission_level="medium", key=OPERATOR_KEY)
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    headers = {**upgrade, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    path = "/api/sessions/box/terminal"
    problem = await api.problem(403, "permission_denied", "GET", path, headers=headers)
    assert problem["rule"] == "shell-level"
    assert not api.agent.terminals.all
    (denied,) = await events(api, "box", "pty.open")
    assert (denied["decision"], denied["rule"]) == ("deny", "shell-level")
    # Without an upgrade, nothing is opened.
    await high(api, "web")
    await api.problem(400, "validation_error", "GET", "/api/sessions/web/terminal")
    for query in ({"cols": 0}, {"rows": 501}, {"watch": "x"}, {"more": 1}):
        assert await refused(api, "web", query=query) == 400
    assert await refused(api, "web", query={"pty": "pty-0"}) == 404
    assert not api.agent.terminals.all


async def test_who_may_open_a_live_terminal(api: Api) -> None:
    session = await high(api, "web")
    assert await refused(api, "web", key=session["handle"]) == 403
    assert await refused(api, "web", key=OTHER_KEY) == 404
    assert await refused(api, "web", key=None) == 401
    handle = session["handle"]
    body = {"session_id": "web"}
    await api.problem(403, "permission_denied", "POST", "/api/tickets", json=body, key=handle)
    await api.problem(404, "not_found", "POST", "/api/tickets", json=body, key=OTHER_KEY)
    async with viewer(api, "web") as one:
        path = f"/api/sessions/web/ptys/{one.terminal['id']}"
        await api.problem(403, "permission_denied", "DELETE", path, key=handle)
        ended = await api.json("DELETE", path, key=OPERATOR_KEY)
        assert (ended["kind"], ended["reason"]) == ("shell", "closed")
        assert (await one.end())["exit"]["reason"] == "closed"


async def test_a_page_opens_one_with_a_ticket(api: Api) -> None:
    await high(api, "web")
    await high(api, "other")
    given = await ticket(api, "web")
    protocols = (*PROTOCOLS, f"ticket.{given}")
    own = {"Origin": str(api.server.make_url("/")).rstrip("/")}
    async with viewer(api, "web", key=None, protocols=protocols, headers=own) as one:
        assert one.socket.protocol == "paddock.terminal"
        assert one.terminal["writable"]
    assert await refused(api, "web", key=None, protocols=protocols) == 401
    elsewhere = (*PROTOCOLS, f"ticket.{await ticket(api, 'web')}")
    assert await refused(api, "other", key=None, protocols=elsewhere) == 401
    assert await refused(api, "web", key=None, protocols=elsewhere) == 401
    # A ticket is no credential anywhere else.
    other = await ticket(api, "web")
    await api.problem(401, "unauthorized", "GET", "/api/sessions/web", key=other)


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost"]
)
async def test_pages_of_other_origins_are_refused(api: Api, origin: str) -> None:
    await high(api, "web")
    foreign = {"Origin": origin}
    assert await refused(api, "web", headers=foreign) == 403
    protocols = (*PROTOCOLS, f"ticket.{await ticket(api, 'web')}")
    assert await refused(api, "web", key=None, protocols=protocols, headers=foreign) == 403
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    path = "/api/sessions/web/mcp"
    for method, body in (("POST", {"json": message}), ("GET", {}), ("DELETE", {})):
        problem = await api.problem(403, "permission_denied", method, path, headers=foreign, **body)
        assert problem["rule"] == "foreign-origin"
    assert not api.agent.terminals.all


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("nonsense", 1008),
        ('{"resize": {"cols": 0, "rows": 1}}', 1008),
        ('{"resize": {"cols": 1, "rows": 1}, "more": 1}', 1008),
        ('{"resize": {"cols": 1, "cols": 2, "rows": 1}}', 1008),
        ("[" * 1000, 1008),
        ("x" * 70_000, 1009),
    ],
)
async def test_a_malformed_frame_closes_the_socket(api: Api, frame: str, code: int) -> None:
    await high(api, "web")
    async with viewer(api, "web") as one:
        await one.socket.send_str(frame)
        await one.end()
        assert one.closed is not None
        assert one.closed[0] == code
    # The shell is left, and can be watched again.
    async with viewer(api, "web", query={"pty": one.terminal["id"]}) as two:
        await two.until("$ ")


async def test_who_only_watches_types_nothing(api: Api) -> None:
    await high(api, "web")
    async with viewer(api, "web") as one:
        query = {"pty": one.terminal["id"], "watch": "true"}
    async with viewer(api, "web", query=query) as two:
        await two.resize(10, 10)
        await two.type("rm -rf .\r")
        await two.end()
        assert two.closed is not None
        assert two.closed[0] == 1008
    sent = api.agent.terminals.all[one.terminal["id"]].sent
    assert sent == []


async def test_a_shell_ends_with_its_key(api: Api) -> None:
    await high(api, "web")
    async with viewer(api, "web") as one:
        pass
    # Detached, it stays; and it ends without anybody who watches.
    terminals = api.plane.terminals
    assert [live.id for live in terminals.all_live] == [one.terminal["id"]]
    admin = {digest(ADMIN_KEY): Principal("admin", Role.ADMIN)}
    api.plane.keys.replace(KeyRing(admin))
    await until(lambda: not terminals.all_live)
    shown = await api.json("GET", f"/api/sessions/web/ptys/{one.terminal['id']}")
    assert shown["reason"] == "key_revoked"


async def test_a_key_that_only_reads_now_has_no_shell(api: Api) -> None:
    await high(api, "web")
    protocols = (*PROTOCOLS, f"ticket.{await ticket(api, 'web')}")
    async with viewer(api, "web", key=None, protocols=protocols) as one:
        await one.until("$ ")
        pty = one.terminal["id"]
        seen = (*PROTOCOLS, f"ticket.{await ticket(api, 'web')}")
        query = {"pty": pty, "watch": "1"}
        async with viewer(api, "web", key=None, protocols=seen, query=query) as two:
            lowered = Principal("operator", Role.VIEWER)
            admin = Principal("admin", Role.ADMIN)
            keys = {digest(OPERATOR_KEY): lowered, digest(ADMIN_KEY): admin}
            api.plane.keys.replace(KeyRing(keys))
            await one.end()
            await two.end()
    await until(lambda: not api.plane.terminals.all_live)
    shown = await api.json("GET", f"/api/sessions/web/ptys/{pty}")
    assert shown["reason"] == "key_revoked"


async def test_no_more_shells_are_opened_at_once(api: Api) -> None:
    await high(api, "web")
    session = api.plane.sessions.registry.get("web")
    assert session is not None
    operator = Principal("operator", Role.OPERATOR, sha256=digest(OPERATOR_KEY))
    opened = await asyncio.gather(
        *(api.plane.shells.open(operator, session, Size(80, 24)) for _ in range(9)),
        return_exceptions=True,
    )
    assert sum(isinstance(each, BusyError) for each in opened) == 5
    assert len(api.plane.terminals.all_live) == 4


async def test_a_recording_that_is_not_read_to_its_end_is_not_left_open(api: Api) -> None:
    await high(api, "web")
    async with viewer(api, "web") as one:
        await one.until("$ ")
    session = api.plane.sessions.registry.get("web")
    assert session is not None
    lines = await api.plane.terminals.records.recording(session.key, one.terminal["id"])
    open_files = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    recordings = [each for each in open_files if each.resolve().name == "recording.cast"]
    assert len(recordings) == 1  # its writer's
    await lines.aclose()


async def test_a_shell_that_nobody_uses_ends(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    soon = SHELL_LIMITS._replace(idle_seconds=0.05)
    monkeypatch.setattr(api.plane.shells, "_limits", soon)
    await high(api, "web")
    async with viewer(api, "web") as one:
        assert (await one.end())["exit"]["reason"] == "idle_timeout"
    (closed,) = await events(api, "web", "pty.close")
    assert closed["args"]["reason"] == "idle_timeout"


async def test_a_shell_ends_when_its_recording_is_full(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await high(api, "web")
    async with viewer(api, "web") as one:
        monkeypatch.setattr(evidence, "MOST_RECORDING_BYTES", 1000)
        await one.type("x" * 2000)
        await one.end()
        assert one.closed is not None
        assert one.closed[0] == 1011
    await until(lambda: not api.plane.terminals.all_live)
    (closed,) = await events(api, "web", "pty.close")
    assert closed["args"]["reason"] == "evidence_unavailable"
    # What could not be recorded was not typed.
    assert api.agent.terminals.all[one.terminal["id"]].sent == []


async def test_shells_and_viewers_are_counted(api: Api) -> None:
    await high(api, "web")
    for _ in range(4):
        async with viewer(api, "web"):
            pass
    assert await refused(api, "web") == 409
    assert len(api.plane.terminals.all_live) == 4
    given = [await ticket(api, "web") for _ in range(MOST_OF_KEY + 1)]
    first = (*PROTOCOLS, f"ticket.{given[0]}")
    assert await refused(api, "web", key=None, protocols=first) == 401
    await api.json("DELETE", "/api/sessions/web", key=OPERATOR_KEY)
    body = {"session_id": "web"}
    await api.problem(
        410, "session_terminated", "POST", "/api/tickets", json=body, key=OPERATOR_KEY
    )
