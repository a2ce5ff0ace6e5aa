"""The workspace interface of OpenHands, by plain HTTP, with a fake agent."""

import asyncio
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as how
from hypothesis import strategies as st

from api.compat.openhands import files
from api.compat.openhands.events import events_of
from api.compat.openhands.failures import reason_of
from orchestrator.settings.settings import Settings
from paddock.contract.commands import CommandOutput
from tests.api.conftest import OPERATOR_KEY, Api
from tests.api.test_spawn_restarts import Restart, restart
from tests.support.asked_as import asked_as
from tests.support.fake_agent import Play
from tests.support.limits import WAIT_SECONDS

__all__ = ["restart"]

HANDS = "/compat/openhands/box"
START = "/api/bash/start_bash_command"
EVENTS = "/api/bash/bash_events/search"
HEADER = "X-Session-API-Key"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"compat": ("openhands",)})


class Hands:
    """A client of one session, with its handle."""

    def __init__(self, api: Api, key: str) -> None:
        self.api, self.key = api, key

    async def send(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        url, headers = HANDS + path, {HEADER: self.key}
        async with self.api.client.request(method, url, headers=headers, **more) as got:
            text = await got.text()
            assert "Traceback" not in text
            assert got.status != 500, text
            return got.status, await got.json()

    async def ok(self, method: str, path: str, **more: Any) -> Any:
        status, found = await self.send(method, path, **more)
        assert status == 200, found
        return found

    async def refused(self, status: int, method: str, path: str, **more: Any) -> str:
        """The reason in the status line, which is what the client shows."""
        headers = {HEADER: self.key}
        async with self.api.client.request(method, HANDS + path, headers=headers, **more) as got:
            found = await got.json()
            assert got.status == status, found
            assert got.reason is not None
            assert found["detail"].startswith(got.reason)
            return got.reason

    async def start(self, command: str, **more: Any) -> str:
        found = await self.ok("POST", START, json={"command": command, "timeout": 30, **more})
        assert found["kind"] == "BashCommand"
        return str(found["id"])

    async def events(self, command_id: str | None, after: int = -1, **more: Any) -> list[Any]:
        """A page as the client asks for it."""
        params = {"kind__eq": "BashOutput", "sort_order": "TIMESTAMP", "limit": "100", **more}
        if command_id is not None:
            params["command_id__eq"] = command_id
        if after >= 0:
            params["order__gt"] = str(after)
        found = await self.ok("GET", EVENTS, params=params)
        items: list[Any] = found["items"]
        return items

    async def finished(self, command_id: str) -> tuple[str, str, int]:
        """Both streams and the exit code, as the client collects them."""
        texts, after, seen = {"stdout": "", "stderr": ""}, -1, set()
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                for event in await self.events(command_id, after):
                    assert event["id"] not in seen
                    seen.add(event["id"])
                    assert event["order"] > after
                    after = event["order"]
                    for stream in texts:
                        texts[stream] += event[stream] or ""
                    if event["exit_code"] is not None:
                        return texts["stdout"], texts["stderr"], event["exit_code"]


@pytest.fixture
async def hands(api: Api) -> Hands:
    made = await api.session(id="box", permission_level="high", key=OPERATOR_KEY)
    return Hands(api, made["handle"])


def play(hands: Hands, what: Play) -> None:
    """What any command of bash does."""
    hands.api.agent.plays |= dict.fromkeys(("bash", "/bin/bash", "/usr/bin/bash"), what)


async def test_health_needs_no_key_and_tells_nothing(hands: Hands) -> None:
    for session in ("box", "never"):
        for path in ("health", "alive"):
            url = f"/compat/openhands/{session}/{path}"
            async with hands.api.client.get(url) as got:
                assert (got.status, await got.json()) == (200, {"status": "ok"})
    info = await hands.ok("GET", "/server_info")
    assert (info["title"], info["workspace"]) == ("Paddock", "/workspace")
    hands.key = "pdk_wrong"
    assert "not known" in await hands.refused(401, "GET", "/server_info")
    async with hands.api.client.get(f"{HANDS}/server_info") as got:
        assert got.status == 401


async def test_a_command_is_started_and_polled(hands: Hands) -> None:
    chunks = [("stdout", b"one\n"), ("stderr", b"two\n"), ("stdout", "drei ü".encode())]
    play(hands, Play(chunks=chunks, exit_code=3))
    command_id = await hands.start("make 2>&1", cwd="src")
    assert await hands.finished(command_id) == ("one\ndrei ü", "two\n", 3)
    asked = await hands.api.agent.asked("exec")
    assert (asked["cwd"], asked["argv"][-1]) == ("/workspace/src", "make 2>&1")
    whole = await hands.events(command_id)
    orders = [event["order"] for event in whole]
    assert orders == sorted(orders)
    assert await hands.events(command_id, orders[1]) == whole[2:]
    assert await hands.events(command_id, orders[-1]) == []
    latest = await hands.events(command_id, sort_order="TIMESTAMP_DESC", limit="1")
    assert [(each["stdout"], each["exit_code"]) for each in latest] == [("drei ü", 3)]
    assert await hands.events(None, sort_order="TIMESTAMP_DESC", limit="1") == latest
    assert await hands.events(command_id, kind__eq="BashCommand") == []


async def test_a_command_is_read_while_it_runs_and_stopped(hands: Hands) -> None:
    play(hands, Play(b"begun", holds=True))
    command_id = await hands.start("sleep 100")
    (event,) = await hands.events(command_id)
    assert (event["stdout"], event["exit_code"]) == ("begun", None)
    assert await hands.events(command_id, event["order"]) == []
    (latest,) = await hands.events(None, sort_order="TIMESTAMP_DESC", limit="1")
    assert (latest["stdout"], latest["exit_code"]) == ("begun", None)
    hands.api.agent.print(command_id, "stderr", b"more")
    (event,) = await hands.events(command_id, event["order"])
    assert event["stderr"] == "more"
    stop = f"/api/bash/bash_commands/{command_id}/stop"
    assert await hands.ok("POST", stop) == {"success": True}
    assert await hands.finished(command_id) == ("begun", "more", 137)
    await hands.refused(404, "POST", "/api/bash/bash_commands/never/stop")


async def test_the_end_of_the_time(hands: Hands) -> None:
    play(hands, Play(holds=True))
    command_id = await hands.start("sleep 100", timeout=7)
    asked = await hands.api.agent.asked("exec")
    assert asked["timeout_ms"] == 7000
    hands.api.agent.end(command_id, 137, timed_out=True, reason="timeout")
    _, stderr, exit_code = await hands.finished(command_id)
    assert exit_code == -1
    assert "timed out" in stderr


async def test_nothing_and_no_command(hands: Hands) -> None:
    assert await hands.events(None) == []
    assert (await hands.finished(await hands.start("")))[2] == 0
    await hands.refused(404, "GET", EVENTS, params={"command_id__eq": "never"})


async def test_a_level_without_a_shell_runs_single_commands(api: Api) -> None:
    made = await api.session(id="box", permission_level="medium", key=OPERATOR_KEY)
    hands = Hands(api, made["handle"])
    assert (await hands.finished(await hands.start("ls -la")))[2] == 0
    reason = await hands.refused(403, "POST", START, json={"command": "ls | sort"})
    assert "rule shell-operators" in reason
    assert "Pass the words in argv" in reason


async def test_files(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(256)) * 2000
    where = {"path": "/workspace/a/b.bin"}
    form = aiohttp.FormData()
    form.add_field("file", data, filename="b.bin")
    found = await hands.ok("POST", "/api/file/upload", params=where, data=form)
    assert found == {"success": True, "file_size": len(data), "error": None}
    assert hands.api.agent.files["a/b.bin"] == data
    headers = {HEADER: hands.key}
    url = f"{HANDS}/api/file/download"
    async with hands.api.client.get(url, params=where, headers=headers) as got:
        assert (got.status, await got.read()) == (200, data)
    reason = await hands.refused(404, "GET", "/api/file/download", params={"path": "never"})
    assert "never" in reason
    form = aiohttp.FormData()
    form.add_field("file", b"x", filename="x")
    found = await hands.ok("POST", "/api/file/upload", params={"path": "/etc/x"}, data=form)
    assert not found["success"]
    assert "rule path-outside-workspace" in found["error"]
    await hands.refused(400, "GET", "/api/file/download")
    await hands.refused(400, "GET", "/api/file/download?path=a&path=b")


async def test_what_is_asked_for_is_on_record_under_its_own_name(hands: Hands) -> None:
    await hands.finished(await hands.start("true"))
    await hands.send("GET", "/api/git/changes", params={"path": "."})
    assert await asked_as(hands.api, "box", "handle:box") == {
        ("command.start", "openhands POST /api/bash/start_bash_command"),
        ("command.start", "openhands GET /api/git/changes"),
    }


def git(hands: Hands) -> None:
    """A repository with one commit, by what its git prints."""
    told = {
        "rev-parse": Play(b"c0ffee\n"),
        "diff": Play(b"M\0a b.txt\0D\0gone\0A\0new\0T\0kind\0"),
        "ls-files": Play("ü\0".encode()),
        "show": Play(b"old\n"),
    }

    class Plays(dict[str, Play]):
        """By git's own word, which is in the request that has come last."""

        def get(self, _name: str, default: Any = None, /) -> Any:
            _, params = [each for each in hands.api.agent.requests if each[0] == "exec"][-1]
            return told.get(params["argv"][3], default)

    hands.api.agent.plays = Plays()


async def test_what_git_tells(hands: Hands) -> None:
    git(hands)
    found = await hands.ok("GET", "/api/git/changes", params={"path": "/workspace/repo"})
    assert found == [
        {"status": "UPDATED", "path": "a b.txt"},
        {"status": "DELETED", "path": "gone"},
        {"status": "ADDED", "path": "new"},
        {"status": "UPDATED", "path": "kind"},
        {"status": "ADDED", "path": "ü"},
    ]
    ran = [params for name, params in hands.api.agent.requests if name == "exec"]
    assert {params["cwd"] for params in ran} == {"/workspace/repo"}
    assert "c0ffee" in ran[1]["argv"]
    hands.api.agent.files["repo/a b.txt"] = b"new\nlines\n"
    place = {"path": "/workspace/repo/a b.txt"}
    found = await hands.ok("GET", "/api/git/diff", params=place)
    assert found == {"modified": "new\nlines", "original": "old"}
    found = await hands.ok("GET", "/api/git/diff", params={"path": "/workspace/repo/gone"})
    assert found == {"modified": "", "original": "old"}
    for ref in ("--output=x", "-x", "a b", "a\nb", ""):
        await hands.refused(400, "GET", "/api/git/changes", params={"path": ".", "ref": ref})


async def test_git_without_a_commit(hands: Hands) -> None:
    hands.api.agent.plays = {"git": Play(exit_code=128)}
    reason = await hands.refused(409, "GET", "/api/git/changes", params={"path": "."})
    assert reason.startswith("git failed")


def page(**members: Any) -> CommandOutput:
    known = {"command_id": "c", "argv": ["x"], "background": True, "status": "running"}
    usual: dict[str, Any] = {"started_at": "", "exit": None, "output": [], "next": 0, "lost": False}
    return CommandOutput.model_validate(known | usual | members)


def test_output_that_is_not_kept_is_told() -> None:
    piece = {"stream": "stdout", "offset": 50, "text": "late"}
    events = list(events_of("c", page(output=[piece], next=54), 10))
    assert [(each["order"], each["stdout"]) for each in events] == [(54, "late")]
    assert events[0]["stderr"] == "[40 bytes of output are not kept]\n"


@given(st.text())
def test_a_status_line_has_only_what_it_may(text: str) -> None:
    reason = reason_of(text)
    assert reason.isascii()
    assert not set(reason) & set("\r\n\0")


PATHS = st.sampled_from(
    [
        *("GET /server_info", f"POST {START}", f"GET {EVENTS}", "POST /api/file/upload"),
        *("POST /api/bash/bash_commands/x/stop", "GET /api/file/download", "GET /api/git/changes"),
        *("GET /api/git/diff", "GET /api/conversations", "DELETE /", "GET /api/git/%2e%2e"),
    ]
)
NAMES = st.sampled_from(
    [
        *("path", "ref", "limit", "order__gt", "sort_order", "kind__eq", "command_id__eq"),
        *("command", "cwd", "timeout", "more"),
    ]
)
VALUES = st.text(max_size=9) | st.integers().map(str)


async def test_any_request_is_answered(hands: Hands) -> None:
    seen: list[tuple[str, dict[str, str]]] = []

    @how(suppress_health_check=list(HealthCheck), database=None)
    @given(PATHS, st.dictionaries(NAMES, VALUES, max_size=4))
    def gather(path: str, given_: dict[str, str]) -> None:
        seen.append((path, given_))

    gather()
    for path, members in seen:
        method, _, where = path.partition(" ")
        more: dict[str, Any] = {"json": members} if method == "POST" else {"params": members}
        headers = {HEADER: hands.key}
        async with asyncio.timeout(WAIT_SECONDS):
            async with hands.api.client.request(
                method, HANDS + where, headers=headers, **more
            ) as got:
                text = await got.text()
        assert got.status in (200, 400, 403, 404, 405, 409), (path, members, text)
        assert "Traceback" not in text


async def test_a_restart_in_the_middle_of_a_command(hands: Hands, restart: Restart) -> None:
    play(hands, Play(b"begun", holds=True))
    command_id = await hands.start("sleep 100")
    async with restart() as after:
        later = Hands(after, hands.key)
        (event,) = await later.events(command_id)
        assert (event["stdout"], event["exit_code"]) == ("begun", None)
        after.agent.end(command_id, 0)
        assert await later.finished(command_id) == ("begun", "", 0)


async def test_a_slow_reader_holds_nobody_up(hands: Hands) -> None:
    hands.api.agent.files["long"] = bytes(8_000_000)
    url = hands.api.server.make_url("")
    reader, writer = await asyncio.open_connection(url.host, url.port, limit=1024)
    head = f"GET {HANDS}/api/file/download?path=long HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    writer.write(f"{head}{HEADER}: {hands.key}\r\n\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    async with asyncio.timeout(WAIT_SECONDS):
        await hands.ok("GET", "/server_info")
    writer.transport.abort()


async def test_a_file_that_is_too_long_is_not_compared(
    hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(hands)
    monkeypatch.setattr(files, "MOST_SHOWN", 3)
    hands.api.agent.files["x"] = b"1234"
    reason = await hands.refused(413, "GET", "/api/git/diff", params={"path": "x"})
    assert "more than 3 bytes" in reason
