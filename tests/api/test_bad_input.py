"""Bad input, accidental or malicious, gets a clear error and changes nothing."""

import asyncio
import io
import json
import logging
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from api.app import create_app
from api.http.body import Pace
from orchestrator.control_plane import ControlPlane
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cases import each
from tests.support.limits import WAIT_SECONDS

SESSIONS = "/api/sessions"


@pytest.fixture
async def session(api: Api) -> str:
    """The path of a session."""
    return f"{SESSIONS}/{(await api.session())['id']}"


@each(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"{}{}",
        b'{"id": NaN}',
        b'{"id": Infinity}',
        b'{"limits": {"cpus": 1e999}}',
        b'{"idle_timeout": ' + b"9" * 5000 + b"}",
        b"\xff\xfe",
        b'{"id": "\xff"}',
        b'{"id": "a", "id": "b"}',
        b'{"labels": ' * 2000,
        b'{"labels": ' + b"[" * 50 + b"]" * 50 + b"}",
        b"[" * 100_000,
        b'{"id": "\\ud800"}',
        b'{"id": "a\\u0000"}',
        b'{"\\ud800": 1}',
        b'{"a": "\x00"}',
    ],
)
async def test_bodies_that_are_no_objects(api: Api, body: bytes) -> None:
    problem = await api.problem(400, "validation_error", "POST", SESSIONS, data=body)
    assert len(problem["detail"]) < 300
    assert (await api.json("GET", SESSIONS))["items"] == []


@each(
    ("body", "field"),
    [
        ({"nope": 1}, "nope"),
        ({"id": 5}, "id"),
        ({"id": ""}, "id"),
        ({"id": ".."}, "id"),
        ({"id": "a/b"}, "id"),
        ({"id": "-a"}, "id"),
        ({"id": "a\n"}, "id"),
        ({"id": "x" * 129}, "id"),
        ({"permission_level": "root"}, "permission_level"),
        ({"image": "evil:latest"}, "image"),
        ({"image": ""}, "image"),
        ({"labels": []}, "labels"),
        ({"labels": {"a:b": "x"}}, "labels.a:b"),
        ({"labels": {"a": 1}}, "labels.a"),
        ({"labels": {"a": "x" * 1025}}, "labels.a"),
        ({"labels": {str(n): "" for n in range(65)}}, "labels"),
        ({"env": {"A=B": "x"}}, "env.A=B"),
        ({"env": {"TZ": "x" * 40_000}}, "env.TZ"),
        ({"env": {"LD_PRELOAD": "x"}}, "env"),
        ({"limits": {"cpus": "1"}}, "limits.cpus"),
        ({"limits": {"cpus": True}}, "limits.cpus"),
        ({"limits": {"cpus": 0}}, "limits.cpus"),
        ({"limits": {"cpus": 64}}, "limits.cpus"),
        ({"limits": {"memory_bytes": 1.5}}, "limits.memory_bytes"),
        ({"limits": {"memory_bytes": 10**15}}, "limits.memory_bytes"),
        ({"limits": {"gpus": 1}}, "limits.gpus"),
        ({"idle_timeout": 0}, "idle_timeout"),
        ({"idle_timeout": 10**9}, "idle_timeout"),
        ({"idle_timeout": "10"}, "idle_timeout"),
    ],
)
async def test_sessions_that_can_not_be(api: Api, body: dict[str, Any], field: str) -> None:
    problem = await api.problem(400, "validation_error", "POST", SESSIONS, json=body)
    assert problem["field"] == field
    assert (await api.json("GET", SESSIONS))["items"] == []
    assert not api.engine.containers


