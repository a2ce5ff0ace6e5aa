"""Shells that keep their state, with a fake agent: creation, answers, refusals, records, ends."""

import asyncio
import json
from typing import Any

import pytest

from orchestrator.work.shells import shell_runs
from orchestrator.work.shells.kept_shells import MOST_SHELLS
from paddock import BusyError, ConflictError, Paddock
from paddock.contract.shells import MOST_SHELL_COMMAND
from tests.api.conftest import OPERATOR_KEY, OTHER_KEY, Api
from tests.api.test_mcp import Talk
from tests.api.test_runs import model, results, send
from tests.support.cli import Ended, run_beside
from tests.support.models import Answer, ModelServer, calling
from tests.support.until import until

__all__ = ["model"]

SHELLS = "/api/sessions/box/shells"


async def high(api: Api, **more: Any) -> dict[str, Any]:
    return await api.session(id="box", permission_level="high", key=OPERATOR_KEY, **more)


async def create(api: Api, name: str = "main", **more: Any) -> dict[str, Any]:
    body = {"name": name, **more}
    return await api.json("POST", SHELLS, json=body, key=OPERATOR_KEY, status=201)


async def run(api: Api, command: str, name: str = "main", **more: Any) -> dict[str, Any]:
    body = {"command": command, **more}
    return await api.json("POST", f"{SHELLS}/{name}/run", json=body, key=OPERATOR_KEY)


async def events(api: Api, operation: str) -> list[dict[str, Any]]:
    path = f"/api/sessions/box/audit?operation={operation}"
    found: list[dict[str, Any]] = (await api.json("GET", path, key=OPERATOR_KEY))["items"]
    return found


async def test_a_shell_from_its_creation_to_its_end(api: Api) -> None:
    await high(api, env={"A": "1", "B": "1"}, secrets={"TOKEN": "hidden-value-1"})
    made = await create(api, cwd="src", env={"B": "2"})
    assert (made["name"], made["running"], made["cwd"]) == ("main", False, "/workspace")
    opened = api.agent.terminals.all[made["pty"]].params
    assert (opened["kept"], opened["cwd"]) == (True, "/workspace/src")
    assert (opened["env"]["A"], opened["env"]["B"]) == ("1", "2")
    answer = await run(api, "echo hidden-value-1\n# and a comment")
    assert (answer["status"], answer["exit_code"], answer["running"]) == ("finished", 0, False)
    assert "echo" in answer["output"]
    assert "hidden-value-1" not in answer["output"]
    assert (answer["shell"], answer["pty"], answer["ended"]) == ("main", made["pty"], None)
    assert (await run(api, "return 3"))["exit_code"] == 3
    started, ended = await events(api, "shell.run"), await events(api, "shell.result")
    assert len(started) == len(ended) == 2
    assert "hidden-value-1" not in str(started)
    assert started[-1]["args"]["command"] == "return 3"
    assert ended[-1]["result"]["exit_code"] == 3
    assert started[0]["seq"] < ended[0]["seq"] < started[1]["seq"]
    budget = await api.json("GET", "/api/sessions/box/budget", key=OPERATOR_KEY)
    # Its shell and two commands.
    assert budget["consumed"]["commands"] == 3, budget
    await api.json("DELETE", f"{SHELLS}/main", key=OPERATOR_KEY)
    assert (await api.json("GET", SHELLS, key=OPERATOR_KEY))["items"] == []
    gone = await api.problem(
        409, "conflict", "POST", f"{SHELLS}/main/run", json={"command": "x"}, key=OPERATOR_KEY
    )
    assert gone["reason"] == "closed"
    text = await (
        await api.call("GET", f"/api/sessions/box/ptys/{made['pty']}/recording", key=OPERATOR_KEY)
    ).text()
    assert "# and a comment" in text
    assert "hidden-value-1" not in text


