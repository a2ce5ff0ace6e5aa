"""The command line with the API on a real port: its output, and its exit."""

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import Rules
from paddock.cli.exits import Status
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, Api
from tests.support.cases import each
from tests.support.cli import Ended, run_beside
from tests.support.fake_agent import AgentRefusalError, Play
from tests.support.free_ports import free_port
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def environment(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)


@pytest.fixture
async def session(api: Api) -> str:
    return str((await api.session(id="web-1", permission_level="high"))["id"])


@asynccontextmanager
async def started(
    *arguments: str, piped: bool = False
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command in a separate process, for tests that need a real process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "paddock", *arguments),
        stdin=asyncio.subprocess.PIPE if piped else None,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def objects(ended: Ended) -> Any:
    """The JSON of a command that succeeded."""
    assert ended.status == 0, ended.err
    return json.loads(ended.out)


def exists(path: str) -> bool:
    return os.path.lexists(path)


# run and exec


async def test_run_shows_output_and_gives_the_exit_status(api: Api) -> None:
    api.agents.plays["make"] = Play(b"out \xc3\xa9\n", b"err\n", exit_code=7)
    ended = await run_beside("run", "--level", "high", "--", "make", "it", "-l", "--json")
    assert ended == Ended(7, "out é\n", "err\n")
    params = await api.agent.asked("exec")
    assert params["argv"] == ["make", "it", "-l", "--json"]
    (view,) = (await api.json("GET", "/api/sessions"))["items"]
    assert (view["status"], view["permission_level"]) == ("completed", "high")
    assert not exists(view["workspace"]["root_dir"])


async def test_escape_sequences_reach_no_terminal(api: Api) -> None:
    api.agents.plays["evil"] = Play(b"\x1b[2J", b"\x1b]0;x\x07")
    plain = await run_beside("run", "--level", "high", "--", "evil", terminal=True)
    assert "\x1b[2J" not in plain.out
    assert "\\x1b[2J" in plain.out
    assert "\x1b]0;" not in plain.err
    raw = await run_beside("run", "--level", "high", "--raw", "--", "evil", terminal=True)
    assert "\x1b[2J" in raw.out
    piped = await run_beside("run", "--level", "high", "--", "evil")
    assert piped.out == "\x1b[2J"


async def test_run_needs_no_dashes(api: Api) -> None:
    api.agents.plays["ls"] = Play(b"a\n")
    assert await run_beside("run", "ls", "-l", "-a") == Ended(0, "a\n", "")
    assert (await api.agent.asked("exec"))["argv"] == ["ls", "-l", "-a"]


async def test_run_passes_on_what_it_was_given(api: Api) -> None:
    options = ("--cwd", "src", "-e", "A=1=2", "-e", "B=", "--timeout", "9")
    assert (await run_beside("run", "--level", "high", *options, "--", "it")).status == 0
    params = await api.agent.asked("exec")
    assert (params["cwd"], params["timeout_ms"]) == ("/workspace/src", 9000)
    assert {"A": "1=2", "B": ""}.items() <= params["env"].items()


async def test_run_uploads_first_and_keeps(api: Api, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "note").write_bytes(b"\x00\xff")
    ended = await run_beside("run", "--upload", str(tmp_path), "--keep", "--", "ls")
    assert ended.status == 0
    assert api.agents.files == {"deep/note": b"\x00\xff"}
    (view,) = (await api.json("GET", "/api/sessions"))["items"]
    assert view["status"] == "active"
    assert f"paddock sessions close {view['id']}" in ended.line


async def test_run_as_json(api: Api) -> None:
    api.agents.plays["ls"] = Play(b"a\n", exit_code=3)
    ended = await run_beside("run", "--json", "--", "ls")
    assert (ended.status, ended.err) == (3, "")
    result = json.loads(ended.out)
    assert (result["exit_code"], result["stdout"]) == (3, "a\n")
    assert result["session"].startswith("sess-")


