"""What E2B's SDKs reach inside a sandbox, over HTTP, with fake agents."""

import asyncio
import base64
import gzip
import hashlib
import json
import struct
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from api.app import BOUNDS
from orchestrator.ground.errors import RateLimitedError
from orchestrator.ground.limits import HANDLE_REQUESTS
from orchestrator.rules.access.keys import KeyRing, Principal, Role, digest
from orchestrator.settings.settings import Settings
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.asked_as import asked_as
from tests.support.connect import (
    STREAM,
    Connect,
    Refused,
    answers,
    encoded,
    ended,
    envelope,
    form,
    run,
)
from tests.support.fake_agent import Play
from tests.support.fake_runner import FakeRunner
from tests.support.until import until

BASE = "/compat/e2b"
PROCESS, FILES = "/process.Process/", "/filesystem.Filesystem/"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"compat": ("e2b",)})


@pytest.fixture
async def session(api: Api) -> dict[str, Any]:
    return await api.session(permission_level="high")


def inside(api: Api, session: dict[str, Any], **headers: str) -> Connect:
    """A client inside the session, with its handle."""
    usual_headers = {
        "E2b-Sandbox-Id": session["id"],
        "E2b-Sandbox-Port": "49983",
        "X-Access-Token": session["handle"],
    }
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Connect(api.client, BASE, usual_headers | named)


@pytest.fixture
def box(api: Api, session: dict[str, Any]) -> Connect:
    return inside(api, session)


async def recorded(api: Api, session: dict[str, Any], operation: str) -> list[dict[str, Any]]:
    path = f"/api/sessions/{session['id']}/audit?operation={operation}"
    found: list[dict[str, Any]] = (await api.json("GET", path))["items"]
    return found


# Commands.


async def test_a_command_is_an_exec_of_its_session(
    api: Api, session: dict[str, Any], box: Connect
) -> None:
    api.agent.directories.add("src")
    api.agents.plays["bash"] = Play(stdout="héllo".encode(), stderr=b"\xff", exit_code=3)
    done = await run(box, "echo héllo", process={"envs": {"A": "1"}, "cwd": "/home/user/src"})
    assert done.output["stdout"].decode() == "héllo"
    assert done.output["stderr"] == b"\xff"
    assert done.end == {
        **{"exitCode": 3, "exited": True},
        **{"status": "exit status 3", "error": "exit status 3"},
    }
    (start,) = await recorded(api, session, "command.start")
    assert start["actor"] == f"handle:{session['id']}"
    assert start["args"]["argv"][-1] == "echo héllo"
    assert start["args"]["cwd"] == "/workspace/src"
    assert start["args"]["asked_as"] == "e2b POST /process.Process/Start"
    assert start["args"]["timeout"] is None


async def test_the_callers_limit_is_the_commands(
    api: Api, session: dict[str, Any], box: Connect
) -> None:
    api.agents.plays["bash"] = Play(holds=True)
    stream = box.stream(
        PROCESS + "Start",
        {"process": {"cmd": "/bin/bash", "args": ["-l", "-c", "sleep 9"]}},
        Connect_Timeout_Ms="2000",
    )
    started = await anext(stream)
    (start,) = await recorded(api, session, "command.start")
    assert start["args"]["timeout"] == 2
    command_id = start["args"]["command_id"]
    api.agent.end(command_id, 143, signal="SIGTERM", timed_out=True)
    with pytest.raises(Refused) as refused:
        await anext(stream)
    assert refused.value.code == "deadline_exceeded"
    assert started["event"]["start"]["pid"] > 0


async def test_a_limit_above_the_levels_is_that_of_the_stream(
    api: Api, session: dict[str, Any], box: Connect
) -> None:
    done = await run(box, "true", headers={"Connect_Timeout_Ms": "9999999999"})
    assert done.end["exitCode"] == 0
    (start,) = await recorded(api, session, "command.start")
    assert start["args"]["timeout"] is None


async def test_a_limit_that_is_none_is_refused(box: Connect) -> None:
    for text in ("x", "-1", "1" * 11, "٣", "1.5"):
        with pytest.raises(Refused) as refused:
            await run(box, "true", headers={"Connect_Timeout_Ms": text})
        assert refused.value.code == "invalid_argument"


