"""The remote protocol of SWE-ReX, by plain HTTP, with a fake agent."""

import asyncio
import io
import re
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as how
from hypothesis import strategies as st

from api.compat import spool
from api.compat.swerex import files
from api.compat.swerex.expectation import literal
from api.compat.swerex.last_answers import (
    MOST_ANSWERS,
    MOST_BYTES,
    MOST_BYTES_OF_ALL,
    MOST_BYTES_OF_KEY,
    MOST_SESSIONS_OF_KEY,
    Answer,
    LastAnswers,
)
from api.compat.swerex.shell import shell_name
from orchestrator.ground.limits import UNREAD_BYTES
from orchestrator.settings.settings import Settings
from paddock.contract.requests import LARGEST_BODY
from paddock.contract.shells import SHELL_NAME
from tests.api.conftest import OPERATOR_KEY, Api
from tests.api.test_spawn_restarts import Restart, restart
from tests.support.asked_as import asked_as
from tests.support.fake_agent import Play
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until

__all__ = ["restart"]

REX = "/compat/swerex/box"
EXCEPTIONS = "swerex.exceptions."


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"compat": ("swerex",)})


class Rex:
    """A client of one session, with its handle."""

    def __init__(self, api: Api, key: str) -> None:
        self.api, self.key = api, key

    async def send(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        headers = {"X-API-Key": self.key, **more.pop("headers", {})}
        async with self.api.client.request(method, REX + path, headers=headers, **more) as got:
            text = await got.text()
            assert "Traceback" not in text
            assert got.status != 500, text
            return got.status, await got.json()

    async def ok(self, path: str, body: Any = None, **more: Any) -> dict[str, Any]:
        status, found = await self.send("POST", path, json=body, **more)
        assert status == 200, found
        answer: dict[str, Any] = found
        return answer

    async def raises(self, kind: str, path: str, body: Any, **more: Any) -> dict[str, Any]:
        """The exception that the client raises again."""
        status, found = await self.send("POST", path, json=body, **more)
        assert (status, list(found)) == (511, ["swerexception"]), found
        told: dict[str, Any] = found["swerexception"]
        assert told["class_path"] == (kind if "." in kind else EXCEPTIONS + kind), told
        assert told["message"]
        assert told["traceback"] == ""
        return told

    async def run(self, command: str, **more: Any) -> dict[str, Any]:
        body = {"action_type": "bash", "command": command, **more}
        return await self.ok("/run_in_session", body)


@pytest.fixture
async def rex(api: Api) -> Rex:
    made = await api.session(id="box", permission_level="high", key=OPERATOR_KEY)
    return Rex(api, made["handle"])


async def test_a_session_is_a_runtime(rex: Rex) -> None:
    assert await rex.send("GET", "/is_alive") == (200, {"is_alive": True, "message": ""})
    assert await rex.send("GET", "/") == (200, {"message": "hello world"})
    assert await rex.send("GET", "") == (200, {"message": "hello world"})
    assert await rex.send("GET", "/never") == (404, {"detail": "Not Found"})
    await rex.api.json("DELETE", "/api/sessions/box", key=OPERATOR_KEY)
    rex.key = OPERATOR_KEY
    status, found = await rex.send("GET", "/is_alive")
    assert status != 200 or not found["is_alive"], found


async def test_nothing_is_told_without_a_key(rex: Rex) -> None:
    for key in ("", "pdk_wrong", "pdh_wrong"):
        rex.key = key
        for path in ("", "/", "/is_alive", "//is_alive", "/execute", "//execute", "/never"):
            for method in ("GET", "POST"):
                status, found = await rex.send(method, path)
                assert (status, list(found)) == (403, ["detail"])


async def test_shells_by_their_names(rex: Rex) -> None:
    made = await rex.ok("/create_session", {"session": "a", "session_type": "bash", "more": 1})
    assert made == {"output": "", "session_type": "bash"}
    await rex.ok("/create_session", {"session": "name of / any kind ✓"})
    await rex.raises("SessionExistsError", "/create_session", {"session": "a"})
    answer = await rex.run("echo hi", session="a")
    assert answer == {
        "output": "ran echo hi\n",
        "exit_code": 0,
        "failure_reason": "",
        "expect_string": "",
        "session_type": "bash",
    }
    await rex.run("true", session="name of / any kind ✓")
    gone = {"session": "gone", "command": "true"}
    await rex.raises("SessionDoesNotExistError", "/run_in_session", gone)
    assert await rex.ok("/close_session", {"session": "a"}) == {"session_type": "bash"}
    for path in ("/close_session", "/run_in_session"):
        await rex.raises("SessionDoesNotExistError", path, {"session": "a", "command": "true"})
    # Other shells of the session stay.
    shells = "/api/sessions/box/shells"
    await rex.api.json("POST", shells, json={"name": "own"}, key=OPERATOR_KEY, status=201)
    assert await rex.ok("/close") == {}
    left = (await rex.api.json("GET", shells, key=OPERATOR_KEY))["items"]
    assert [each["name"] for each in left] == ["own"]
    await rex.ok("/create_session", {"session": "a"})


async def test_how_a_command_ends(rex: Rex) -> None:
    await rex.ok("/create_session", {})
    assert (await rex.run("return 3", check="silent"))["exit_code"] == 3
    assert (await rex.run("return 3", check="ignore"))["exit_code"] is None
    body = {"command": "return 3", "error_msg": "It broke"}
    told = await rex.raises("NonZeroExitCodeError", "/run_in_session", body)
    assert told["message"].startswith("It broke: ")
    assert "exit code 3" in told["message"]
    told = await rex.raises("BashIncorrectSyntaxError", "/run_in_session", {"command": "wrong"})
    assert told["extra_info"] == {"bash_stdout": "", "bash_stderr": "line 1: syntax error"}
    told = await rex.raises("SwerexException", "/run_in_session", {"command": "exit 5"})
    assert "exited" in told["message"]
    await rex.raises("SessionDoesNotExistError", "/run_in_session", {"command": "true"})


async def test_a_command_goes_on_after_its_time_until_it_is_interrupted(rex: Rex) -> None:
    await rex.ok("/create_session", {})
    late = {"command": "hang out", "timeout": 0.02}
    told = await rex.raises("CommandTimeoutError", "/run_in_session", late)
    refused = await rex.raises("SwerexException", "/run_in_session", {"command": "true"})
    assert refused["extra_info"]["code"] == "busy"
    interrupt = {"action_type": "bash_interrupt", "timeout": WAIT_SECONDS}
    ended = await rex.ok("/run_in_session", interrupt)
    assert ended["exit_code"] == 0
    assert (told["extra_info"]["output"] + ended["output"]).strip() == "out"
    assert (await rex.run("echo on"))["output"] == "ran echo on\n"
    # Nothing runs any more.
    assert (await rex.ok("/run_in_session", interrupt))["exit_code"] == 0


async def test_what_ignores_interrupts_is_stopped_and_killed_as_a_job(rex: Rex) -> None:
    await rex.ok("/create_session", {})
    terminals = rex.api.agent.terminals
    terminals.stubborn = True
    late = {"command": "hang", "timeout": 0.02}
    await rex.raises("CommandTimeoutError", "/run_in_session", late)
    interrupt = {"action_type": "bash_interrupt", "timeout": 0.02, "n_retry": 2}
    ended = await rex.ok("/run_in_session", interrupt)
    assert ended["output"] == "got \x1a"
    (terminal,) = terminals.all.values()
    tried = [each for each in terminal.sent if "kill" in each]
    assert [each["kill"] for each in tried] == [False, False]
    # What the shell told of the job comes before the next command's output.
    first, second = [(await rex.run("echo on"))["output"] for _ in range(2)]
    assert first == f"ran jobs %%; kill -9 %%\n{second}"


async def test_programs_are_driven_by_what_they_print(rex: Rex) -> None:
    await rex.ok("/create_session", {})
    interactive = {"is_interactive_command": True}
    begun = await rex.run("hang banner >>> more", expect=["never", ">>>"], **interactive)
    assert (begun["output"], begun["expect_string"]) == ("banner", ">>>")
    assert begun["exit_code"] == 0
    ended = await rex.run("quit()", is_interactive_quit=True)
    # What followed the expected text is in the next answer.
    assert (ended["output"], ended["exit_code"]) == ("\nmore\ngot quit()\n", 0)
    late = {"command": "hang x", "expect": ["never"], "timeout": 0.02, **interactive}
    await rex.raises("CommandTimeoutError", "/run_in_session", late)


async def test_files_are_sourced_when_a_shell_begins(rex: Rex) -> None:
    made = await rex.ok("/create_session", {"startup_source": ["/a", "b c"]})
    assert made["output"] == "ran source /a ; source b c\n"


async def test_refusals_have_their_rule_and_a_remedy(api: Api) -> None:
    made = await api.session(id="box", permission_level="medium", key=OPERATOR_KEY)
    rex = Rex(api, made["handle"])
    for path, body in {
        "/create_session": {},
        "/execute": {"command": "echo x | cat", "shell": True},
    }.items():
        told = await rex.raises("SwerexException", path, body)
        assert "(rule shell-" in told["message"]
        assert told["extra_info"]["remedy"] in told["message"]
    answer = await rex.ok("/execute", {"command": ["ls", "-la"]})
    assert answer == {"stdout": "", "stderr": "", "exit_code": 0}
    refused = await rex.raises("SwerexException", "/write_file", {"path": "/tmp/x", "content": ""})
    assert "workspace_path /root" in refused["message"]


async def test_commands_of_their_own(rex: Rex) -> None:
    plays = rex.api.agent.plays
    plays["both"] = Play(b"out", b"err", exit_code=4)
    body: dict[str, Any] = {"command": ["both"], "env": {"A": "1"}, "cwd": "src", "timeout": 5}
    assert await rex.ok("/execute", body) == {"stdout": "out", "stderr": "err", "exit_code": 4}
    asked = await rex.api.agent.asked("exec")
    assert (asked["env"]["A"], asked["cwd"]) == ("1", "/workspace/src")
    told = await rex.raises("NonZeroExitCodeError", "/execute", {**body, "check": True})
    assert "exit code 4" in told["message"]
    assert (await rex.ok("/execute", {"command": "", "shell": True, "check": True}))[
        "exit_code"
    ] == 0


async def test_a_request_is_done_once(rex: Rex) -> None:
    await rex.ok("/create_session", {})
    rex.api.agent.plays["echo"] = Play(b"x")
    body = {"command": ["echo"]}
    first = await rex.ok("/execute", body, headers={"X-Request-ID": "one"})
    again = await rex.ok("/execute", {"command": ["other"]}, headers={"X-Request-ID": "one"})
    assert again == first
    failing = {"command": "return 3"}
    told = [
        await rex.raises(
            "NonZeroExitCodeError", "/run_in_session", failing, headers={"X-Request-ID": "two"}
        )
        for _ in range(2)
    ]
    assert told[0] == told[1]
    ran = (await rex.api.json("GET", "/api/sessions/box/audit?operation=command.start"))["items"]
    assert len(ran) == 1
    typed = (await rex.api.json("GET", "/api/sessions/box/audit?operation=shell.run"))["items"]
    assert len(typed) == 1
    assert typed[0]["args"]["asked_as"] == "swerex POST /run_in_session"


async def test_a_request_whose_client_left_is_not_done_again(rex: Rex) -> None:
    rex.api.agent.plays["sleep"] = Play(holds=True)
    url = rex.api.server.make_url(f"{REX}/execute")
    headers = {"X-API-Key": rex.key, "X-Request-ID": "one"}
    body = {"command": ["sleep", "9"]}
    async with aiohttp.ClientSession() as client:
        asked = asyncio.ensure_future(client.post(url, json=body, headers=headers))
        await rex.api.agent.asked("exec")
        again = asyncio.ensure_future(
            rex.raises("SwerexException", "/execute", body, headers={"X-Request-ID": "one"})
        )
        asked.cancel()
        await asyncio.wait([asked])
    told = await again
    assert "stopped" in told["message"]
    session = rex.api.plane.sessions.registry.get("box")
    assert session is not None
    await until(lambda: not session.running)
    assert [name for name, _ in rex.api.agent.requests].count("exec") == 1


async def test_the_memory_of_answers_is_bounded() -> None:
    now = [0.0]
    answers = LastAnswers(lambda: now[0])

    async def ask(session: str, name: str, size: int, key: str = "ci") -> Answer:
        async def serve() -> Answer:
            return Answer(200, bytes(size))

        return await answers.once(key, session, name, serve, Answer(511, b""))

    for number in range(3 * MOST_ANSWERS):
        await ask("a", f"{number}", 10)
    assert len(answers) <= MOST_ANSWERS + 1
    for number in range(5):
        await ask("a", f"long {number}", MOST_BYTES // 2 + 1)
    assert answers.bytes <= MOST_BYTES
    await ask("a", "longest", 3 * MOST_BYTES)
    # The last one is kept in any case, and what is longer is not asked for twice.
    kept = await answers.once("ci", "a", "longest", _never, Answer(511, b""))
    assert len(kept.body) == 3 * MOST_BYTES
    await ask("mine", "x", 7, "other")
    for number in range(50):
        await ask(f"session {number}", "x", MOST_BYTES)
    # Who keeps much loses its own, and nobody else's.
    assert answers.bytes <= MOST_BYTES_OF_KEY + 7
    assert len((await answers.once("other", "mine", "x", _never, Answer(511, b""))).body) == 7
    for number in range(2 * MOST_SESSIONS_OF_KEY):
        await ask(f"small {number}", "x", 1)
    assert len(answers) <= MOST_SESSIONS_OF_KEY + 1
    for number in range(200):
        await ask(f"{number}", "x", MOST_BYTES, f"key {number // 10}")
    assert answers.bytes <= MOST_BYTES_OF_ALL
    assert len((await answers.once("other", "mine", "x", _never, Answer(511, b""))).body) == 7
    now[0] = 10_000.0
    await ask("last", "x", 1)
    assert (len(answers), answers.bytes) == (1, 1)


async def _never() -> Answer:
    raise AssertionError("this was answered before")


async def test_what_is_asked_for_is_on_record_under_its_own_name(rex: Rex) -> None:
    await rex.ok("/create_session", {})
    await rex.run("echo")
    await rex.ok("/execute", {"command": ["true"]})
    assert await asked_as(rex.api, "box", "handle:box") == {
        ("pty.open", "swerex POST /create_session"),
        ("shell.run", "swerex POST /run_in_session"),
        ("command.start", "swerex POST /execute"),
    }


async def test_files_are_read_and_written(rex: Rex) -> None:
    assert await rex.ok("/write_file", {"path": "a/b.txt", "content": "ü\r\nx"}) == {}
    stored = rex.api.agent.files
    assert stored["a/b.txt"] == "ü\r\nx".encode()
    assert await rex.ok("/read_file", {"path": "a/b.txt"}) == {"content": "ü\nx"}
    stored["latin"] = b"\xfc"
    assert await rex.ok("/read_file", {"path": "latin", "encoding": "latin-1"}) == {"content": "ü"}
    replaced = await rex.ok("/read_file", {"path": "latin", "errors": "replace"})
    assert replaced == {"content": "\N{REPLACEMENT CHARACTER}"}
    await rex.raises("builtins.UnicodeError", "/read_file", {"path": "latin"})
    await rex.raises("builtins.FileNotFoundError", "/read_file", {"path": "never"})
    for wrong in ({"encoding": "zip"}, {"encoding": "idna"}, {"encoding": "\ud800"}):
        status, _ = await rex.send("POST", "/read_file", json={"path": "latin", **wrong})
        assert status == 422
    status, found = await rex.send("POST", "/read_file", json={"path": "latin", "errors": "no"})
    assert (status, found["detail"].startswith("errors")) == (422, True)


async def test_a_file_that_is_too_long_is_not_read(
    rex: Rex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_READ", 10)
    rex.api.agent.files["long"] = bytes(11)
    told = await rex.raises("SwerexException", "/read_file", {"path": "long"})
    assert told["extra_info"]["code"] == "too_large"


def form(file: bytes, **values: str) -> aiohttp.FormData:
    data = aiohttp.FormData()
    data.add_field("file", file, filename="f")
    for name, value in values.items():
        data.add_field(name, value)
    return data


async def test_uploads(rex: Rex) -> None:
    long = bytes(range(256)) * 4096  # longer than what is kept in memory
    for data in (b"", b"tool", long):
        status, found = await rex.send(
            "POST", "/upload", data=form(data, target_path="bin/tool", unzip="false")
        )
        assert (status, found) == (200, {})
        assert rex.api.agent.files["bin/tool"] == data
    # A directory arrives as a zip archive, which this agent does not read.
    await rex.send("POST", "/upload", data=form(b"PK", target_path="tools", unzip="true"))
    opened = [params for name, params in rex.api.agent.requests if name == "file.open"][-1]
    assert (opened["op"], opened["path"], opened["format"]) == ("unpack", "tools", "zip")
    status, found = await rex.send("POST", "/upload", data=form(b"x"))
    assert (status, found) == (422, {"detail": "target_path is missing"})
    status, found = await rex.send("POST", "/upload", data=form(b"x", target_path="/root/tools/x"))
    assert status == 511
    assert "workspace_path /root" in found["swerexception"]["message"]
    status, _ = await rex.send("POST", "/upload", json={})
    assert status == 422


async def test_limits_of_size(rex: Rex, monkeypatch: pytest.MonkeyPatch) -> None:
    long = io.BytesIO(b'{"path": "x", "content": "' + b"x" * LARGEST_BODY + b'"}')
    status, found = await rex.send("POST", "/write_file", data=long)
    assert (status, found["swerexception"]["extra_info"]["code"]) == (511, "too_large")
    monkeypatch.setattr(spool, "MOST_BYTES", 1_000_000)
    status, found = await rex.send("POST", "/upload", data=form(bytes(1_000_001), target_path="x"))
    assert (status, found["swerexception"]["extra_info"]["code"]) == (511, "too_large")
    monkeypatch.setattr(spool, "MOST_BYTES_OF_KEY", 600_000)
    status, found = await rex.send("POST", "/upload", data=form(bytes(900_000), target_path="x"))
    assert (status, found["swerexception"]["extra_info"]["limit"]) == (511, UNREAD_BYTES)
    assert "x" not in rex.api.agent.files
    # Nothing of them is kept, and the next one has room.
    status, _ = await rex.send("POST", "/upload", data=form(bytes(500_000), target_path="x"))
    assert status == 200
    assert len(rex.api.agent.files["x"]) == 500_000


async def test_an_upload_whose_client_leaves_holds_nothing(rex: Rex) -> None:
    url = rex.api.server.make_url("")
    _, writer = await asyncio.open_connection(url.host, url.port)
    part = b'--XX\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + bytes(700_000)
    head = (
        f"POST {REX}/upload HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: {rex.key}\r\n"
        "Content-Type: multipart/form-data; boundary=XX\r\nContent-Length: 2000000\r\n\r\n"
    )
    held: list[spool.Spools] = []
    usual = spool.Spools.take

    def take(self: spool.Spools, account: str, size: int) -> None:
        held.append(self)
        usual(self, account, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool.Spools, "take", take)
        writer.write(head.encode() + part)
        await until(lambda: bool(held) and held[0].held > 500_000)
        writer.transport.abort()
        await until(lambda: held[0].held == 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda each: (
        st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=9), each, max_size=3)
    ),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        *("session", "command", "timeout", "check", "expect", "path", "content", "shell", "env"),
        *("cwd", "action_type", "n_retry", "is_interactive_command", "encoding"),
        *("startup_source", "merge_output_streams"),
    ]
)
PATHS = st.sampled_from(
    [
        *("create_session", "run_in_session", "close_session", "execute", "read_file"),
        *("write_file", "upload", "close", "is_alive", "/", "x", "../box", "%2e%2e", "a%00b"),
    ]
)