async def test_json_waits_for_no_end_of_the_input(api: Api, session: str) -> None:
    """An input pipe that is never closed (agents and CI leave such pipes) blocks nothing."""
    api.agents.plays["ls"] = Play(b"a\xff\n", b"oops", exit_code=3)
    api.agents.plays["cat"] = Play(holds=True)
    for command in (("exec", "--json", session), ("run", "--level", "high", "--json")):
        async with started(*command, "--", "ls", piped=True) as process:
            assert process.stdout is not None
            result = json.loads(await process.stdout.read())
            assert await process.wait() == 3
        assert (result["stdout"], result["stderr"]) == ("a\ufffd\n", "oops")
        assert (result["truncated"], result["cut_bytes"]) == (False, 0)
        assert "audit" in result
    async with started("exec", "--json", session, "--", "cat", piped=True) as process:
        _, err = await process.communicate(b"x" * 1_200_000)
    assert (process.returncode, err) == (0, b"")
    (agent, *_) = api.agents.by_run_dir.values()
    assert b"".join(agent.stdin.values()) == b"x" * 1_200_000


def cut(_params: Any) -> Any:
    """Output without its middle, as an agent reports it."""
    pieces = (("stdout", 0, b"first\n"), ("stderr", 6, b"warned\n"), ("stdout", 1013, b"last\n"))
    chunks = [(stream, at, base64.b64encode(data).decode()) for stream, at, data in pieces]
    return {"chunks": chunks, "next": 1018, "ended": True}


async def test_where_output_was_cut_is_said(api: Api, session: str) -> None:
    api.agents.plays["make"] = Play(b"text")
    api.agent.overrides["output"] = cut
    ended = await run_beside("exec", session, "--", "make")
    assert (ended.status, ended.out) == (0, "first\nlast\n")
    assert ended.err.splitlines() == [
        "warned",
        "[1000 bytes of output were cut here]",
        "4 bytes were printed; 1000 of them were not kept",
    ]
    command_id = (await api.agent.asked("exec"))["command_id"]
    again = await run_beside("output", session, command_id)
    assert (again.out, again.err) == (ended.out, ended.err)
    async with started("exec", "--json", session, "--", "make", piped=True) as process:
        assert process.stdout is not None
        result = json.loads(await process.stdout.read())
    assert result["stdout"] == "first\n\n[1000 bytes of output were cut here]\nlast\n"
    assert (result["truncated"], result["cut_bytes"]) == (True, 1000)


@pytest.mark.parametrize(("stored", "what"), [(10, "all"), (9, "the first 9")])
async def test_json_says_how_to_read_the_whole(
    api: Api, session: str, stored: int, what: str
) -> None:
    long = {"truncated": True, "cut_bytes": 7, "output_bytes": 10, "stored_bytes": stored}
    api.agents.plays["make"] = Play(holds=True)
    running = asyncio.create_task(run_beside("exec", "--json", session, "--", "make"))
    command_id = (await api.agent.asked("exec"))["command_id"]
    api.agent.end(command_id, **long)
    ended = await running
    assert f"`paddock output {session} {command_id}` shows {what} of the 10" in ended.line
    assert json.loads(ended.out)["stored_bytes"] == stored


async def test_a_refusal_names_the_rule_and_the_way_out(api: Api) -> None:
    ended = await run_beside("run", "--level", "low", "--", "reboot")
    assert ended.status == 4
    assert "refused by rule command-allowlist" in ended.line
    assert "allowed are, by bare name" in ended.line
    (view,) = (await api.json("GET", "/api/sessions"))["items"]
    assert view["status"] == "completed"


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
async def test_a_signal_ends_the_command_and_the_session(
    api: Api, number: signal.Signals, status: int
) -> None:
    api.agents.plays["serve"] = Play(b"ready\n", holds=True)
    async with started("run", "--level", "high", "--", "serve") as process:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        _, complaint = await process.communicate()
    assert (process.returncode, complaint) == (status, b"")
    (view,) = (await api.json("GET", "/api/sessions"))["items"]
    assert view["status"] == "completed"
    events = (await api.json("GET", f"/api/sessions/{view['id']}/audit"))["items"]
    assert "command.exit" in [event["operation"] for event in events]