@each(
    ("body", "field"),
    [
        ({}, None),
        ({"command": "ls", "argv": ["ls"]}, None),
        ({"command": ""}, "command"),
        ({"command": "x" * 70_000}, "command"),
        ({"command": ["ls"]}, "command"),
        ({"argv": []}, "argv"),
        ({"argv": [""]}, "argv"),
        ({"argv": "ls"}, "argv"),
        ({"argv": ["ls", 1]}, "argv.1"),
        ({"argv": ["ls", "a\0b"]}, "argv.1"),
        ({"argv": ["ls", "\ud800"]}, "argv.1"),
        ({"argv": ["x"] * 100_000}, "argv"),
        ({"argv": ["ls", "x" * 140_000]}, "argv.1"),
        ({"argv": ["ls"] + ["x" * 100_000] * 22}, "argv"),
        ({"argv": ["ls"], "cwd": "/etc"}, "cwd"),
        ({"argv": ["ls"], "cwd": "../.."}, "cwd"),
        ({"argv": ["ls"], "cwd": "a\0"}, "cwd"),
        ({"argv": ["ls"], "cwd": 1}, "cwd"),
        ({"argv": ["ls"], "env": {"TZ": "a\0b"}}, "env.TZ"),
        ({"argv": ["ls"], "env": {"": "x"}}, "env."),
        ({"argv": ["ls"], "timeout": 0}, "timeout"),
        ({"argv": ["ls"], "timeout": "1.5"}, "timeout"),
        ({"argv": ["ls"], "timeout": True}, "timeout"),
        ({"argv": ["ls"], "timeout": 10**6}, "timeout"),
        ({"argv": ["ls"], "stdin": "x" * 1_100_000}, "stdin"),
        ({"argv": ["ls"], "stdin": 1}, "stdin"),
        ({"argv": ["ls"], "stdin_base64": "no base64!"}, "stdin_base64"),
        ({"argv": ["ls"], "stdin_base64": "eA"}, "stdin_base64"),
        ({"argv": ["ls"], "stdin_base64": 1}, "stdin_base64"),
        ({"argv": ["ls"], "stdin_base64": "AAAA" * 400_000}, "stdin_base64"),
        ({"argv": ["ls"], "stdin": "", "stdin_base64": ""}, None),
        ({"argv": ["ls"], "background": "yes"}, "background"),
        ({"argv": ["ls"], "shell": True}, "shell"),
    ],
)
async def test_commands_that_can_not_be(
    api: Api, session: str, body: dict[str, Any], field: str | None
) -> None:
    data = io.BytesIO(json.dumps(body).encode())
    problem = await api.problem(400, "validation_error", "POST", session + "/exec", data=data)
    assert problem.get("field") == field
    assert not any(method == "exec" for method, _ in api.agent.requests)
    assert (await api.json("GET", session + "/audit?operation=command.start"))["items"] == []


@each("signal", ["", "SIGNOPE", "SEGV", 0, -9, 64, 1.5, True, None, ["KILL"]])
async def test_signals_that_can_not_be(api: Api, session: str, signal: Any) -> None:
    where = ("POST", f"{session}/processes/x/signal")
    problem = await api.problem(400, "validation_error", *where, json={"signal": signal})
    assert problem["field"] == "signal"


@each(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("limit=-1", "limit"),
        ("limit=1_0", "limit"),
        ("limit=%201", "limit"),
        ("limit=", "limit"),
        ("status=dead", "status"),
        ("label=x", "label"),
        ("cursor=x", "cursor"),
        ("cursor=%C3%A9", "cursor"),
        ("nope=1", "nope"),
        ("limit=1&limit=2", None),
        ("%FF=1", None),
        ("&".join(f"a{n}=1" for n in range(100)), None),
    ],
)
async def test_queries_that_can_not_be(api: Api, query: str, field: str | None) -> None:
    problem = await api.problem(400, "validation_error", "GET", f"{SESSIONS}?{query}")
    assert problem.get("field") == field


async def test_queries_of_others(api: Api) -> None:
    path = f"{SESSIONS}/{(await api.session())['id']}"
    for method, rest in [
        ("DELETE", "?purge=yes"),
        ("GET", "?x=1"),
        ("GET", "/audit?after=-1"),
        ("GET", "/audit?decision=maybe"),
        ("GET", "/audit/export?format=csv"),
        ("GET", "/audit/verify?seq=1&hash=xyz"),
        ("GET", "/audit/verify?seq=0&hash=" + "0" * 64),
        ("GET", "/files/list?depth=0"),
        ("GET", "/files/list?depth=65"),
        ("GET", "/events?after=x"),
    ]:
        await api.problem(400, "validation_error", method, path + rest)
    assert (await api.json("GET", path))["status"] == "active"