async def test_a_killed_command_says_so(api: Api, box: Connect) -> None:
    api.agents.plays["bash"] = Play(holds=True)
    stream = box.stream(PROCESS + "Start", {"process": {"cmd": "bash", "args": ["-c", "x"]}})
    pid = (await anext(stream))["event"]["start"]["pid"]
    listed = (await box.call(PROCESS + "List", {}))["processes"]
    assert [(each["pid"], each["config"]["args"]) for each in listed] == [(pid, ["-c", "x"])]
    kill = {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"}
    assert await box.call(PROCESS + "SendSignal", kill) == {}
    end = (await ended(stream)).end
    assert (end["exitCode"], end["exited"]) == (-1, False)
    with pytest.raises(Refused) as refused:
        await box.call(PROCESS + "SendSignal", kill)
    assert (refused.value.status, refused.value.code) == (404, "not_found")
    assert (await box.call(PROCESS + "List", {}))["processes"] == []


async def test_a_caller_that_leaves_ends_nothing_and_connects_again(
    api: Api, session: dict[str, Any], box: Connect
) -> None:
    api.agents.plays["bash"] = Play(chunks=[("stdout", b"before\n")], holds=True)
    message = {"process": {"cmd": "/bin/bash", "args": ["-c", "x"]}, "tag": "server"}
    response = await box.begin(PROCESS + "Start", message)
    stream = answers(response)
    pid = (await anext(stream))["event"]["start"]["pid"]
    await anext(stream)
    response.close()
    (command,) = api.plane.sessions.registry.get(session["id"]).running  # type: ignore[union-attr]
    for process in ({"pid": pid}, {"tag": "server"}):
        again = box.stream(PROCESS + "Connect", {"process": process})
        assert (await anext(again))["event"]["start"]["pid"] == pid
        if "tag" in process:
            api.agent.print(command.id, "stdout", b"after\n")
            api.agent.end(command.id)
            done = await ended(again)
            assert done.output["stdout"] == b"after\n"
            assert done.end["exitCode"] == 0
    with pytest.raises(Refused) as refused:
        await anext(box.stream(PROCESS + "Connect", {"process": {"pid": pid}}))
    assert refused.value.code == "not_found"


async def test_input_is_sent_streamed_and_closed(api: Api, box: Connect) -> None:
    api.agents.plays["bash"] = Play(fed=lambda show, data: show("stdout", data), holds=True)
    stream = box.stream(PROCESS + "Start", {"process": {"cmd": "bash", "args": ["-c", "cat"]}})
    pid = (await anext(stream))["event"]["start"]["pid"]
    process = {"process": {"pid": pid}}
    given_input = {**process, "input": {"stdin": encoded(b"one\n")}}
    await box.call(PROCESS + "SendInput", given_input)
    pieces = [{"data": {"input": {"stdin": encoded(piece)}}} for piece in (b"two\n", b"three\n")]
    streamed = [
        each
        async for each in box.stream(
            PROCESS + "StreamInput", {"start": process}, *pieces, {"keepalive": {}}
        )
    ]
    assert streamed == [{}]
    await box.call(PROCESS + "CloseStdin", process)
    assert (await ended(stream)).output["stdout"] == b"one\ntwo\nthree\n"
    for message in ([pieces[0]], [{"start": {"process": {"pid": 1}}}]):
        with pytest.raises(Refused) as refused:
            await anext(box.stream(PROCESS + "StreamInput", *message))
        assert refused.value.code in ("invalid_argument", "not_found")


async def test_signs_of_life_come_in_between(api: Api, box: Connect) -> None:
    api.agents.plays["bash"] = Play(holds=True)
    message = {"process": {"cmd": "bash", "args": ["-c", "x"]}}
    stream = box.stream(PROCESS + "Start", message, Keepalive_Ping_Interval="1")
    await anext(stream)
    assert await anext(stream) == {"event": {"keepalive": {}}}


async def test_a_level_without_a_shell_takes_one_plain_command(api: Api) -> None:
    session = await api.session(permission_level="low")
    box = inside(api, session)
    api.agents.plays["ls"] = Play(stdout=b"notes\n")
    assert (await run(box, "ls -l")).output["stdout"] == b"notes\n"
    for line, rule in (("ls | sort", "shell-operators"), ("curl x", "command-allowlist")):
        with pytest.raises(Refused) as refused:
            await run(box, line)
        assert refused.value.code == "permission_denied"
        assert rule in refused.value.message
        assert "level" in refused.value.message
    rules = [each["rule"] for each in await recorded(api, session, "command.start")]
    assert rules == [None, "shell-operators", "command-allowlist"]


async def test_a_stop_of_the_control_plane_ends_a_stream_with_unavailable(
    api: Api, session: dict[str, Any], box: Connect
) -> None:
    api.agents.plays["bash"] = Play(holds=True)
    stream = box.stream(PROCESS + "Start", {"process": {"cmd": "bash", "args": ["-c", "x"]}})
    await anext(stream)
    stopping = asyncio.create_task(api.server.close())
    with pytest.raises(Refused) as refused:
        await anext(stream)
    assert refused.value.code == "unavailable"
    await stopping
    assert api.plane.sessions.registry.get(session["id"]).running  # type: ignore[union-attr]


# Terminals.


async def test_a_terminal_is_a_recorded_shell(
    api: Api, session: dict[str, Any], box: Connect
) -> None:
    api.agent.directories.add("src")
    message = {
        "process": {
            **{"cmd": "/bin/bash", "args": ["-i", "-l"]},
            **{"envs": {"FOO": "bar"}, "cwd": "/home/user/src"},
        },
        "pty": {"size": {"cols": 100, "rows": 30}},
    }
    response = await box.begin(PROCESS + "Start", message)
    stream = answers(response)
    pid = (await anext(stream))["event"]["start"]["pid"]
    (terminal,) = api.agent.terminals.all.values()
    assert (terminal.params["cols"], terminal.params["rows"]) == (100, 30)
    assert terminal.params["env"]["FOO"] == "bar"
    assert terminal.params["argv"][-1] == "/workspace/src"
    process = {"process": {"pid": pid}}
    await box.call(PROCESS + "SendInput", {**process, "input": {"pty": encoded(b"echo x\r")}})
    seen = b""
    while b"echo x\r" not in seen:
        event = (await anext(stream))["event"]
        seen += base64.b64decode(event["data"]["pty"])
    size = {"pty": {"size": {"cols": 120, "rows": 40}}}
    assert await box.call(PROCESS + "Update", {**process, **size}) == {}
    response.close()
    (live,) = api.plane.terminals.all_live
    await until(lambda: len(live.viewers) == 0)
    again = box.stream(PROCESS + "Connect", process)
    assert (await anext(again))["event"]["start"]["pid"] == pid
    await box.call(PROCESS + "SendInput", {**process, "input": {"pty": encoded(b"later\r")}})
    assert base64.b64decode((await anext(again))["event"]["data"]["pty"]) == b"later\r"
    await box.call(PROCESS + "SendSignal", {**process, "signal": "SIGNAL_SIGKILL"})
    done = await ended(again)
    assert done.end["exited"] in (True, False)
    (opened,) = await recorded(api, session, "pty.open")
    assert opened["actor"] == f"handle:{session['id']}"
    assert opened["args"]["asked_as"] == "e2b POST /process.Process/Start"
    (closed,) = await recorded(api, session, "pty.exit")
    assert "asked_as" not in closed["args"]
    await until(lambda: api.plane.sessions.registry.get(session["id"]).streams.total() == 0)  # type: ignore[union-attr]


async def test_the_limit_of_a_terminal_ends_it(api: Api, box: Connect) -> None:
    message = {"process": {"cmd": "/bin/bash"}, "pty": {}}
    stream = box.stream(PROCESS + "Start", message, Connect_Timeout_Ms="300")
    with pytest.raises(Refused) as refused:
        await ended(stream)
    assert refused.value.code == "deadline_exceeded"
    await until(lambda: not api.plane.terminals.all_live)


async def test_a_handles_shell_outlives_changes_of_keys(api: Api, box: Connect) -> None:
    message = {"process": {"cmd": "/bin/bash"}, "pty": {}}
    stream = box.stream(PROCESS + "Start", message)
    await anext(stream)
    api.plane.shells._recheck()  # as at each change of the keys
    (live,) = api.plane.terminals.all_live
    assert live.reason is None


async def test_a_level_without_a_shell_has_no_terminal(api: Api) -> None:
    session = await api.session(permission_level="medium")
    with pytest.raises(Refused) as refused:
        await anext(
            inside(api, session).stream(
                PROCESS + "Start", {"process": {"cmd": "/bin/bash"}, "pty": {}}
            )
        )
    assert refused.value.code == "permission_denied"
    assert "shell-level" in refused.value.message
    (denied,) = await recorded(api, session, "pty.open")
    assert (denied["decision"], denied["rule"]) == ("deny", "shell-level")
    assert denied["args"]["asked_as"] == "e2b POST /process.Process/Start"


# Files.


async def test_files_are_written_and_read(api: Api, session: dict[str, Any], box: Connect) -> None:
    data = bytes(range(256)) * 4096
    octets = {"Content_Type": "application/octet-stream"}
    response = await box.post("/files?path=/home/user/a/b.bin", data, **octets)
    assert await response.json() == [
        {"path": "/workspace/a/b.bin", "name": "b.bin", "type": "file"}
    ]
    assert api.agent.files["a/b.bin"] == data
    packed = {**octets, "Content_Encoding": "gzip"}
    await box.post("/files?path=packed", gzip.compress(data), **packed)
    assert api.agent.files["packed"] == data
    kind = {"Content_Type": "multipart/form-data; boundary=b0undary"}
    response = await box.post("/files", form([("/home/user/one", b"1"), ("two", b"2")]), **kind)
    assert [each["path"] for each in await response.json()] == [
        *("/workspace/one", "/workspace/two")
    ]
    response = await box.post("/files?path=three", form([("x", b"3")]), **kind)
    assert api.agent.files["three"] == b"3"
    for headers in ({}, {"Accept-Encoding": "gzip"}):
        response = await api.client.get(
            BASE + "/files?path=a/b.bin", headers={**box.headers, **headers}
        )
        assert await response.read() == data, headers
    assert response.headers["Content-Encoding"] == "gzip"
    assert len(await recorded(api, session, "file.write")) == 5


async def test_attributes_are_replaced_as_a_whole(api: Api, box: Connect) -> None:
    octets = {"Content_Type": "application/octet-stream"}
    for odd in ({"X_Metadata_": "x"}, {"X_Metadata_a": "\xe9"}):
        assert (await box.post("/files?path=a", b"x", **octets, **odd)).status == 400
    for named in ({"X_Metadata_Team": "search", "X_Metadata_a": "1"}, {"X_Metadata_b": "2"}, {}):
        expected = {name[11:].lower(): value for name, value in named.items()}
        response = await box.post("/files?path=a", b"x", **octets, **named)
        (written,) = await response.json()
        assert written.get("metadata", {}) == expected
        assert api.agent.attributes["a"] == {f"user.e2b.{k}": v for k, v in expected.items()}
        shown = (await box.call(FILES + "Stat", {"path": "a"}))["entry"]
        assert shown.get("metadata", {}) == expected


async def test_a_file_that_is_refused_says_why(api: Api, box: Connect) -> None:
    api.agent.files["d/x"] = b""
    octets = {"Content-Type": "application/octet-stream"}
    table = [
        ("GET", "/files?path=none", {}, 404),
        ("GET", "/files?path=d", {}, 400),
        ("GET", "/files", {}, 400),
        ("GET", "/files?path=d/x&username=nobody", {}, 401),
        ("GET", "/files?path=d/x&username=root", {}, 403),
        ("GET", "/files?path=d/x&username=user", {}, 200),
        ("POST", "/files?path=/etc/passwd", octets, 403),
        ("POST", "/files?path=x", {"Content-Type": "text/plain"}, 400),
        ("POST", "/files?path=x", {**octets, "Content-Encoding": "gzip"}, 400),
        ("POST", "/files?path=x", {**octets, "Content-Encoding": "br"}, 400),
        ("POST", "/files?path=x", {"Content-Type": "multipart/form-data"}, 400),
        ("POST", "/files?path=x", {"Content-Type": "multipart/form-data; boundary=x"}, 400),
    ]
    for method, path, headers, status in table:
        data = b"data" if method == "POST" else None
        response = await api.client.request(
            method, BASE + path, data=data, headers={**box.headers, **headers}
        )
        assert response.status == status, (method, path, await response.text())
        if status != 200:
            body = await response.json()
            assert body["code"] == status
            assert body["message"]
    assert list(api.agent.files) == ["d/x"]


async def test_a_bomb_is_bounded_by_the_workspace(api: Api, box: Connect) -> None:
    session = api.plane.sessions.registry.all[0]
    session.limits = replace(session.limits, workspace_bytes=2**20)
    bomb = gzip.compress(bytes(64 * 2**20))
    response = await box.post(
        "/files?path=bomb",
        bomb,
        Content_Type="application/octet-stream",
        Content_Encoding="gzip",
    )
    assert response.status == 507
    assert "bomb" not in api.agent.files


async def test_signed_addresses_need_no_credential(
    api: Api, session: dict[str, Any], box: Connect
) -> None:
    api.agent.files["a"] = b"content"
    await box.call(PROCESS + "List", {})  # the token is known from now on

    def signed(operation: str, expiration: int | None = None, path: str = "a") -> str:
        end = "" if expiration is None else f":{expiration}"
        raw = f"{path}:{operation}:user:{session['handle']}{end}"
        made = base64.b64encode(hashlib.sha256(raw.encode()).digest()).decode().rstrip("=")
        made = made.replace("+", "%2B").replace("/", "%2F")
        more = "" if expiration is None else f"&signature_expiration={expiration}"
        return f"{BASE}/files?path={path}&username=user&signature=v1_{made}{more}"

    response = await api.client.get(signed("read"))
    assert await response.read() == b"content"
    response = await api.client.post(
        signed("write", int(time.time()) + 600, "new"),
        data=b"x",
        headers={"Content-Type": "application/octet-stream"},
    )
    assert response.status == 200, await response.text()
    assert api.agent.files["new"] == b"x"
    for address, reason in (
        (signed("write"), "invalid signature"),
        (signed("read", int(time.time()) - 1), "signature is already expired"),
        (signed("read").replace("path=a", "path=new"), "invalid signature"),
    ):
        response = await api.client.get(address)
        assert response.status == 401
        assert (await response.json())["message"] == reason
    assert [each["actor"] for each in await recorded(api, session, "file.read")] != []
    # A gateway asks whether a sandbox here has signed what it is to pass on.
    for address, method, status in (
        (signed("write", path="new"), "POST", 200),
        (signed("write", path="new"), "GET", 404),
        (signed("read", int(time.time()) - 1), "GET", 404),
        (f"{BASE}/files", "GET", 404),
    ):
        path, _, query = address.partition("?")
        response = await api.client.get(f"{path}/signer?{query}&method={method}")
        assert response.status == status
    assert api.agent.files["new"] == b"x"


async def test_entries_and_moves(api: Api, box: Connect) -> None:
    api.agent.files |= {"a.txt": b"12345", "src/b": b""}
    api.agent.directories.add("src")
    api.agent.links["link"] = "a.txt"
    found = (await box.call(FILES + "Stat", {"path": "/home/user/a.txt"}))["entry"]
    assert (found["path"], found["size"], found["type"]) == (
        *("/workspace/a.txt", "5"),
        "FILE_TYPE_FILE",
    )
    listed = (await box.call(FILES + "ListDir", {"path": "", "depth": 2}))["entries"]
    assert [each["name"] for each in listed] == ["a.txt", "link", "b"]
    assert listed[1]["symlinkTarget"] == "/workspace/a.txt"
    assert listed[1]["type"] == "FILE_TYPE_FILE"
    moved = await box.call(FILES + "Move", {"source": "a.txt", "destination": "b.txt"})
    assert moved["entry"]["name"] == "b.txt"
    assert await box.call(FILES + "Remove", {"path": "b.txt"}) == {}
    assert await box.call(FILES + "Remove", {"path": "b.txt"}) == {}
    refusals = [
        ("Stat", {"path": "b.txt"}, "not_found"),
        ("ListDir", {"path": "", "depth": -1}, "invalid_argument"),
        ("MakeDir", {"path": "src"}, "already_exists"),
        ("MakeDir", {"path": "src/b"}, "invalid_argument"),
        ("Move", {"source": "none", "destination": "x"}, "not_found"),
        ("Stat", {"path": "a\0b"}, "invalid_argument"),
        ("Remove", {"path": "/etc/passwd"}, "permission_denied"),
    ]
    for method, message, code in refusals:
        with pytest.raises(Refused) as refused:
            await box.call(FILES + method, message)
        assert refused.value.code == code, (method, message)


async def test_a_watcher_tells_what_happened_since(
    api: Api, session: dict[str, Any], box: Connect
) -> None:
    api.agent.directories.add("src")
    message = {"path": "/home/user/src", "recursive": True}
    watcher = await box.call(FILES + "CreateWatcher", message)
    assert await box.call(FILES + "GetWatcherEvents", watcher) == {"events": []}
    octets = {"Content_Type": "application/octet-stream"}
    await box.post("/files?path=/home/user/src/a", b"x", **octets)
    api.agent.change({"kind": "create", "path": "src/a"})
    events = (await box.call(FILES + "GetWatcherEvents", watcher))["events"]
    assert [(each["type"], each["name"]) for each in events] == [
        ("EVENT_TYPE_CREATE", "a"),
        ("EVENT_TYPE_CHMOD", "a"),
        ("EVENT_TYPE_WRITE", "a"),
    ]
    other = inside(api, await api.session(permission_level="high"))
    with pytest.raises(Refused) as refused:
        await other.call(FILES + "GetWatcherEvents", watcher)
    assert refused.value.code == "not_found"
    held = api.plane.sessions.registry.get(session["id"])
    assert held is not None
    assert held.streams["events"] == 1
    assert await box.call(FILES + "RemoveWatcher", watcher) == {}
    assert held.streams.total() == 0
    with pytest.raises(Refused):
        await box.call(FILES + "GetWatcherEvents", watcher)


async def test_a_watcher_ends_with_its_session(
    api: Api, session: dict[str, Any], box: Connect
) -> None:
    api.agent.directories.add("src")
    await box.call(FILES + "CreateWatcher", {"path": "src"})
    held = api.plane.sessions.registry.get(session["id"])
    assert held is not None
    await api.json("DELETE", f"/api/sessions/{session['id']}")
    await held.over
    await until(lambda: held.streams.total() == 0)


async def test_a_watcher_ends_with_the_key_that_opened_it(api: Api) -> None:
    session = await api.session(permission_level="high", key=OPERATOR_KEY)
    api.agent.directories.add("src")
    by_key = inside(api, session, X_Access_Token=OPERATOR_KEY)
    for client in (by_key, inside(api, session)):
        await client.call(FILES + "CreateWatcher", {"path": "src"})
    held = api.plane.sessions.registry.get(session["id"])
    assert held is not None
    assert held.streams["events"] == 2
    api.plane.keys.replace(KeyRing({digest(ADMIN_KEY): Principal("admin", Role.ADMIN)}))
    assert held.streams["events"] == 1  # a handle outlives changes of keys
    await api.json("DELETE", f"/api/sessions/{session['id']}")
    await until(lambda: held.streams.total() == 0)


async def test_a_watch_is_a_stream(api: Api, box: Connect) -> None:
    api.agent.directories.add("src")
    api.agent.files["src/a"] = b"12"
    stream = box.stream(FILES + "WatchDir", {"path": "src", "includeEntry": True})
    assert await anext(stream) == {"start": {}}
    api.agent.change({"kind": "write", "path": "src/a"})
    event = (await anext(stream))["filesystem"]
    assert (event["type"], event["name"]) == ("EVENT_TYPE_WRITE", "a")
    assert event["entry"]["size"] == "2"
    with pytest.raises(Refused) as refused:
        await anext(box.stream(FILES + "WatchDir", {"path": "src/a"}))
    assert refused.value.code == "invalid_argument"


async def test_what_is_asked_for_is_on_record_under_its_own_name(
    api: Api, session: dict[str, Any], box: Connect, runner: FakeRunner
) -> None:
    assert (await cell(box, "1"))[-1]["execution_count"] == 1
    done = box.stream(PROCESS + "Start", {"process": {"cmd": "bash", "args": ["-c", "x"]}})
    await ended(done)
    octets = {"Content_Type": "application/octet-stream"}
    assert (await box.post("/files?path=x", b"x", **octets)).status == 200
    actor = f"handle:{session['id']}"
    assert await asked_as(api, session["id"], actor) == {
        ("code.start", "e2b POST /execute"),
        ("command.start", "e2b POST /execute"),
        ("command.start", f"e2b POST {PROCESS}Start"),
        ("file.write", "e2b POST /files"),
    }


async def test_what_is_refused_is_on_record_under_its_own_name(api: Api) -> None:
    session = await api.session(permission_level="medium")
    box = inside(api, session)
    for name in ("ListDir", "MakeDir", "CreateWatcher", "Remove"):
        with pytest.raises(Refused):
            await box.call(FILES + name, {"path": "/etc/x"})
    with pytest.raises(Refused):
        await anext(box.stream(FILES + "WatchDir", {"path": "/etc/x"}))
    octets = {"Content_Type": "application/octet-stream"}
    response = await box.post("/files?path=/etc/x", b"x", **octets, X_Metadata_team="search")
    assert response.status == 403
    assert await asked_as(api, session["id"], f"handle:{session['id']}") == {
        ("file.list", f"e2b POST {FILES}ListDir"),
        # What they begin with is refused already.
        ("file.stat", f"e2b POST {FILES}MakeDir"),
        ("file.stat", f"e2b POST {FILES}CreateWatcher"),
        ("file.stat", f"e2b POST {FILES}WatchDir"),
        ("file.delete", f"e2b POST {FILES}Remove"),
        ("file.write", "e2b POST /files"),
    }


async def test_a_client_that_does_not_read_is_dropped_and_ends_nothing(
    api: Api, session: dict[str, Any], box: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.ground.serving.stream.WRITE_SECONDS", 0.05)
    api.agents.plays["bash"] = Play(holds=True)
    message = {"process": {"cmd": "bash", "args": ["-c", "x"]}}
    response = await box.begin(PROCESS + "Start", message)
    held = api.plane.sessions.registry.get(session["id"])
    assert held is not None
    (command,) = held.running

    answered = 0

    def dropped() -> bool:
        """Prints more whenever the server has asked for more."""
        nonlocal answered
        asked = sum(method == "output" for method, _ in api.agent.requests)
        if asked > answered:
            answered = asked
            api.agent.print(command.id, "stdout", bytes(500_000))
        return held.streams.total() == 0

    await until(dropped)
    assert held.running == [command]
    response.close()


# The interpreter.


@pytest.fixture
def runner(api: Api) -> FakeRunner:
    runner = FakeRunner()
    api.agents.plays["python3"] = runner.play()
    return runner


async def cell(box: Connect, code: str, **members: Any) -> list[dict[str, Any]]:
    body = json.dumps({"code": code, "context_id": None, "language": None, **members}).encode()
    response = await box.post("/execute", body, Content_Type="application/json")
    assert response.status == 200, await response.text()
    return [json.loads(line) async for line in response.content]


async def test_a_cell_is_lines_of_json(api: Api, session: Any, runner: FakeRunner) -> None:
    headers = {
        "E2b-Sandbox-Id": session["id"],
        "E2b-Sandbox-Port": "49999",
        "E2B-Traffic-Access-Token": session["handle"],
    }
    box = Connect(api.client, BASE, headers)
    lines = await cell(box, "print out\nvalue 'x'\nraise boom")
    timestamp = lines[0].pop("timestamp")
    assert timestamp > 10**18
    assert lines[:2] == [
        {"type": "stdout", "text": "out"},
        {"type": "result", "is_main_result": True, "text": "x"},
    ]
    assert (lines[2]["type"], lines[2]["value"]) == ("error", "boom")
    assert lines[3] == {"type": "number_of_executions", "execution_count": 1}
    await cell(box, "print x", env_vars={"A": "its value"})
    await until(lambda: len(runner.cells) == 4)
    assert "its value" in runner.cells[1]
    # As of a command's variables, the record has the names.
    codes = [each["args"]["code"] for each in await recorded(api, session, "code.start")]
    assert not any("its value" in code for code in codes)
    assert "'A'" in codes[1] or '"A' in codes[1].replace("\\", "")
    assert "os.environ.update" in runner.cells[1]
    assert runner.cells[2] == "print x"


async def test_contexts(api: Api, box: Connect, runner: FakeRunner) -> None:
    url = BASE + "/contexts"

    async def contexts() -> list[str]:
        response = await api.client.get(url, headers=box.headers)
        return [each["id"] for each in await response.json()]

    assert await contexts() == ["python", "javascript"]
    response = await api.client.post(url, json={"cwd": "/home/user/a"}, headers=box.headers)
    made = await response.json()
    assert (made["language"], made["cwd"]) == ("python", "/workspace/a")
    assert await contexts() == ["python", "javascript", made["id"]]
    response = await api.client.post(f"{url}/{made['id']}/restart", headers=box.headers)
    assert response.status == 200
    response = await api.client.delete(f"{url}/{made['id']}", headers=box.headers)
    assert response.status == 204
    for method, path in (("POST", "/contexts/none/restart"), ("DELETE", "/contexts/none")):
        response = await api.client.request(method, BASE + path, headers=box.headers)
        assert response.status == 404
        assert (await response.json())["code"] == 404
    body = json.dumps({"code": "1", "context_id": "none"}).encode()
    response = await box.post("/execute", body, Content_Type="application/json")
    assert response.status == 404


async def test_a_caller_that_leaves_interrupts_the_cell(
    api: Api, box: Connect, runner: FakeRunner
) -> None:
    body = json.dumps({"code": "print on\nhang"}).encode()
    response = await box.post("/execute", body, Content_Type="application/json")
    await response.content.readline()
    response.close()
    (context,) = api.plane.contexts.listed(api.plane.sessions.registry.all[0])
    await until(lambda: context.cell is None)
    assert (await cell(box, "print next"))[0]["text"] == "next"


# The sandbox itself, and who may ask.


async def test_state_of_a_sandbox(api: Api) -> None:
    session = await api.session(permission_level="high", env={"A": "1"})
    box = inside(api, session)

    async def health() -> tuple[int, str]:
        response = await api.client.get(BASE + "/health", headers=box.headers)
        return response.status, await response.text()

    never_seen = await api.session(permission_level="high")
    await api.json("DELETE", f"/api/sessions/{never_seen['id']}")
    with pytest.raises(Refused, match="was not found"):
        await inside(api, never_seen).call(PROCESS + "List", {})
    assert await health() == (204, "")
    response = await api.client.get(BASE + "/envs", headers=box.headers)
    assert await response.json() == {"A": "1"}
    response = await api.client.get(BASE + "/metrics", headers=box.headers)
    assert (await response.json())["mem_total"] > 0
    url = f"/api/sessions/{session['id']}"
    await api.json("POST", url + "/pause", json={})
    assert (await health())[0] == 502
    await api.json("POST", url + "/resume", json={})
    assert (await health())[0] == 204
    await api.json("DELETE", url)
    status, text = await health()
    assert (status, "was not found" in text) == (502, True)
    with pytest.raises(Refused) as refused:
        await box.call(PROCESS + "List", {})
    assert refused.value.code == "unavailable"
    assert "was not found" in refused.value.message


async def test_who_may_do_what(api: Api, session: dict[str, Any]) -> None:
    other = await api.session(key=OTHER_KEY, permission_level="high")
    base = {"E2b-Sandbox-Id": session["id"]}
    table = [
        ({**base}, 401, "unauthenticated"),
        ({**base, "X-Access-Token": "pdk_wrong"}, 401, "unauthenticated"),
        ({**base, "X-Access-Token": "pds_" + "0" * 40}, 401, "unauthenticated"),
        ({**base, "X-Access-Token": other["handle"]}, 401, "unauthenticated"),
        ({**base, "X-API-KEY": OTHER_KEY}, 503, "unavailable"),
        ({**base, "X-Access-Token": session["handle"]}, 200, ""),
        ({**base, "X-API-KEY": ADMIN_KEY}, 200, ""),
        ({"X-API-KEY": ADMIN_KEY}, 400, "invalid_argument"),
        ({"E2b-Sandbox-Id": "none", "X-API-KEY": ADMIN_KEY}, 503, "unavailable"),
    ]
    for headers, status, code in table:
        connect = Connect(api.client, BASE, headers)
        try:
            await connect.call(PROCESS + "List", {})
            found = (200, "")
        except Refused as refused:
            found = (refused.status, refused.code)
        assert found == (status, code), headers


async def test_users(api: Api, session: dict[str, Any], box: Connect) -> None:
    for name, code in (("user", ""), ("root", "permission_denied"), ("eve", "unauthenticated")):
        basic = "Basic " + base64.b64encode(f"{name}:".encode()).decode()
        try:
            await box.call(FILES + "ListDir", {"path": ""}, Authorization=basic)
            found = ""
        except Refused as refused:
            found = refused.code
        assert found == code, name


async def test_root_where_the_level_has_it(api: Api, session: dict[str, Any], box: Connect) -> None:
    held = api.plane.sessions.registry.get(session["id"])
    assert held is not None
    held.level = replace(held.level, user="root")
    api.agent.files["a"] = b""
    basic = "Basic " + base64.b64encode(b"root:").decode()
    found = await box.call(FILES + "Stat", {"path": "a"}, Authorization=basic)
    assert found["entry"]["owner"] == "root"


async def test_requests_are_counted_as_others(
    api: Api, session: dict[str, Any], box: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []

    def spend(principal: Principal) -> None:
        counted.append(principal.name)
        if len(counted) > 1:
            raise RateLimitedError("too many", limit=HANDLE_REQUESTS, retry_after=1.0)

    monkeypatch.setattr(api.server.app[BOUNDS].rates, "spend", spend)
    await box.call(PROCESS + "List", {})
    assert counted == [f"handle:{session['id']}"]
    with pytest.raises(Refused) as refused:
        await box.call(PROCESS + "List", {})
    assert (refused.value.status, refused.value.code) == (429, "resource_exhausted")


METHODS = [
    *(PROCESS + name for name in ("List", "SendInput", "CloseStdin", "SendSignal", "Update")),
    *(FILES + name for name in ("Stat", "ListDir", "MakeDir", "Move", "Remove")),
    *(FILES + name for name in ("CreateWatcher", "GetWatcherEvents", "RemoveWatcher")),
]
STREAMS = [
    *(PROCESS + name for name in ("Start", "Connect", "StreamInput")),
    FILES + "WatchDir",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("process", "pid", "tag", "input", "stdin", "pty", "size", "cols", "path"),
                    *(
                        "depth",
                        "source",
                        "destination",
                        "watcherId",
                        "signal",
                        "cmd",
                        "args",
                        "start",
                    ),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
QUICK = hypothesis_settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@QUICK
@given(st.sampled_from(METHODS), VALUES | st.binary(max_size=60))
async def test_any_request_is_answered(box: Connect, method: str, message: Any) -> None:
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    response = await box.post(method, data, Content_Type="application/json")
    text = await response.text()
    assert response.status != 500, text
    assert "Traceback" not in text
    if response.status != 200:
        assert set(json.loads(text)) == {"code", "message"}


@QUICK
@given(
    st.sampled_from(["/files?path=a", "/files", "/execute", "/contexts", "/contexts/x/restart"]),
    st.sampled_from(
        [
            "application/json",
            "application/octet-stream",
            "multipart/form-data; boundary=b0undary",
            "multipart/form-data; boundary=",
            "multipart/mixed; boundary=b0undary",
        ]
    ),
    st.binary(max_size=60)
    | st.lists(
        st.sampled_from(
            [
                *(b"--b0undary\r\n", b"--b0undary--", b"\r\n", b"\r\n\r\n", b"x" * 200),
                b'Content-Disposition: form-data; name="file"; filename="a"\r\n',
                b"Content-Type: multipart/mixed; boundary=c\r\n",
                *(b"Content-Transfer-Encoding: base64\r\n", b"Content-Length: -1\r\n", b"\xff"),
            ]
        ),
        max_size=8,
    ).map(b"".join),
)
async def test_any_upload_is_answered(box: Connect, path: str, kind: str, data: bytes) -> None:
    response = await box.post(path, data, Content_Type=kind, X_Metadata_A="1")
    text = await response.text()
    assert response.status < 500 or response.status == 507, text
    assert "Traceback" not in text


@QUICK
@given(
    st.sampled_from(STREAMS),
    st.lists(VALUES | st.binary(max_size=60), max_size=3),
    st.integers(0, 3),
    st.binary(max_size=8),
)
async def test_any_stream_is_answered(
    box: Connect, method: str, messages: list[Any], flags: int, rest: bytes
) -> None:
    data = b"".join(envelope(each, flags) for each in messages) + rest
    response = await box.post(method, data, Content_Type=STREAM)
    text = await response.read()
    assert response.status in (200, 429), text
    assert b"Traceback" not in text
    assert b'"internal"' not in text
    if response.status == 200:
        flags, length = struct.unpack_from(">BI", text)
        assert length <= len(text)