async def test_exec_in_a_session(api: Api, session: str) -> None:
    api.agents.plays["make"] = Play(b"out\n", exit_code=2)
    assert await run_beside("exec", session, "--", "make", "--all") == Ended(2, "out\n", "")
    assert await run_beside("exec", "--cwd", "src", session, "make") == Ended(2, "out\n", "")
    assert [params["argv"] for name, params in api.agent.requests if name == "exec"] == [
        ["make", "--all"],
        ["make"],
    ]
    late = await run_beside("exec", session, "--cwd", "src", "--", "make")
    assert late.status == 2
    assert "options go before SESSION" in late.line
    assert (await run_beside("exec", session, "--")).status == 2
    listed = await run_beside("ps", session)
    assert listed.out.splitlines()[0].split() == [
        "COMMAND",
        "STATUS",
        "STARTED",
        "TOOK",
        "END",
        "ARGV",
    ]
    assert "make --all" in listed.out
    assert len(objects(await run_beside("ps", session, "--json"))) == 2


async def test_what_a_command_printed_is_shown_again(api: Api, session: str) -> None:
    api.agents.plays["make"] = Play(b"out\n", b"err\n", exit_code=2)
    assert (await run_beside("exec", session, "make")).status == 2
    (command,) = (await api.json("GET", f"/api/sessions/{session}/processes"))["items"]
    shown = await run_beside("output", session, command["command_id"])
    assert shown == Ended(0, "out\n", "err\n")
    assert (await run_beside("output", session, "absent")).status == Status.NOT_FOUND

    def lose(_params: Any) -> Any:
        raise AgentRefusalError("not_found", "no longer kept")

    api.agent.overrides["output"] = lose
    gone = await run_beside("output", session, command["command_id"])
    assert (gone.status, gone.out) == (Status.NOT_FOUND, "")
    assert "not kept any more" in gone.line


async def test_exec_works_with_a_handle(api: Api, session: str, tmp_path: Path) -> None:
    handle = (await api.json("POST", f"/api/sessions/{session}/handle"))["handle"]
    (tmp_path / "handle").write_text(handle + "\n")
    key = ("--key-file", str(tmp_path / "handle"))
    assert (await run_beside("exec", *key, session, "ls")).status == 0
    refused = await run_beside("sessions", "pause", session, "--key", handle)
    assert refused.status == 4
    assert "API key" in refused.line


async def test_a_command_that_has_no_exit_status(api: Api, session: str) -> None:
    api.agents.plays["it"] = Play(holds=True)
    running = asyncio.create_task(run_beside("exec", session, "it"))
    command_id = (await api.agent.asked("exec"))["command_id"]
    api.agent.end(command_id, 143, signal="SIGTERM", timed_out=True)
    ended = await running
    assert ended.status == 143
    assert "--timeout" in ended.line


# sessions


async def test_a_session_from_beginning_to_end(api: Api) -> None:
    none = await run_beside("sessions", "list")
    assert (none.status, none.out) == (0, "")
    assert "no sessions" in none.line
    made = objects(
        await run_beside(
            *("sessions", "create", "--id", "one", "--level", "low", "--label", "team=a"),
            *("--work", "issue-4711", "--idle-action", "suspend"),
            *("--idle-timeout", "60", "--json"),
        )
    )
    assert (made["id"], made["permission_level"], made["labels"]) == ("one", "low", {"team": "a"})
    assert made["handle"].startswith("H-")
    shown = await run_beside("sessions", "create", "--id", "two")
    assert "handle" in shown.out
    for arguments in (("pause", "one"), ("resume", "one"), ("abort", "two")):
        ended = await run_beside("sessions", *arguments)
        assert (ended.status, ended.out) == (0, "")
        assert arguments[1] in ended.line
    for wanted in ("--work", "another"), ("--status", "paused"):
        assert "one" not in (await run_beside("sessions", "list", *wanted)).out
    listed = await run_beside("sessions", "list", "--label", "team:a", "--work", "issue-4711")
    assert [line.split()[:4] for line in listed.out.splitlines()] == [
        ["SESSION", "STATUS", "ACTIVITY", "LEVEL"],
        ["one", "active", "idle", "low"],
    ]
    assert [s["id"] for s in objects(await run_beside("sessions", "list", "--json"))] == [
        "two",
        "one",
    ]
    assert (await run_beside("sessions", "close", "one", "--purge")).status == 0
    assert objects(await run_beside("sessions", "show", "one", "--json"))["status"] == "completed"
    again = await run_beside("sessions", "pause", "one")
    assert again.status in (1, 5)
    assert again.line