@pytest.mark.parametrize("shell", [False, True])
async def test_any_request_is_answered(rex: Rex, shell: bool) -> None:
    if shell:
        await rex.ok("/create_session", {})
    seen: list[tuple[str, Any]] = []

    @how(suppress_health_check=list(HealthCheck), database=None)
    @given(PATHS, st.dictionaries(NAMES, JSON, max_size=5) | JSON)
    def gather(path: str, body: Any) -> None:
        seen.append((path, body))

    gather()
    for path, body in seen:
        if isinstance(body, dict):
            body.setdefault("timeout", 0.01)
        async with asyncio.timeout(WAIT_SECONDS):
            await fuzzed(rex, path, body)


async def fuzzed(rex: Rex, path: str, body: Any) -> None:
    headers = {"X-API-Key": rex.key}
    async with rex.api.client.post(f"{REX}/{path}", headers=headers, json=body) as got:
        text = await got.text()
        assert got.status in (200, 403, 404, 422, 511), text
        assert "Traceback" not in text
        if got.status == 511:
            told = (await got.json())["swerexception"]
            assert told["extra_info"].get("code") != "internal_error", (path, body, told)


@given(st.text())
def test_every_name_of_a_client_is_that_of_one_shell(name: str) -> None:
    found = shell_name(name)
    assert re.fullmatch(SHELL_NAME, found)
    assert shell_name(name + "x") != found