async def test_unknown_paths_and_methods(api: Api) -> None:
    session = (await api.session())["id"]
    for path in ("/nothing", "/api", "/api/sessions/", f"{SESSIONS}/{session}/nothing", "/%ff"):
        await api.problem(404, "not_found", "GET", path)
    for method, path in [("PATCH", SESSIONS), ("POST", "/healthz"), ("TRACE", SESSIONS)]:
        problem = await api.problem(405, "method_not_allowed", method, path)
        assert "GET" in problem["allow"]
    await api.problem(404, "not_found", "GET", f"{SESSIONS}/%ff")
    await api.problem(404, "not_found", "GET", f"{SESSIONS}/%2e%2e%2fx")


async def test_huge_bodies(api: Api) -> None:
    data = io.BytesIO(b'{"id": "' + b"x" * 9_000_000 + b'"}')
    await api.problem(413, "too_large", "POST", SESSIONS, data=data)
    assert (await api.json("GET", "/healthz"))["status"] == "ok"


async def test_any_content_type_that_is_json(api: Api) -> None:
    headers = {"Content-Type": "text/plain"}
    await api.json("POST", SESSIONS, data=b'{"id": "a"}', headers=headers, status=201)


async def test_a_body_where_none_is_wanted(api: Api) -> None:
    path = f"{SESSIONS}/{(await api.session())['id']}/pause"
    await api.problem(400, "validation_error", "POST", path, json={"now": True})
    await api.json("POST", path, json={})


async def test_a_body_that_stops(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.http.body.BODY_PACE", Pace(100, 0.05))
    answer = await exchange(
        api,
        b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        b"Authorization: Bearer " + ADMIN_KEY.encode() + b"\r\n\r\n{",
    )
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"arrives too slowly: 1 bytes in 0.05 s" in answer


async def test_a_client_that_vanishes_creating(api: Api) -> None:
    hold = api.engine.hang_next("create")
    start = await api.plane.ledger.wait(None, -1)
    request = asyncio.create_task(api.call("POST", SESSIONS, json={"id": "lost"}))
    await api.plane.ledger.wait(None, start)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    await api.json("GET", "/healthz")
    hold.set()
    stream = await api.call("GET", "/api/events?after=0")
    async with asyncio.timeout(WAIT_SECONDS):
        while b"session.terminated" not in await stream.content.readline():
            pass
    stream.close()
    assert (await api.json("GET", f"{SESSIONS}/lost"))["status"] == "completed"


@each(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\xff\xfe: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 100_000 + b"\r\n\r\n",
        b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n",
    ],
)
async def test_what_is_no_http(api: Api, head: bytes) -> None:
    answer = await exchange(api, head)
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    assert b"Traceback" not in answer
    assert (await api.json("GET", "/healthz"))["status"] == "ok"


@each("value", [b"Bearer \xff\xfe", b"\xff", b"Bearer \xed\xa0\x80"])
async def test_a_credential_that_is_no_text(api: Api, value: bytes) -> None:
    head = b"GET /api/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: "
    answer = await exchange(api, head + value + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 401 ")


async def test_a_broken_chunk(api: Api) -> None:
    head = (
        b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
        b"Authorization: Bearer " + ADMIN_KEY.encode() + b"\r\n\r\n"
    )
    answer = await exchange(api, head + b"zz\r\n{}\r\n")
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))


async def test_the_unexpected_shows_nothing(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def explode() -> None:
        raise RuntimeError("the secret reason")

    monkeypatch.setattr(plane.ready, "checks", explode)
    async with TestClient(TestServer(create_app(plane))) as client:
        with caplog.at_level(logging.ERROR):
            response = await client.get("/readyz")
        assert response.status == 500
        text = await response.text()
        assert "secret" not in text
        assert json.loads(text)["code"] == "internal_error"
        assert json.loads(text)["request_id"] == response.headers["X-Request-Id"]
        assert "the secret reason" in caplog.text


async def exchange(api: Api, data: bytes) -> bytes:
    """Sends the bytes in one piece; returns the server's answer."""
    reader, writer = await asyncio.open_connection(api.server.host, api.server.port)
    try:
        writer.write(data)
        async with asyncio.timeout(WAIT_SECONDS):
            return await reader.read(64 * 1024)
    except ConnectionError:
        return b""
    finally:
        writer.close()