async def test_a_budget_from_its_limits_to_its_end(api: Api) -> None:
    given = ("--budget", "commands=1", "--budget", "cpu_seconds=2.5", "--wall-timeout", "600")
    made = await run_beside("sessions", "create", "--id", "tight", "--level", "high", *given)
    assert made.status == 0
    assert (await run_beside("exec", "tight", "--", "true")).status == 0
    lines = [line.split() for line in (await run_beside("budget", "tight")).out.splitlines()]
    assert ["commands", "1", "1", "0"] in lines
    assert ["cpu_seconds", "2.5", "0", "2.5"] in lines
    assert ["tokens", "-", "0", "-"] in lines
    assert "ends at" in (await run_beside("sessions", "show", "tight")).out
    ended = await run_beside("exec", "tight", "--", "true")
    assert ended.status == 4
    assert "Budget exceeded: commands (1/1)" in ended.line
    shown = objects(await run_beside("budget", "tight", "--json"))
    assert shown["remaining"]["commands"] == 0


@each("text", ["commands", "=1", "commands=", "commands=ten", "commands=1_0x"])
async def test_budgets_that_are_none(api: Api, text: str) -> None:
    ended = await run_beside("sessions", "create", "--budget", text)
    assert ended.status == 2
    assert (await api.json("GET", "/api/sessions"))["items"] == []


async def test_show_has_commands_and_denials(api: Api, session: str) -> None:
    await run_beside("exec", session, "--", "make", "a b")
    await api.session(id="low", permission_level="low")
    assert (await run_beside("exec", "low", "--", "make", "x\x1b[31m")).status == 4
    shown = await run_beside("sessions", "show", session)
    assert shown.status == 0, shown.err
    assert "make 'a b'" in shown.out
    assert "4.0 GiB" in shown.out
    refused = (await run_beside("sessions", "show", "low")).out
    assert "command-allowlist" in refused
    assert "\x1b" not in refused
    assert "PR_SET_MDWE" in refused  # by what its level is enforced; high allows writable code
    assert "PR_SET_MDWE" not in shown.out


# files


async def test_files_there_and_back(api: Api, session: str, tmp_path: Path) -> None:
    source = tmp_path / "data.bin"
    source.write_bytes(bytes(range(256)))
    source.chmod(0o755)
    assert (await run_beside("files", "put", session, str(source))).status == 0
    assert (await run_beside("files", "put", session, str(source), "sub/other")).status == 0
    sent = await run_beside("files", "put", session, "-", "typed", stdin=b"from a pipe")
    assert sent.status == 0, sent.err
    assert api.agents.files == {
        "data.bin": source.read_bytes(),
        "sub/other": source.read_bytes(),
        "typed": b"from a pipe",
    }
    assert (await run_beside("files", "cat", session, "typed")).out == "from a pipe"
    listed = await run_beside("files", "ls", session)
    assert [line.split()[-1] for line in listed.out.splitlines()][1:] == [
        "data.bin",
        "sub/other",
        "typed",
    ]
    assert len(objects(await run_beside("files", "ls", session, "--json"))["items"]) == 3
    copy = tmp_path / "copy.bin"
    asked = len(api.agent.requests)
    assert (await run_beside("files", "get", session, "data.bin", str(copy))).status == 0
    assert copy.read_bytes() == source.read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o755
    # A single file's mode comes with the file itself: its directory is never listed.
    assert not any(method == "file.list" for method, _ in api.agent.requests[asked:])
    got = await run_beside("files", "get", session, "sub", str(tmp_path / "tree"))
    assert got.status == 0, got.err
    assert (tmp_path / "tree" / "other").stat().st_mode & 0o777 == 0o755
    assert (await run_beside("files", "get", session, "typed", str(tmp_path))).status == 0
    assert (tmp_path / "typed").read_bytes() == b"from a pipe"
    assert (await run_beside("files", "rm", session, "typed")).status == 0
    gone = await run_beside("files", "rm", session, "typed")
    assert gone.status == 5
    assert "typed" in gone.line