@given(st.text())
def test_a_pattern_of_letters_is_its_text(text: str) -> None:
    assert literal(text.replace("\\", "")) == text.replace("\\", "")
    assert literal(re.escape(text)) == text


async def test_a_restart_in_the_middle_of_a_command(rex: Rex, restart: Restart) -> None:
    await rex.ok("/create_session", {})
    asked = rex.send("POST", "/run_in_session", json={"command": "hang"})
    hanging = asyncio.ensure_future(asked)
    (terminal,) = rex.api.agent.terminals.all.values()
    await until(lambda: any(each.get("text") == "hang" for each in terminal.sent))
    async with restart() as after:
        later = Rex(after, rex.key)
        assert (await later.send("GET", "/is_alive"))[1]["is_alive"]
        body = {"command": "true"}
        told = await later.raises("SessionDoesNotExistError", "/run_in_session", body)
        assert "control_plane_" in told["message"]
        await later.ok("/create_session", {})
        assert (await later.run("echo on"))["output"] == "ran echo on\n"
        hanging.cancel()
        await asyncio.wait([hanging])


async def test_a_slow_reader_holds_nobody_up(rex: Rex) -> None:
    rex.api.agent.files["long"] = b"x" * 8_000_000
    url = rex.api.server.make_url("")
    reader, writer = await asyncio.open_connection(url.host, url.port, limit=1024)
    body = b'{"path": "long"}'
    head = (
        f"POST {REX}/read_file HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: {rex.key}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    async with asyncio.timeout(WAIT_SECONDS):
        assert (await rex.send("GET", "/is_alive"))[0] == 200
    writer.transport.abort()