async def test_a_name_has_one_shell(api: Api) -> None:
    await high(api)
    first = await create(api, env={"A": "1"})
    again = await api.json(
        "POST", SHELLS, json={"name": "main", "env": {"A": "1"}}, key=OPERATOR_KEY
    )
    assert again["pty"] == first["pty"]
    for other in ({"env": {"A": "2"}}, {"env": {"A": "1"}, "cwd": "x"}):
        body = {"name": "main", **other}
        await api.problem(409, "conflict", "POST", SHELLS, json=body, key=OPERATOR_KEY)
    for number in range(1, MOST_SHELLS):
        await create(api, f"s{number}")
    await api.problem(409, "busy", "POST", SHELLS, json={"name": "more"}, key=OPERATOR_KEY)
    listed = (await api.json("GET", SHELLS, key=OPERATOR_KEY))["items"]
    assert [each["name"] for each in listed] == ["main", *(f"s{n}" for n in range(1, MOST_SHELLS))]


async def test_only_a_level_with_any_command_has_shells(api: Api) -> None:
    made = await api.session(id="box", permission_level="medium", key=OPERATOR_KEY)
    refused = await api.problem(403, "permission_denied", "POST", SHELLS, json={}, key=OPERATOR_KEY)
    assert refused["rule"] == "shell-level"
    (event,) = await events(api, "pty.open")
    assert (event["decision"], event["rule"]) == ("deny", "shell-level")
    assert not api.agent.terminals.all
    settings = {"settings": {"permission_level": "high"}}
    await api.json("PUT", "/api/sessions/box/settings", json=settings, key=OPERATOR_KEY)
    # What may run commands may use shells; others see no such session.
    handle = made["handle"]
    await api.json("POST", SHELLS, json={}, key=handle, status=201)
    body = {"command": "true"}
    assert (await api.json("POST", f"{SHELLS}/default/run", json=body, key=handle))[
        "exit_code"
    ] == 0
    await api.problem(404, "not_found", "GET", SHELLS, key=OTHER_KEY)
    lowered = {"settings": {"permission_level": "medium"}}
    await api.json("PUT", "/api/sessions/box/settings", json=lowered, key=OPERATOR_KEY)
    assert (await api.json("GET", SHELLS, key=OPERATOR_KEY))["items"] == []
    ended = await api.problem(
        409, "conflict", "POST", f"{SHELLS}/default/run", json=body, key=OPERATOR_KEY
    )
    assert ended["reason"] == "level_changed"


@pytest.mark.parametrize(
    ("what", "body", "field"),
    [
        ("", {"name": "a/b"}, "name"),
        ("", {"name": ""}, "name"),
        ("", {"name": "x" * 65}, "name"),
        ("", {"cwd": "a\0b"}, "cwd"),
        ("", {"env": {"A=": "1"}}, "env"),
        ("", {"more": 1}, "more"),
        ("/main/run", {"command": "a\0b"}, "command"),
        ("/main/run", {"command": "\ud800"}, "command"),
        ("/main/run", {"command": "x" * (MOST_SHELL_COMMAND + 1)}, "command"),
        ("/main/run", {"command": "x", "timeout": 0}, "timeout"),
        ("/main/run", {"command": "x", "timeout": 3601}, "timeout"),
        ("/main/run", {"command": "x", "expect": ""}, "expect"),
        ("/main/run", {"command": "x", "expect": ["x"] * 17}, "expect"),
        ("/main/run", {"command": "x", "at_timeout": "kill"}, "at_timeout"),
        ("/main/run", {}, "command"),
        ("/main/input", {"text": "x" * (64 * 1024 + 1)}, "text"),
        ("/main/input", {}, "text"),
    ],
)
async def test_bad_input_changes_nothing(
    api: Api, what: str, body: dict[str, Any], field: str
) -> None:
    await high(api)
    await create(api)
    (terminal,) = api.agent.terminals.all.values()
    before = terminal.sent.copy()
    problem = await api.problem(
        400, "validation_error", "POST", SHELLS + what, json=body, key=OPERATOR_KEY
    )
    assert problem["field"].startswith(field)
    assert terminal.sent == before
    assert not await events(api, "shell.run")