async def test_a_download_that_fails_leaves_nothing(api: Api, session: str, tmp_path: Path) -> None:
    ended = await run_beside("files", "get", session, "absent", str(tmp_path / "here"))
    assert ended.status == 5
    assert os.listdir(tmp_path) == []
    api.agents.files["there"] = b"x"
    ended = await run_beside("files", "get", session, "there", str(tmp_path / "no" / "here"))
    assert (ended.status, "No such file" in ended.line) == (1, True)


async def test_put_what_is_not_there(session: str, tmp_path: Path) -> None:
    ended = await run_beside("files", "put", session, str(tmp_path / "absent"))
    assert ended.status == 1
    assert "absent: No such file" in ended.line
    assert (await run_beside("files", "put", session, "-")).status == 2
    assert (await run_beside("files", "put", session, "/dev/null")).status == 2


# events, audit, policies


async def test_events_of_a_session(api: Api, session: str) -> None:
    await run_beside("exec", session, "--", "make", "a\nb")
    shown = await run_beside("events", session)
    assert [line.split()[2:4] for line in shown.out.splitlines()] == [
        ["✓", "session.create"],
        ["✓", "command.start"],
        ["command.exit", "exit"],
    ]
    assert "make 'a\\nb'" in shown.out
    lines = (await run_beside("events", session, "--after", "1", "--json")).out.splitlines()
    assert [json.loads(line)["operation"] for line in lines] == ["command.start", "command.exit"]


async def test_following_ends_with_the_session(api: Api, session: str) -> None:
    following = asyncio.create_task(run_beside("events", "-f", session, "--json"))
    await api.json("DELETE", f"/api/sessions/{session}")
    lines = (await following).out.splitlines()
    assert json.loads(lines[-1])["operation"] == "session.terminated"


async def test_all_events_are_followed_until_the_end(api: Api, session: str) -> None:
    async with started("events", "-f", "--after", "0") as process:
        assert process.stdout is not None
        line = "recovery"
        while "recovery" in line:
            line = (await process.stdout.readline()).decode()
        assert line.split()[2:5] == [session, "✓", "session.create"]
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130


