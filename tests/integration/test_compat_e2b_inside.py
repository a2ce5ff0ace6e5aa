"""What E2B's clients reach inside a real sandbox, by plain HTTP."""

import base64
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.support.connect import Connect, Refused, answers, encoded, ended, form, run
from tests.support.server import Server, leaving_nothing

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROCESS, FILES = "/process.Process/", "/filesystem.Filesystem/"
OCTETS = {"Content_Type": "application/octet-stream"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str) -> AsyncIterator[Server]:
    settings = {"PADDOCK_IMAGE": sandbox_image, "PADDOCK_COMPAT": "e2b"}
    async with leaving_nothing(**settings) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(plane: Server, client: aiohttp.ClientSession) -> AsyncIterator[Connect]:
    body = {"permission_level": "high", "workspace_path": "/home/user"}
    status, session = await plane.call("POST", "/api/sessions", body)
    assert status == 201
    headers = {"E2b-Sandbox-Id": session["id"], "X-Access-Token": session["handle"]}
    yield Connect(client, plane.url + "/compat/e2b", headers)
    await plane.call("DELETE", f"/api/sessions/{session['id']}?purge=true")


async def read(box: Connect, path: str, **headers: str) -> bytes:
    both = {**box.headers, **headers}
    async with box.client.get(f"{box.base}/files?path={path}", headers=both) as response:
        assert response.status == 200, await response.text()
        return await response.read()


async def test_a_command_and_its_input(box: Connect) -> None:
    done = await run(box, "echo $A; pwd; echo err >&2; exit 3", process={"envs": {"A": "1"}})
    assert (done.output["stdout"], done.output["stderr"]) == (b"1\n/home/user\n", b"err\n")
    assert done.end["exitCode"] == 3
    message = {"process": {"cmd": "/bin/bash", "args": ["-l", "-c", "cat"]}, "stdin": True}
    stream = box.stream(PROCESS + "Start", message)
    process = {"process": {"pid": (await anext(stream))["event"]["start"]["pid"]}}
    given = {"input": {"stdin": encoded(b"x" * 100_000)}}
    await box.call(PROCESS + "SendInput", {**process, **given})
    await box.call(PROCESS + "CloseStdin", process)
    assert (await ended(stream)).output["stdout"] == b"x" * 100_000


async def test_a_limit_ends_the_command(box: Connect) -> None:
    with pytest.raises(Refused) as refused:
        await run(box, "sleep 60", headers={"Connect_Timeout_Ms": "300"})
    assert refused.value.code == "deadline_exceeded"
    assert (await box.call(PROCESS + "List", {}))["processes"] == []


async def test_files_and_their_attributes(box: Connect) -> None:
    data = bytes(range(256)) * 4000
    await box.post("/files?path=deep/a", data, **OCTETS, X_Metadata_Team="search")
    assert await read(box, "/home/user/deep/a") == data
    assert await read(box, "deep/a", **{"Accept-Encoding": "gzip"}) == data
    shown = (await box.call(FILES + "Stat", {"path": "deep/a"}))["entry"]
    assert (shown["size"], shown["metadata"]) == (str(len(data)), {"team": "search"})
    (listed,) = (await box.call(FILES + "ListDir", {"path": "deep"}))["entries"]
    assert listed["metadata"] == {"team": "search"}
    line = 'python3 -c \'import os; print(os.getxattr("deep/a", "user.e2b.team"))\''
    assert (await run(box, line)).output["stdout"] == b"b'search'\n"
    packed = gzip.compress(data)
    await box.post("/files?path=deep/a", packed, **OCTETS, Content_Encoding="gzip")
    shown = (await box.call(FILES + "Stat", {"path": "deep/a"}))["entry"]
    assert "metadata" not in shown
    kind = "multipart/form-data; boundary=b0undary"
    parts = form([("/home/user/one", b"1"), ("two", b"2")])
    await box.post("/files", parts, Content_Type=kind)
    assert [await read(box, name) for name in ("one", "two")] == [b"1", b"2"]


async def test_a_bomb_is_refused_and_leaves_nothing(box: Connect) -> None:
    bomb = gzip.compress(gzip.compress(bytes(2**20)) + bytes(2**20))
    response = await box.post("/files?path=bomb", bomb[:-4], **OCTETS, Content_Encoding="gzip")
    assert response.status == 400
    with pytest.raises(Refused):
        await box.call(FILES + "Stat", {"path": "bomb"})


async def test_a_watch(box: Connect) -> None:
    await box.call(FILES + "MakeDir", {"path": "watched"})
    watcher = await box.call(FILES + "CreateWatcher", {"path": "watched"})
    await box.post("/files?path=watched/a", b"x", **OCTETS)
    await run(box, "echo more >> watched/a; mv watched/a watched/b; rm watched/b")
    events = (await box.call(FILES + "GetWatcherEvents", watcher))["events"]
    assert [(each["type"][11:].lower(), each["name"]) for each in events] == [
        *(("create", "a"), ("chmod", "a"), ("write", "a")),
        *(("write", "a"), ("rename", "a"), ("create", "b"), ("remove", "b")),
    ]
    await box.call(FILES + "RemoveWatcher", watcher)


async def test_a_terminal(box: Connect) -> None:
    message = {
        "process": {"cmd": "/bin/bash", "args": ["-i", "-l"], "envs": {"A": "1"}, "cwd": "/tmp"},
        "pty": {"size": {"cols": 91, "rows": 31}},
    }
    stream = box.stream(PROCESS + "Start", message)
    process = {"process": {"pid": (await anext(stream))["event"]["start"]["pid"]}}
    line = encoded(b"echo [$A:$PWD]; stty size; exit 4\n")
    await box.call(PROCESS + "SendInput", {**process, "input": {"pty": line}})
    done = await ended(stream)
    assert b"[1:/tmp]\r\n31 91\r\n" in done.output["pty"]
    assert done.end["exitCode"] == 4


async def test_the_interpreter(box: Connect) -> None:
    body = json.dumps({"code": "import os\nprint('out')\nos.getcwd()"}).encode()
    response = await box.post("/execute", body, Content_Type="application/json")
    lines: list[Any] = [json.loads(line) async for line in response.content]
    assert [each["type"] for each in lines] == ["stdout", "result", "number_of_executions"]
    assert lines[1]["text"] == "/home/user"


async def test_a_restart_in_the_middle_of_a_command(plane: Server, box: Connect) -> None:
    message = {"process": {"cmd": "/bin/bash", "args": ["-c", "read x; echo got $x"]}}
    stream = answers(await box.begin(PROCESS + "Start", message))
    process = {"process": {"pid": (await anext(stream))["event"]["start"]["pid"]}}
    await plane.stop()
    with pytest.raises(Refused) as refused:
        await anext(stream)
    assert refused.value.code == "unavailable"
    await plane.start()
    again = box.stream(PROCESS + "Connect", process)
    await anext(again)
    line = {"input": {"stdin": base64.b64encode(b"it\n").decode()}}
    await box.call(PROCESS + "SendInput", {**process, **line})
    assert (await ended(again)).output["stdout"] == b"got it\n"
