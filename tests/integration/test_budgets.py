"""Budgets in real sandboxes: an exceeded one stops work at once, and nothing refills it."""

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator.ground.errors import BudgetExceededError
from tests.conftest import BoxFactory
from tests.support.box import PATIENCE, TESTER, Box, ended
from tests.support.host_processes import host_processes
from tests.support.leaks import NOTHING, left_behind
from tests.support.server import Server, serving
from tests.support.tool import Tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Children that have left their session and parent, ignore TERM, and use all the CPU they get.
BURNERS = """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.setsid()
        os.fork()
        while True:
            pass
print("up", flush=True)
while True:
    pass
"""
# Ignores TERM and uses no CPU.
SLEEPER = ["bash", "-c", "trap '' TERM; echo up; while true; do sleep 1000; done"]


async def refused(box: Box, argv: list[str], **more: Any) -> dict[str, Any]:
    """The fields of the refusal of a command; nothing of the session is left."""
    with pytest.raises(BudgetExceededError) as refusal:
        await box.run(argv=argv, **more)
    assert box.processes() == []
    assert box.session.status == "budget-exceeded"
    assert box.session.sandbox is None
    (event,) = await box.events("budget.exceeded")
    assert event["args"]["kind"] == refusal.value.fields["kind"]
    (end,) = await box.events("session.terminated")
    assert end["result"]["rationale_code"] == "budget_exhausted"
    return refusal.value.fields


async def test_a_tree_of_cpu_burners_is_stopped(new_box: BoxFactory) -> None:
    box = await new_box("high", budget={"cpu_seconds": 1})
    fields = await refused(box, ["python3", "-c", BURNERS, "40"])
    assert (fields["kind"], fields["limit"]) == ("cpu_seconds", 1)
    assert fields["consumed"] >= 1
    (end,) = await box.events("command.exit")
    assert end["result"]["reason"] == "budget_exceeded"
    # CPU time of children counts, whichever process waited for them.
    assert end["result"]["session_cpu_us"] >= 1_000_000


async def test_cpu_burners_in_the_background_are_stopped(new_box: BoxFactory) -> None:
    box = await new_box("high", budget={"cpu_seconds": 0.5})
    command = await box.start(argv=["python3", "-c", BURNERS, "4"], background=True)
    with pytest.raises(BudgetExceededError):
        await box.finish(command)
    assert box.processes() == []
    assert box.session.status == "budget-exceeded"


async def test_cpu_that_is_used_up_refuses_the_next_command(new_box: BoxFactory) -> None:
    box = await new_box("high", budget={"cpu_seconds": 0.000001})
    fields = await refused(box, ["touch", "made"])
    assert fields["kind"] == "cpu_seconds"
    assert not (box.workspace / "made").exists()


async def test_an_output_flood_is_stopped(new_box: BoxFactory) -> None:
    box = await new_box("high", budget={"output_bytes": 3_000_000})
    idle = await box.start(argv=SLEEPER, background=True)
    await box.printed(idle, "up")
    fields = await refused(box, ["yes"])
    assert (fields["kind"], fields["limit"]) == ("output_bytes", 3_000_000)
    # Discarded output counts too, and the command ends within a few reads.
    assert 3_000_000 < fields["consumed"] < 4_000_000
    exits = await box.events("command.exit")
    assert {event["args"]["command_id"] for event in exits} >= {idle.id}
    assert {event["result"]["reason"] for event in exits} == {"budget_exceeded"}


async def test_terminals_use_up_the_budget_and_end_with_it(new_box: BoxFactory) -> None:
    box = await new_box("high", budget={"output_bytes": 300_000})
    flooding, idle = await Tool.open(box), await Tool.open(box)
    assert (await flooding.do("big 100000")).status == "success"
    with pytest.raises(BudgetExceededError) as refusal:
        await flooding.do("big 1000000")
    assert refusal.value.fields["kind"] == "output_bytes"
    assert box.processes() == []
    assert box.session.status == "budget-exceeded"
    for tool in (flooding, idle):
        assert (await tool.view()).reason == "budget_exceeded"
    ends = await box.events("pty.exit")
    assert {event["result"]["signal"] for event in ends} == {"SIGKILL"}
    assert max(event["result"]["session_output_bytes"] for event in ends) > 300_000


async def test_a_terminal_that_burns_cpu_is_stopped(new_box: BoxFactory) -> None:
    box = await new_box("high", budget={"cpu_seconds": 1})
    tool = await Tool.open(box, output_wait_ms=60_000)
    with pytest.raises(BudgetExceededError) as refusal:
        await tool.do("spin")
    assert (refusal.value.fields["kind"], refusal.value.fields["limit"]) == ("cpu_seconds", 1)
    assert box.processes() == []