async def test_who_has_read_enough_ends_it_quietly(api: Api, session: str) -> None:
    command = f"{sys.executable} -m paddock events -f --after 0 --json | head -n1"
    process = await asyncio.create_subprocess_shell(
        f"set -o pipefail; {command}",
        executable="/bin/bash",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    await process.stdout.readline()
    await api.json("DELETE", f"/api/sessions/{session}")
    async with asyncio.timeout(WAIT_SECONDS):
        _, complaint = await process.communicate()
    assert (process.returncode, complaint) == (141, b"")


async def test_audit_of_a_session(api: Api, session: str, tmp_path: Path) -> None:
    await run_beside("exec", session, "ls")
    listed = await run_beside("audit", "list", session, "--operation", "command.start")
    assert len(listed.out.splitlines()) == 1
    assert "command.start" in (await run_beside("audit", "stats", session)).out
    counted = objects(await run_beside("audit", "stats", session, "--json"))
    assert counted["total_operations"] == 3
    assert "whole" in (await run_beside("audit", "verify", session)).out
    verdict = objects(await run_beside("audit", "verify", session, "--json"))
    file = tmp_path / "chain.jsonl"
    exported = await run_beside("audit", "export", session, "-o", str(file))
    assert (exported.status, "3 events" in exported.line) == (0, True)
    assert (await run_beside("audit", "export", session)).out == file.read_text()
    anchor = ("--seq", str(verdict["seq"]), "--hash", verdict["hash"])
    here = ("audit", "verify", "--file", str(file))
    # The command needs neither a control plane nor a key.
    nowhere = ("--url", f"http://127.0.0.1:{free_port()}", "--key-file", "/absent")
    assert objects(await run_beside(*here, *anchor, *nowhere, "--json")) == verdict
    whole = file.read_bytes()
    file.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    assert (await run_beside(*here)).status == 0
    cut = await run_beside(*here, *anchor)
    assert (cut.status, "ends before seq" in cut.out) == (1, True)
    for broken in (whole.replace(b'"allow"', b'"deny"', 1), b"\xff" + whole, b"{}\n"):
        file.write_bytes(broken)
        ended = await run_beside(*here)
        assert (ended.status, "broken" in ended.out) == (1, True)
    file.write_bytes(b"")
    assert (await run_beside(*here)).status == 1
    for wrong in ((), ("a", "--file", "b"), ("a", "--seq", "1")):
        assert (await run_beside("audit", "verify", *wrong)).status == 2


async def test_audit_of_earlier_sessions(api: Api, session: str, tmp_path: Path) -> None:
    await run_beside("exec", session, "ls")
    await api.json("DELETE", f"/api/sessions/{session}")
    await api.session(id=session)
    one = ("--incarnation", "1")
    listed = await run_beside("audit", "list", session, *one, "--json")
    events = [json.loads(line) for line in listed.out.splitlines()]
    assert {event["incarnation"] for event in events} == {1}
    counted = objects(await run_beside("audit", "stats", session, *one, "--json"))
    assert counted["total_operations"] == len(events)
    verdict = objects(await run_beside("audit", "verify", session, *one, "--json"))
    assert verdict["seq"] == len(events)
    exported = await run_beside("audit", "export", session, *one)
    assert len(exported.out.splitlines()) == len(events)
    assert (await run_beside("audit", "stats", session, "--incarnation", "3")).status != 0
    (tmp_path / "chain.jsonl").write_text(exported.out)
    file = ("--file", str(tmp_path / "chain.jsonl"))
    assert (await run_beside("audit", "verify", *file, *one)).status == 0
    other = await run_beside("audit", "verify", *file, "--incarnation", "2")
    assert (other.status, "is of the incarnation 1" in other.line) == (1, True)
    ended = objects(await run_beside("sessions", "list", "--status", "ended", "--json"))
    assert [(view["id"], view["incarnation"]) for view in ended] == [(session, 1)]


async def test_searching_the_audit(api: Api, session: str) -> None:
    await run_beside("exec", session, "ls", "needle")
    await api.session(id="web-2")
    found = await run_beside("audit", "search", "--text", "NEEDLE", "--json")
    events = [json.loads(line) for line in found.out.splitlines()]
    assert [event["operation"] for event in events] == ["command.start"]
    shown = await run_beside("audit", "search", "--operation", "session.create", "--limit", "1")
    assert len(shown.out.splitlines()) == 1
    assert "web-2" in shown.out
    filters = ("--session", session, "--owner", "admin", "--actor", "admin", "--decision", "allow")
    times = ("--since", "2001-01-01T00:00:00Z", "--until", "2999-01-01T00:00:00.5+02:00")
    both = await run_beside("audit", "search", *filters, *times, "--incarnation", "1", "--json")
    assert len(both.out.splitlines()) == 2, both.err
    nothing = await run_beside("audit", "search", "--rule", "none", "--json")
    assert (nothing.status, nothing.out) == (0, "")
    for wrong in (("--since", "yesterday"), ("--limit", "0"), ("--incarnation", "0")):
        assert (await run_beside("audit", "search", *wrong)).status == 2


async def test_a_full_disk_is_told_with_its_remedy(session: str) -> None:
    ended = await run_beside("audit", "export", session, "-o", "/dev/full")
    assert ended.status == 1
    assert "free some space" in ended.line


async def test_a_level_shows_what_it_may_reach(api: Api) -> None:
    assert "may reach" not in (await run_beside("policies", "show", "medium")).out
    ports = Rule("a.org", ports=(80, 443))
    rules = Rules((ports, Rule(network=ip_network("10.1.0.0/16"))), (Rule("b.a.org"),))
    out = replace(api.plane.levels["medium"], network="egress", egress=rules)
    api.plane.levels.replace({**api.plane.levels, "medium": out})
    lines = (await run_beside("policies", "show", "medium")).out.splitlines()
    shown = [" ".join(line.split()) for line in lines]
    assert "may reach a.org:80,443; 10.1.0.0/16" in shown
    assert "may not reach b.a.org" in shown


async def test_what_a_session_may_reach(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = Rules((Rule("a.org", ports=(80, 443)),))
    out = replace(api.plane.levels["medium"], network="egress", egress=rules)
    api.plane.levels.replace({**api.plane.levels, "medium": out})
    created = await api.session(key=OPERATOR_KEY, egress={"allow": [{"host": "a.org"}]})
    own = created["id"]
    shown = (await run_beside("egress", "show", own)).out
    assert "only allowed   a.org:80,443\n" in shown
    assert "0 allowed, 0 denied" in shown
    assert (await run_beside("egress", "drafts", own)).out == ""
    places = ("b.org:8443", "10.1.0.0/16", "[fd00::/64]:22", "10.2.2.3")
    added = objects(await run_beside("egress", "allow", own, *places, "--json"))
    assert [(rule["host"] or rule["cidr"], rule["ports"]) for rule in added["also"]["allow"]] == [
        ("b.org", [8443]),
        ("10.1.0.0/16", [80, 443]),
        ("fd00::/64", [22]),
        ("10.2.2.3/32", [80, 443]),
    ]
    assert len(added["only"]["allow"]) == 5
    some = ("--method", "GET", "--path", "/a/**")
    denied = objects(await run_beside("egress", "deny", own, "a.org", *some, "--json"))
    (rule,) = denied["also"]["deny"]
    assert (rule["methods"], rule["paths"], rule["ports"]) == (["GET"], ["/a/**"], [])
    for wrong in (("allow", own), ("allow", own, "a.org:x"), ("deny", own, "a b")):
        assert (await run_beside("egress", *wrong)).status == 2
    assert (await run_beside("egress", "allow", own, "--draft", "1")).status == 1
    monkeypatch.setenv("PADDOCK_KEY", OPERATOR_KEY)
    refused = await run_beside("egress", "allow", own, "c.org")
    assert refused.status == 4
    assert "only an admin" in refused.line


async def test_a_new_session_reaches_less(api: Api) -> None:
    out = replace(api.plane.levels["medium"], network="egress")
    api.plane.levels.replace({**api.plane.levels, "medium": out})
    reach = ("--reach", "a.org", "--reach", "10.1.0.0/16:5432")
    own = objects(await run_beside("sessions", "create", *reach, "--json"))["id"]
    shown = objects(await run_beside("egress", "show", own, "--json"))["only"]["allow"]
    assert [(rule["host"] or rule["cidr"], rule["ports"]) for rule in shown] == [
        ("a.org", [80, 443]),
        ("10.1.0.0/16", [5432]),
    ]
    for command in ("sessions create --reach a.org:x", "run --reach a.org:x -- ls"):
        wrong = await run_beside(*command.split())
        assert wrong.status == 2
        assert "--reach" in wrong.err
    refused = await run_beside("run", "--level", "low", *reach, "--", "ls")
    assert refused.status == 2
    assert "egress" in refused.line
    assert [each["id"] for each in (await api.json("GET", "/api/sessions"))["items"]] == [own]


async def test_policies(api: Api, session: str) -> None:
    listed = await run_beside("policies", "list")
    assert [line.split()[0] for line in listed.out.splitlines()[:4]] == [
        "LEVEL",
        "low",
        "medium",
        "high",
    ]
    assert "SAFE_EDIT" in listed.out
    assert "neofetch" in (await run_beside("policies", "show", "medium")).out
    assert objects(await run_beside("policies", "show", "high", "--json"))["commands"] is None
    explain = ("policies", "explain")
    allowed = await run_beside(*explain, "--level", "low", "--", "ls", "-la")
    assert (allowed.status, "allowed" in allowed.out) == (0, True)
    traced = await run_beside(*explain, "--level", "high", "--", "strace", "ls")
    assert (traced.status, "✓ allowed" in traced.out) == (0, True)
    assert "seccomp" in traced.out
    assert "stopped all the same" in traced.err
    strange = await run_beside("policies", "show", "root")
    assert strange.status == 2
    assert "there are low, medium, high" in strange.line
    assert "Landlock 1, seccomp, mounts" in (await run_beside("policies", "show", "high")).out
    denied = await run_beside(*explain, "--json", "--", "find", ".", "-delete")
    assert denied.status == 4
    assert json.loads(denied.out)["rule"] == "option-not-allowed"
    assert (await run_beside(*explain, "--command", "ls | wc")).status == 4
    assert (await run_beside(*explain, "--path", "../x")).status == 4
    assert (await run_beside(*explain, "--session", session, "--", "reboot")).status == 0
    line = "cd a && make | tail"
    allowed = await run_beside(*explain, "-l", "high", "-s", line)
    assert (allowed.status, line in allowed.out) == (0, True)
    assert (await run_beside(*explain, "-l", "low", "-s", line)).status == Status.REFUSED
    for wrong in ((), ("-c", "a", "--", "b"), ("--session", "x", "-l", "low", "--", "ls")):
        assert (await run_beside(*explain, *wrong)).status == 2
    assert (await api.json("GET", f"/api/sessions/{session}/audit"))["items"][1:] == []


# Connection errors


async def test_wrong_key() -> None:
    ended = await run_beside("sessions", "list", "--key", "pdk_no-such-key-at-all")
    assert ended.status == 4
    assert "PADDOCK_KEY" in ended.line


async def test_no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PADDOCK_KEY")
    monkeypatch.setenv("PADDOCK_STATE_DIR", str(tmp_path))
    ended = await run_beside("sessions", "list")
    assert ended.status == 2
    assert f"{tmp_path}/admin.key: No such file" in ended.line
    (tmp_path / "admin.key").write_text(ADMIN_KEY + "\n")
    assert (await run_beside("sessions", "list")).status == 0
    assert (await run_beside("sessions", "list", "--key", "two\nlines")).status == 2


async def test_nobody_answers() -> None:
    ended = await run_beside("sessions", "list", "--url", f"http://127.0.0.1:{free_port()}")
    assert ended.status == 3
    assert "paddock serve" in ended.line
    assert (await run_beside("sessions", "list", "--url", "ftp://x")).status == 2


async def test_something_else_answers() -> None:
    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="<h1>hello</h1>", content_type="text/html")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hello)
    async with TestServer(app) as server:
        ended = await run_beside("sessions", "list", "--url", f"http://127.0.0.1:{server.port}")
    assert ended.status == 3
    assert "not a Paddock control plane" in ended.line


