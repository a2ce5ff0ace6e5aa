"""Lines of a shell, joined streams, output in files, times of events, and short time limits."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddock import Output, Paddock, PermissionDeniedError
from tests.api.conftest import ADMIN_KEY, Api
from tests.api.test_exec import SSE, read_events
from tests.api.test_mcp import begun
from tests.support.fake_agent import Play

LINE = "cd a && make 2>&1 | tail"


@pytest.fixture
async def path(api: Api) -> str:
    api.agents.plays["bash"] = Play(b"made\n", b"warned\n", exit_code=3)
    return f"/api/sessions/{(await api.session(id='web-1', permission_level='high'))['id']}"


async def test_the_agent_gets_the_words_that_run(api: Api, path: str) -> None:
    body = {"shell": LINE, "merge": True, "output_file": "/workspace/a/../log", "timeout": 0.5}
    result = await api.json("POST", path + "/exec", json=body)
    assert (result["exit_code"], result["stdout"]) == (3, "made\n")
    params = await api.agent.asked("exec")
    assert params["argv"] == ["bash", "-c", LINE]
    assert (params["merge"], params["output_file"], params["timeout_ms"]) == (True, "log", 500)
    (event,) = (await api.json("GET", path + "/audit?operation=command.start"))["items"]
    recorded = event["args"]
    assert (recorded["shell"], recorded["argv"]) == (LINE, ["bash", "-c", LINE])
    assert (recorded["merge"], recorded["output_file"]) == (True, "/workspace/a/../log")
    assert (recorded["timeout"], recorded["timeout_ms"]) == (1, 500)


async def test_no_part_of_a_secret_is_on_record(api: Api) -> None:
    secret = "a-long-and-secret-value"
    body: dict[str, Any] = {"permission_level": "high", "secrets": {"SECRET_TOKEN": secret}}
    path = f"/api/sessions/{(await api.session(**body))['id']}"
    # The record has the first 1,024 bytes of a text.
    for size in range(1024 - len(secret), 1025):
        line = f"{'x' * size}{secret}"
        command = {"shell": line, "output_file": line}
        await api.json("POST", path + "/exec", json=command)
    events = (await api.json("GET", path + "/audit?operation=command.start&limit=100"))["items"]
    assert len(events) == len(secret) + 1
    for event in events:
        told = str(event["args"])
        assert secret[:3] not in told
        assert "x" * 900 in event["args"]["shell"]


async def test_whole_seconds_are_on_record_as_before(api: Api, path: str) -> None:
    for given, sent in ((30, 30_000), (30.0, 30_000)):
        await api.json("POST", path + "/exec", json={"argv": ["bash"], "timeout": given})
        assert api.agent.requests[-1][1]["timeout_ms"] == sent
        newest = (await api.json("GET", path + "/audit?operation=command.start"))["items"][-1]
        assert newest["args"]["timeout"] == 30
        assert "timeout_ms" not in newest["args"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"shell": "ls", "command": "ls"}, None),
        ({"shell": "ls", "argv": ["ls"]}, None),
        ({"shell": "ls", "tool": "show"}, None),
        ({"shell": ""}, "shell"),
        ({"shell": "x" * (64 * 1024 + 1)}, "shell"),
        ({"shell": "a\0b"}, "shell"),
        ({"shell": ["ls"]}, "shell"),
        ({"argv": ["ls"], "timeout": 0}, "timeout"),
        ({"argv": ["ls"], "timeout": -0.5}, "timeout"),
        ({"argv": ["ls"], "timeout": 3600.5}, "timeout"),
        ({"argv": ["ls"], "timeout": "0.5"}, "timeout"),
        ({"argv": ["ls"], "merge": 1}, "merge"),
        ({"argv": ["ls"], "output_file": "."}, "output_file"),
        ({"argv": ["ls"], "output_file": "a\0b"}, "output_file"),
        ({"argv": ["ls"], "output_file": ""}, "output_file"),
    ],
)
async def test_bad_input_starts_nothing(
    api: Api, path: str, body: dict[str, Any], field: str | None
) -> None:
    problem = await api.problem(400, "validation_error", "POST", path + "/exec", json=body)
    assert problem.get("field") == field, problem
    assert not (await api.json("GET", path + "/processes"))["items"]


async def test_what_to_do_instead_depends_on_the_level(api: Api, path: str) -> None:
    for level, ways in (("high", "`shell`"), ("medium", "runs no shell"), ("low", "runs no shell")):
        name = f"at-{level}"
        await api.session(id=name, permission_level=level)
        url, body = f"/api/sessions/{name}/exec", {"command": "ls | wc"}
        problem = await api.problem(403, "permission_denied", "POST", url, json=body)
        assert problem["rule"] == "shell-operators"
        assert ways in problem["remedy"]
        assert ("shell" in problem["detail"].split(": ")[-1]) == (level == "high")
        question = {"level": level, "command": "ls | wc"}
        explained = await api.json("POST", "/api/policies/explain", json=question)
        assert explained["remedy"] == problem["remedy"]
        if level != "high":
            body = {"shell": "ls | wc"}
            problem = await api.problem(403, "permission_denied", "POST", url, json=body)
            assert problem["rule"] == "shell-level"
            (_, denied) = (await api.json("GET", f"/api/sessions/{name}/audit?decision=deny"))[
                "items"
            ]
            assert denied["args"]["shell"] == "ls | wc"
        assert not [name for name, _ in api.agent.requests if name == "exec"]


async def test_events_and_pages_have_their_times(api: Api, path: str) -> None:
    begin = datetime.now(UTC) - timedelta(seconds=1)
    body = {"shell": LINE}
    response = await api.call("POST", path + "/exec", json=body, headers=SSE)
    events = await read_events(response)
    times = [datetime.fromisoformat(data["time"]) for _, data, _ in events]
    assert [name for name, *_ in events] == ["start", "stdout", "stderr", "exit"]
    assert all(begin <= time <= datetime.now(UTC) + timedelta(seconds=1) for time in times)
    page = await api.json("GET", f"{path}/processes/{events[0][1]['command_id']}")
    assert [piece["time"] for piece in page["output"]] == [
        data["time"] for _, data, _ in events[1:3]
    ]


async def test_an_agent_that_tells_no_times_is_understood(api: Api, path: str) -> None:
    chunks = [["stdout", 0, "bWFkZQo="], ["stdout", 5, "Cg==", None]]
    api.agent.overrides["output"] = lambda _params: {"chunks": chunks, "next": 6, "ended": True}
    command = await api.json("POST", path + "/exec", json={"shell": LINE})
    page = await api.json("GET", f"{path}/processes/{command['command_id']}")
    assert all("time" not in piece for piece in page["output"])
    for wrong in ("1", True, -1, 1e18, [1]):
        chunks[0] = ["stdout", 0, "bWFkZQo=", wrong]
        url = f"{path}/processes/{command['command_id']}"
        await api.problem(502, "sandbox_unavailable", "GET", url)


async def test_the_clients_run_lines(api: Api, path: str) -> None:
    url = f"http://127.0.0.1:{api.server.port}"
    async with Paddock(url, ADMIN_KEY) as paddock:
        session = await paddock.sessions.get("web-1")
        result = await session.shell(LINE, merge=True, timeout=0.5)
        assert (result.exit_code, result.stdout_bytes) == (3, b"made\n")
        pieces = [
            event
            async for event in session.exec_stream(shell=LINE, output_file="log")
            if isinstance(event, Output)
        ]
        assert all(piece.time is not None for piece in pieces)
        started = await session.processes.start(shell=LINE, merge=True)
        assert started.argv == ["bash", "-c", LINE]
        with pytest.raises(TypeError, match="exactly one"):
            await session.exec("ls", shell="ls")
        low = await paddock.sessions.create(permission_level="low")
        with pytest.raises(PermissionDeniedError) as refused:
            await low.shell("ls")
        assert refused.value.rule == "shell-level"


async def test_the_tool_of_the_protocol_runs_lines(api: Api) -> None:
    api.agents.plays["bash"] = Play(b"made\n")
    talk = await begun(api, permission_level="high")
    result = await talk.call("exec", shell=LINE, merge=True, output_file="log", timeout=0.5)
    assert "made" in result["content"][0]["text"]
    params = await api.agent.asked("exec")
    assert (params["argv"][-1], params["merge"], params["output_file"]) == (LINE, True, "log")
    result = await talk.call("exec", command="ls | wc")
    assert result["structuredContent"]["remedy"].startswith("Give the line as `shell`")
