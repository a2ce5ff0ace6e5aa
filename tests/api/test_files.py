"""Files over HTTP: bytes in both directions, and aborted transfers."""

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientPayloadError

from api.http.body import Pace
from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.rules.access.keys import Principal, Role
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cases import each

ADMIN = Principal("admin", Role.ADMIN)


@pytest.fixture
async def path(api: Api) -> str:
    return f"/api/sessions/{(await api.session())['id']}"


async def test_write_read_append(api: Api, path: str) -> None:
    data = bytes(range(256)) * 4096 * 3  # more than the limit of a JSON body
    done = await api.json("PUT", path + "/files?path=a%2Fb%20c", data=io.BytesIO(data))
    etag = done.pop("etag")
    assert done == {"path": "a/b c", "mode": "overwrite", "bytes": len(data)}
    assert etag == (await api.json("GET", path + "/files/stat?path=a%2Fb%20c"))["etag"]
    response = await api.call("GET", path + "/files?path=a/b+c")
    assert response.content_type == "application/octet-stream"
    assert response.content_length == len(data)
    assert await response.read() == data
    await api.json("PUT", path + "/files?path=a/b+c&mode=append", data=b"end")
    assert api.agents.files["a/b c"] == data + b"end"
    empty = await api.json("PUT", path + "/files?path=empty")
    assert empty["bytes"] == 0
    assert await (await api.call("GET", path + "/files?path=empty")).read() == b""


async def test_times_of_files(api: Api, path: str) -> None:
    await api.json("PUT", path + "/files?path=old&modified=1000000000", data=b"x")
    response = await api.call("GET", path + "/files?path=old")
    assert response.headers["X-Paddock-Modified"] == "1000000000"
    await api.json("PUT", path + "/files?path=new&modified=1099511627776", data=b"x")
    assert api.agent.modified == {"old": 10**9, "new": 2**40}
    # An older agent does not tell it.
    api.agent.modified.clear()
    assert "X-Paddock-Modified" not in (await api.call("GET", path + "/files?path=old")).headers


@each("modified", ["1", 1.5, True, 2**64])
async def test_times_that_can_not_be(api: Api, path: str, modified: Any) -> None:
    api.agent.files["a"] = b"x"
    told = {"stream": 1, "size": 1, "permissions": 0o644, "modified": modified}
    api.agent.overrides["file.open"] = lambda _params: told
    await api.problem(502, "sandbox_unavailable", "GET", path + "/files?path=a")


async def test_list_mkdir_move_delete(api: Api, path: str) -> None:
    api.agents.files["x"] = b"123"
    listed = await api.json("GET", path + "/files/list?path=.&depth=2")
    assert listed["items"][0]["path"] == "x"
    assert listed["items"][0]["size"] == 3
    await api.json("POST", path + "/files/mkdir", json={"path": "d"}, status=201)
    await api.json("POST", path + "/files/move", json={"source": "x", "destination": "y"})
    await api.json("DELETE", path + "/files?path=y")
    assert api.agents.files == {}
    await api.problem(404, "not_found", "GET", path + "/files?path=y")
    operations = {event["operation"] for event in (await api.json("GET", path + "/audit"))["items"]}
    assert operations >= {"file.list", "file.mkdir", "file.move", "file.delete", "file.read"}


async def test_links(api: Api, path: str) -> None:
    body = {"path": "/workspace/bin/x", "target": "../lib/x"}
    assert await api.json("POST", path + "/files/symlink", json=body, status=201) == body
    assert api.agent.links == {"bin/x": "../lib/x"}
    (listed,) = (await api.json("GET", path + "/files/list"))["items"]
    assert (listed["type"], listed["target"]) == ("symlink", "../lib/x")


@pytest.mark.parametrize("target", ["..", "../x", "/etc", "/workspace/x", "a/../../x", "../a/.."])
async def test_links_that_leave_the_workspace(api: Api, path: str, target: str) -> None:
    body = {"path": "x", "target": target}
    problem = await api.problem(
        403, "permission_denied", "POST", path + "/files/symlink", json=body
    )
    assert (problem["rule"], problem["field"]) == ("path-outside-workspace", "target")
    assert api.agent.links == {}
    (denied,) = (await api.json("GET", path + "/audit?decision=deny"))["items"]
    assert (denied["operation"], denied["args"]) == ("file.symlink", {"target": target})