async def test_an_older_control_plane() -> None:
    async def absent(_: web.Request) -> web.Response:
        document = {"code": "not_found", "detail": "there is nothing at this path", "status": 404}
        body = json.dumps(document)
        return web.Response(text=body, status=404, content_type="application/problem+json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", absent)
    async with TestServer(app) as server:
        url = f"http://127.0.0.1:{server.port}"
        ended = await run_beside("policies", "explain", "--url", url, "--", "ls")
    assert ended.status == 1
    assert "upgrade" in ended.line


async def test_unknown_session() -> None:
    for arguments in (("sessions", "show", "absent"), ("exec", "absent", "ls"), ("ps", "absent")):
        ended = await run_beside(*arguments)
        assert ended.status == 5
        assert "paddock sessions list" in ended.line


async def test_what_the_server_finds_wrong(session: str) -> None:
    ended = await run_beside("sessions", "create", "--id", session)
    assert (ended.status, len(ended.err.splitlines())) == (1, 1)
    ended = await run_beside("sessions", "create", "--id", "../up")
    assert (ended.status, "id" in ended.line) == (2, True)


async def test_an_operator_sees_only_their_own(session: str) -> None:
    key = ("--key", OPERATOR_KEY)
    assert objects(await run_beside("sessions", "list", "--json", *key)) == []
    assert (await run_beside("exec", *key, session, "ls")).status == 5