async def test_why_an_answer_comes(api: Api) -> None:
    await high(api)
    await create(api)
    wrong = await run(api, "wrong")
    assert (wrong["status"], wrong["exit_code"], wrong["running"]) == ("syntax_error", 2, False)
    assert wrong["error"] == "line 1: syntax error"
    waiting = await run(api, "ask name")
    assert (waiting["status"], waiting["output"]) == ("waiting", "name ? ")
    assert (waiting["running"], waiting["exit_code"]) == (True, None)
    body: dict[str, Any] = {"command": "echo"}
    await api.problem(409, "busy", "POST", f"{SHELLS}/main/run", json=body, key=OPERATOR_KEY)
    body = {"text": "bob\n"}
    answer = await api.json("POST", f"{SHELLS}/main/input", json=body, key=OPERATOR_KEY)
    assert (answer["status"], answer["output"], answer["running"]) == (
        "finished",
        "got bob\n",
        False,
    )
    await api.problem(409, "conflict", "POST", f"{SHELLS}/main/input", json=body, key=OPERATOR_KEY)
    (typed,) = await events(api, "shell.input")
    assert typed["args"]["text"] == "bob\n"
    matched = await run(api, "hang one two three", expect="ne\ntw")
    assert (matched["status"], matched["running"]) == ("matched", True)
    shown = await api.json("POST", f"{SHELLS}/main/interrupt", key=OPERATOR_KEY)
    assert shown["name"] == "main"
    while (await api.json("GET", f"{SHELLS}/main", key=OPERATOR_KEY))["running"]:
        pass
    ended = await run(api, "exit 5")
    assert (ended["status"], ended["exit_code"], ended["ended"]) == ("ended", 5, "exited")
    assert len(await events(api, "shell.run")) == len(await events(api, "shell.result"))


@pytest.mark.parametrize(("stubborn", "exit_code"), [(False, 130), (True, 137)])
async def test_the_end_of_the_time(
    api: Api, stubborn: bool, exit_code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_runs, "_GRACE_SECONDS", (0.05 if stubborn else 60, 60))
    await high(api)
    made = await create(api)
    api.agent.terminals.stubborn = stubborn
    answer = await run(api, "hang out", timeout=0.05)
    assert (answer["status"], answer["running"], answer["ended"]) == ("timed_out", False, None)
    assert (answer["exit_code"], answer["output"]) == (exit_code, "out\n")
    sent = [each["kill"] for each in api.agent.terminals.all[made["pty"]].sent if "kill" in each]
    assert sent == [False, True][: 1 + stubborn]
    assert (await run(api, "echo on"))["status"] == "finished"


@pytest.mark.slow
async def test_a_shell_that_does_not_start(api: Api) -> None:
    await high(api)
    body = {"cwd": "/no-shell"}
    problem = await api.problem(409, "conflict", "POST", SHELLS, json=body, key=OPERATOR_KEY)
    assert "does not start" in problem["detail"]
    assert (await api.json("GET", SHELLS, key=OPERATOR_KEY))["items"] == []
    await create(api, "default")


async def test_without_bash_it_is_a_posix_shell(api: Api) -> None:
    await high(api)
    made = await create(api, cwd="/no-bash")
    opened = list(api.agent.terminals.all.values())
    assert [each.params["kept"] for each in opened] == [True, "sh"]
    assert opened[1] is api.agent.terminals.all[made["pty"]]
    assert (await run(api, "echo on"))["status"] == "finished"


async def test_a_paused_session_keeps_its_command(api: Api) -> None:
    await high(api)
    made = await create(api)
    running = asyncio.create_task(run(api, "hang out", timeout=1))
    terminal = api.agent.terminals.all[made["pty"]]
    await until(lambda: bool(terminal.sent))
    await api.json("POST", "/api/sessions/box/pause", key=OPERATOR_KEY)
    answer = await running
    assert (answer["status"], answer["running"], answer["output"]) == ("timed_out", True, "out\n")
    assert not any("kill" in each for each in terminal.sent)
    await api.json("POST", "/api/sessions/box/resume", key=OPERATOR_KEY)
    body = {"text": "on\n"}
    answer = await api.json("POST", f"{SHELLS}/main/input", json=body, key=OPERATOR_KEY)
    assert (answer["status"], answer["output"]) == ("finished", "got on\n")