async def test_a_flood_that_ends_by_itself_was_too_much_all_the_same(new_box: BoxFactory) -> None:
    box = await new_box("high", budget={"output_bytes": 1000})
    fields = await refused(box, ["python3", "-c", "print('x' * 1500)"])
    assert fields["consumed"] == 1501


async def test_all_of_the_output_may_be_printed(new_box: BoxFactory) -> None:
    box = await new_box("high", budget={"output_bytes": 1000})
    for count in (400, 600):
        done = await box.run(argv=["head", "-c", str(count), "/dev/zero"])
        assert done.exit_code == 0
    fields = await refused(box, ["touch", "made"])
    assert fields == {"kind": "output_bytes", "limit": 1000, "consumed": 1000}
    assert not (box.workspace / "made").exists()


async def test_the_command_after_the_last_stops_the_others(new_box: BoxFactory) -> None:
    box = await new_box("high", budget={"commands": 2})
    running = await box.start(argv=SLEEPER, background=True)
    await box.printed(running, "up")
    assert (await box.run("true")).exit_code == 0
    fields = await refused(box, ["touch", "made"])
    assert fields == {"kind": "commands", "limit": 2, "consumed": 2}
    assert not (box.workspace / "made").exists()
    assert running.result is not None
    assert (running.result.reason, running.result.signal) == ("budget_exceeded", "SIGKILL")


async def test_time_stops_what_runs(new_box: BoxFactory) -> None:
    box = await new_box("high", budget={"time": 3})
    fields = await refused(box, SLEEPER, timeout=60)
    assert fields["kind"] == "time"
    (end,) = await box.events("command.exit")
    assert (end["result"]["signal"], end["result"]["reason"]) == ("SIGKILL", "budget_exceeded")


async def test_time_goes_on_in_a_pause(new_box: BoxFactory) -> None:
    box = await new_box("high", budget={"time": 3})
    running = await box.start(argv=SLEEPER, background=True)
    await box.plane.sessions.pause(TESTER, box.session)
    await box.event("session.terminated")
    async with box.session.lock:
        assert box.processes() == []
    assert box.session.status == "budget-exceeded"
    assert running.result is not None
    assert running.result.reason == "budget_exceeded"


async def test_a_new_level_does_not_refill(new_box: BoxFactory) -> None:
    box = await new_box("high", budget={"output_bytes": 1000, "cpu_seconds": 60, "commands": 9})
    await box.python("import time\nwhile time.process_time() < 0.3: pass\nprint('x' * 599)")
    before = box.session.budget.stored()["consumed"]
    assert before["output_bytes"] == 600
    assert before["cpu_seconds"] >= 300_000
    await box.plane.sessions.changes.set_level(TESTER, box.session, "medium", {})
    await box.write("a", b"y" * 400)
    assert (await box.run("cat a")).exit_code == 0
    after = box.session.budget.stored()["consumed"]
    assert (after["output_bytes"], after["commands"]) == (1000, 2)
    assert after["cpu_seconds"] > before["cpu_seconds"]
    fields = await refused(box, ["pwd"])
    assert fields == {"kind": "output_bytes", "limit": 1000, "consumed": 1000}


async def test_builtins_count_as_others_do(new_box: BoxFactory) -> None:
    box = await new_box("medium", budget={"output_bytes": 5})
    assert (await box.run("which ls")).stdout.endswith("/ls\n")
    fields = await refused(box, ["pwd"])
    assert fields["kind"] == "output_bytes"


# Restarts


@pytest.fixture
async def server(tmp_path: Path, sandbox_image: str) -> AsyncIterator[Server]:
    async with serving(tmp_path / "state", PADDOCK_IMAGE=sandbox_image) as server:
        yield server
        for session in (await server.ok("GET", "/api/sessions"))["items"]:
            await server.ok("DELETE", f"/api/sessions/{session['id']}?purge=true")
        assert left_behind(server.state_dir) == NOTHING


async def create(server: Server, **budget: Any) -> str:
    body = {"permission_level": "high", "budget": budget}
    return f"/api/sessions/{(await server.ok('POST', '/api/sessions', body))['id']}"


async def execute(server: Server, path: str, *argv: str, **more: Any) -> tuple[int, Any]:
    return await server.call("POST", path + "/exec", {"argv": list(argv), **more})


def alter(server: Server, **columns: object) -> None:
    """Changes the only session's row while no control plane runs."""
    with sqlite3.connect(server.state_dir / "paddock.db") as connection:
        for name, value in columns.items():
            connection.execute(f"UPDATE sessions SET {name} = ?", (value,))
    connection.close()