@each("name", ["..", "../x", "/etc/passwd", "a/../../b", "%2e%2e/x"])
async def test_paths_that_leave_the_workspace(api: Api, path: str, name: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        problem = await api.problem(
            403, "permission_denied", method, f"{path}/files?path={name}", data=b""
        )
        assert problem["rule"] == "path-outside-workspace"
    assert api.agents.files == {}


@each(
    "query",
    [
        "",
        "path=",
        "path=%ff",
        "path=a%00b",
        "path=a&path=b",
        "path=" + "x" * 5000,
        "path=a&x=1",
        "path=a&mode=replace",
        "path=a&mode=overwrite&mode=append",
        "path=a&permissions=rwx",
        "path=a&permissions=4755",
        "path=a&permissions=999",
        "path=a&permissions=755&mode=append",
        "path=a&modified=-1",
        "path=a&modified=yesterday",
        "path=a&modified=1099511627777",
        "path=a&modified=1&mode=append",
    ],
)
async def test_bad_parameters(api: Api, path: str, query: str) -> None:
    # Sent without requoting, so that the invalid UTF-8 arrives unchanged.
    problem = await api.problem(
        400, "validation_error", "PUT", f"{path}/files?{query}".replace("%ff", "%FF"), data=b"x"
    )
    assert problem["detail"]
    assert api.agents.files == {}


async def test_the_longest_path(api: Api, path: str) -> None:
    name = "é" * 2048
    await api.json("PUT", f"{path}/files?path={quote(name)}", data=b"x")
    assert api.agents.files == {name: b"x"}


async def test_name_with_a_newline(api: Api, path: str) -> None:
    await api.json("PUT", path + "/files?path=a%0Ab", data=b"x")
    assert api.agents.files == {"a\nb": b"x"}


async def test_upload_that_breaks_off_changes_nothing(api: Api, path: str) -> None:
    api.agents.files["a"] = b"before"
    sent = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 100_000
        sent.set()
        await asyncio.Event().wait()

    upload = asyncio.create_task(api.call("PUT", path + "/files?path=a", data=body()))
    await sent.wait()
    await api.agent.asked("file.push")
    upload.cancel()
    await asyncio.gather(upload, return_exceptions=True)
    closed = await api.agent.asked("file.close")
    assert closed["commit"] is False
    assert api.agents.files == {"a": b"before"}


async def test_upload_that_stops(api: Api, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.http.endpoint.UPLOAD_PACE", Pace(100, 0.05))

    async def body() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    problem = await api.problem(400, "validation_error", "PUT", path + "/files?path=a", data=body())
    assert "too slowly" in problem["detail"]
    assert api.agents.files == {}


async def test_file_that_shrinks_is_not_taken_for_whole(api: Api, path: str) -> None:
    api.agents.files["a"] = b"x" * 100
    api.agent.overrides["file.open"] = lambda _params: {"stream": 9, "size": 100}
    api.agent.overrides["file.pull"] = lambda _params: {"data": b""}
    response = await api.call("GET", path + "/files?path=a")
    with pytest.raises(ClientPayloadError):
        await response.read()


async def test_file_that_grows_ends_where_it_was(api: Api, path: str) -> None:
    api.agent.overrides["file.open"] = lambda _params: {"stream": 9, "size": 3}
    api.agent.overrides["file.pull"] = lambda _params: {"data": b"abcdef"}
    response = await api.call("GET", path + "/files?path=a")
    assert await response.read() == b"abc"


async def test_agent_that_fails_in_the_middle(api: Api, path: str) -> None:
    api.agent.overrides["file.open"] = lambda _params: {"stream": 9, "size": 3}
    api.agent.overrides["file.pull"] = lambda _params: {"data": 5}
    response = await api.call("GET", path + "/files?path=a")
    with pytest.raises(ClientPayloadError):
        await response.read()
    assert (await api.json("GET", path))["status"] == "active"


async def test_client_that_does_not_read(
    api: Api, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.ground.serving.stream.WRITE_SECONDS", 0.05)
    piece = bytes(256 * 1024)
    api.agent.overrides["file.open"] = lambda _params: {"stream": 9, "size": 10**12}
    api.agent.overrides["file.pull"] = lambda _params: {"data": piece}
    _, writer = await asyncio.open_connection(api.server.host, api.server.port, limit=1024)
    head = (
        f"GET {path}/files?path=a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN_KEY}"
    )
    writer.write(f"{head}\r\n\r\n".encode())
    assert (await api.agent.asked("file.close"))["stream"] == 9
    writer.close()


async def test_compressed_upload_is_refused(api: Api, path: str) -> None:
    problem = await api.problem(
        400,
        "validation_error",
        "PUT",
        path + "/files?path=a",
        data=b"x",
        headers={"Content-Encoding": "gzip"},
    )
    assert problem["field"] == "Content-Encoding"


async def test_workspace_limit(api: Api) -> None:
    limits: dict[str, Any] = {"workspace_bytes": 2**24}
    path = f"/api/sessions/{(await api.session(limits=limits))['id']}"
    await api.problem(
        413, "too_large", "PUT", path + "/files?path=a", data=io.BytesIO(b"x" * (2**24 + 1))
    )
    assert api.agents.files == {}


@each(
    "members",
    [
        {"size": -1},
        {"size": 1e300},
        {"size": 2**53},
        {"size": True},
        {"mode": -1},
        {"mode": 0o10000},
        {"mode": "7"},
        {"modified": "nan"},
        {"modified": "inf"},
        {"modified": 10**400},
        {"modified": None},
    ],
)
async def test_entries_that_can_not_be(api: Api, path: str, members: dict[str, Any]) -> None:
    entry = {"path": "a", "type": "file", "size": 1, "mode": 0o644, "modified": 1.5, **members}
    api.agent.overrides["file.list"] = lambda _: {"entries": [entry], "truncated": False}
    api.agent.overrides["file.stat"] = lambda _: entry
    await api.problem(502, "sandbox_unavailable", "GET", path + "/files/list")
    session = api.plane.sessions.finder.find(ADMIN, path.rpartition("/")[2])
    with pytest.raises(SandboxUnavailableError):
        await api.plane.files.stat(ADMIN, session, "a")


@each("size", [-1, 2**53, 10**400, True, "3", None])
async def test_sizes_that_can_not_be(api: Api, path: str, size: Any) -> None:
    api.agent.overrides["file.open"] = lambda _: {"stream": 1, "size": size}
    await api.problem(502, "sandbox_unavailable", "GET", path + "/files?path=a")