async def test_the_command_line(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", OPERATOR_KEY)
    await high(api)

    async def paddock(command: str, *words: str, stdin: bytes = b"") -> Ended:
        return await run_beside("shells", command, "box", *words, stdin=stdin)

    made = await paddock("create", "--name", "main", "--cwd", "src", "-e", "A=1", "--json")
    assert (made.status, json.loads(made.out)["name"]) == (0, "main")
    ran = await paddock("run", "--name", "main", "cd x")
    assert (ran.status, ran.out) == (0, "ran cd x\n")
    assert (await paddock("run", "return 7")).status == 7
    assert (await paddock("run", "-", stdin=b"a\nb")).out == "ran a\nb\n"
    wrong = await paddock("run", "wrong")
    assert (wrong.status, wrong.out) == (2, "")
    assert "syntax error" in wrong.err
    late = await paddock("run", "ask me", "--expect", "x", "--timeout", "0.05", "--continue")
    assert late.status == 6
    assert late.out + (await paddock("input", "bob")).out == "me ? got bob\n"
    waits = await paddock("run", "ask name")
    assert (waits.status, waits.out) == (6, "name ? ")
    assert "paddock shells input" in waits.err
    assert (await paddock("input", "bob")).out == "got bob\n"
    listed = await paddock("list")
    assert "main" in listed.out
    assert "default" in listed.out
    shown = await paddock("show", "--name", "main", "--json")
    assert (json.loads(shown.out)["name"], json.loads(shown.out)["running"]) == ("main", False)
    assert "ready" in (await paddock("show", "--name", "main")).out
    assert (await paddock("interrupt")).status == 0
    assert (await paddock("rm", "--name", "main")).status == 0
    gone = await paddock("input", "--name", "main", "x")
    assert gone.status != 0
    assert "create it again" in gone.err
    ended = await paddock("run", "exit 3")
    assert ended.status == 3
    assert "the shell has ended" in ended.err


async def test_one_command_at_a_time_and_a_client_that_leaves(api: Api) -> None:
    await high(api)
    async with Paddock(str(api.server.make_url("/")), OPERATOR_KEY) as paddock:
        session = await paddock.sessions.get("box")
        shell = await session.shells.create("main")
        running = asyncio.create_task(shell.run("hang"))
        terminal = api.agent.terminals.all[shell.info.pty]
        await until(lambda: bool(terminal.sent))
        with pytest.raises(BusyError):
            await shell.run("echo")
        with pytest.raises(BusyError):
            await shell.input("x")
        assert (await session.shells.get("main")).info.running
        running.cancel()
        await until(lambda: any("kill" in each for each in terminal.sent))
        while (await shell.refresh()).running:
            pass
        assert (await shell.run("echo on")).output == "ran echo on\n"
        assert await shell.close()
        with pytest.raises(ConflictError):
            await shell.refresh()
    await until(lambda: not api.agent.terminals.running)


async def test_a_session_s_end_ends_a_command(api: Api) -> None:
    await high(api)
    made = await create(api)
    running = asyncio.create_task(run(api, "hang began"))
    await until(lambda: bool(api.agent.terminals.all[made["pty"]].sent))
    await api.json("DELETE", "/api/sessions/box", key=OPERATOR_KEY)
    answer = await running
    assert (answer["status"], answer["running"]) == ("ended", False)
    assert answer["ended"] == "session_ended"
    assert len(await events(api, "shell.result")) == 1


async def test_a_model_has_shells_where_the_level_permits_them(
    api: Api, model: ModelServer
) -> None:
    await high(api, policy="SAFE_WORK")
    model.answers = [
        calling(("shell", {"command": "cd x"}), ("shell", {"command": "ask name"})),
        calling(("shell_input", {"text": "bob\n"}), ("shell", {"command": "exit 3"})),
        calling(("shell", {"command": "again"})),
        Answer("done"),
    ]
    path = "/api/sessions/box"
    ran = await send(api, path)
    assert ran["text"] == "done"
    assert results(model) == [
        "ran cd x\n\n[finished; exit code 0; in /workspace]",
        "name ? \n[waiting; it still runs; in /workspace]",
        "got bob\n\n[finished; exit code 0; in /workspace]",
        "[ended; exit code 3; in /workspace; the shell has ended (exited)]",
        "ran again\n\n[finished; exit code 0; in /workspace]",
    ]
    assert len(await events(api, "shell.run")) == 4
    lowered = {"settings": {"permission_level": "medium"}}
    await api.json("PUT", f"{path}/settings", json=lowered, key=OPERATOR_KEY)
    model.answers = [calling(("shell", {"command": "no"})), Answer("done")]
    await send(api, path)
    offered = {each["function"]["name"] for each in model.bodies[-1]["tools"]}
    assert "exec" in offered
    assert not offered & {"shell", "shell_input"}
    assert "shell" in results(model)[-1]
    assert len(await events(api, "shell.run")) == 4


async def test_an_agent_has_shells_by_mcp(api: Api) -> None:
    talk = Talk(api, await high(api))
    await talk.begin()
    await talk.say("create_shell", name="main")
    ran = await talk.say("run_in_shell", shell="main", command="return 4")
    assert ran == "[finished; exit code 4; in /workspace]"
    assert "waiting" in await talk.say("run_in_shell", shell="main", command="ask name")
    assert "got bob" in await talk.say("give_shell_input", shell="main", text="bob")
    await talk.say("interrupt_shell", shell="main")
    assert "main" in await talk.say("list_shells")
    await talk.say("close_shell", shell="main")
    assert "main" not in await talk.say("list_shells")
    gone = await talk.call("run_in_shell", shell="main", command="true")
    assert gone["isError"]
    assert "create it again" in str(gone)
    assert len(await events(api, "shell.result")) == 2


async def test_a_command_goes_on_at_the_end_of_its_time_if_it_may(api: Api) -> None:
    await high(api)
    await create(api)
    left = await run(api, "hang out", timeout=0.05, at_timeout="continue")
    assert (left["status"], left["running"]) == ("timed_out", True)
    (terminal,) = api.agent.terminals.all.values()
    assert [each["number"] for each in terminal.sent if "kill" in each] == []
    body: dict[str, Any] = {"text": "", "timeout": 0.05, "at_timeout": "continue"}
    waited = await api.json("POST", f"{SHELLS}/main/input", json=body, key=OPERATOR_KEY)
    assert (waited["status"], waited["running"]) == ("timed_out", True)
    body = {"text": "on\n"}
    ended = await api.json("POST", f"{SHELLS}/main/input", json=body, key=OPERATOR_KEY)
    assert (ended["status"], ended["exit_code"]) == ("finished", 0)
    printed = [each["output"] for each in (left, waited, ended)]
    assert "".join(printed) == "out\ngot on\n"


async def test_one_of_several_texts_is_expected(api: Api) -> None:
    await high(api)
    await create(api)
    answer = await run(api, "hang one two", expect=["never", "two", "one"])
    assert (answer["status"], answer["matched"], answer["running"]) == ("matched", "one", True)
    await api.json("POST", f"{SHELLS}/main/interrupt", key=OPERATOR_KEY)
    # No text at all: a program that waits for input is no answer.
    await until_free(api)
    until_end: dict[str, Any] = {"expect": [], "timeout": 0.2, "at_timeout": "continue"}
    answer = await run(api, "ask name", **until_end)
    assert (answer["status"], answer["matched"]) == ("timed_out", None)
    async with Paddock(str(api.server.make_url("")), OPERATOR_KEY) as paddock:
        session = await paddock.sessions.get("box")
        shell = await session.shells.get("main")
        found = await shell.input("bob\n", expect=("no", "got"), at_timeout="continue")
        assert (found.status, found.matched) == ("matched", "got")


async def until_free(api: Api) -> None:
    while (await api.json("GET", f"{SHELLS}/main", key=OPERATOR_KEY))["running"]:
        pass