async def assert_over(server: Server, path: str, kind: str) -> None:
    view = await server.ok("GET", path)
    assert view["sandbox"] is None
    assert view["status"] == "budget-exceeded"
    assert view["termination"]["rationale_code"] == "budget_exhausted"
    status, refusal = await execute(server, path, "true")
    assert (status, refusal["code"], refusal["kind"]) == (429, "budget_exceeded", kind)
    events = await server.ok("GET", f"{path}/audit?operation=budget.exceeded")
    assert [event["args"]["kind"] for event in events["items"]] == [kind]
    assert (await server.ok("GET", f"{path}/audit/verify"))["ok"]
    assert left_behind(server.state_dir) == NOTHING


@pytest.mark.asyncio(loop_scope="function")
async def test_a_restart_does_not_refill(server: Server) -> None:
    path = await create(server, commands=3, output_bytes=5000, cpu_seconds=60)
    await execute(server, path, "bash", "-c", "for i in {1..20000}; do :; done; printf %01000d 0")
    before = await server.ok("GET", path + "/budget")
    assert before["consumed"]["output_bytes"] == 1000
    assert before["consumed"]["cpu_seconds"] > 0
    await server.kill()
    await server.start()

    after = await server.ok("GET", path + "/budget")
    assert after["limits"] == before["limits"]
    assert after["consumed"]["commands"] == 1
    assert after["consumed"]["cpu_seconds"] >= before["consumed"]["cpu_seconds"]
    assert after["consumed"]["output_bytes"] == 1000
    assert after["consumed"]["time"] > before["consumed"]["time"]
    for _ in range(2):
        status, _ = await execute(server, path, "true")
        assert status == 200
    status, refusal = await execute(server, path, "true")
    assert (status, refusal["kind"], refusal["consumed"]) == (429, "commands", 3)
    await server.kill()
    await server.start()
    await assert_over(server, path, "commands")


@pytest.mark.asyncio(loop_scope="function")
async def test_the_sandbox_stops_by_itself_while_nobody_is_there(server: Server) -> None:
    path = await create(server, output_bytes=100_000)
    root = Path((await server.ok("GET", path))["workspace"]["root_dir"])
    await execute(server, path, "mkfifo", "go")
    status, command = await execute(
        server, path, "bash", "-c", "echo up; read line < go; exec yes", background=True
    )
    assert status == 202
    headers = {"Accept": "text/event-stream"}
    stream = f"{path}/processes/{command['command_id']}"
    async with server.client.get(stream, headers=headers) as response:
        async for line in response.content:
            if line.strip() == b"event: stdout":
                break
    (waiting,) = [p for p in _of_user(root.stat().st_uid) if p.name() == "bash"]
    await server.kill()
    go = await asyncio.wait_for(asyncio.to_thread(os.open, root / "go", os.O_WRONLY), PATIENCE)
    os.write(go, b"now\n")
    os.close(go)
    await ended(waiting)
    assert _of_user(root.stat().st_uid) == []
    await server.start()

    async with server.client.get(path + "/events?after=0") as response:
        async for line in response.content:
            if line.strip() == b"event: session.terminated":
                break
    # A request to close it is answered only after the session has ended.
    await server.ok("DELETE", path)
    await assert_over(server, path, "output_bytes")


@pytest.mark.asyncio(loop_scope="function")
async def test_time_that_passes_while_nobody_is_there_ends_the_session(server: Server) -> None:
    path = await create(server, time=3600)
    await execute(server, path, *SLEEPER, background=True)
    uid = Path((await server.ok("GET", path))["workspace"]["root_dir"]).stat().st_uid
    await server.kill()
    alter(server, created_at="2020-01-01T00:00:00.000000Z")
    assert _of_user(uid) != []
    await server.start()
    assert _of_user(uid) == []
    await assert_over(server, path, "time")


@pytest.mark.asyncio(loop_scope="function")
async def test_killed_between_the_exhaustion_and_the_end(server: Server) -> None:
    path = await create(server, commands=1)
    await execute(server, path, *SLEEPER, background=True)
    uid = Path((await server.ok("GET", path))["workspace"]["root_dir"]).stat().st_uid
    await server.kill()
    budget = {
        "limits": {"commands": 1},
        "consumed": {"commands": 1},
        "exceeded": ["commands", 1, 1],
    }
    alter(server, budget=json.dumps(budget))
    await server.start()
    assert _of_user(uid) == []
    view = await server.ok("GET", path)
    assert view["sandbox"] is None
    assert view["status"] == "budget-exceeded"
    status, refusal = await execute(server, path, "true")
    assert (status, refusal["kind"]) == (429, "commands")


def _of_user(uid: int) -> list[psutil.Process]:
    """The processes of a session's uid, as the host sees them."""
    found = []
    for process in host_processes():
        try:
            if process.uids().real == uid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found
