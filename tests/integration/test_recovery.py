"""The control plane is killed at every stage; the next one takes everything over."""

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import docker
import pytest

from images.builder import build
from tests.support.leaks import (
    NONE_AHEAD,
    NOTHING,
    assert_kept_are_whole,
    instance,
    left_behind,
    made_ahead,
    networks,
    workspaces_left,
)
from tests.support.limits import WAIT_SECONDS
from tests.support.server import Server, serving


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    build(report=lambda _line: None)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A server; at the end all sessions are closed, and nothing of them may be left."""
    async with serving(tmp_path / "state") as server:
        yield server
        for session in (await server.ok("GET", "/api/sessions"))["items"]:
            await server.ok("DELETE", f"/api/sessions/{session['id']}?purge=true")
        assert left_behind(server.state_dir) == NOTHING
        assert_kept_are_whole(server.state_dir)
    assert networks(server.state_dir) == []


async def restart(server: Server) -> None:
    await server.kill()
    await server.start()


async def run(server: Server, session: str, argv: list[str], **more: Any) -> dict[str, Any]:
    path = f"/api/sessions/{session}/exec"
    result: dict[str, Any] = await server.ok("POST", path, {"argv": argv, **more})
    return result


async def create(server: Server, level: str = "high", **more: Any) -> str:
    body = {"permission_level": level, **more}
    return str((await server.ok("POST", "/api/sessions", body))["id"])


async def finished(server: Server, session: str, command: str) -> dict[str, Any]:
    """The ended command; follows its stream until it exits."""
    path = f"/api/sessions/{session}/processes/{command}"
    async with server.client.get(path, headers={"Accept": "text/event-stream"}) as stream:
        async for line in stream.content:
            if line.strip() == b"event: exit":
                break
    result: dict[str, Any] = await server.ok("GET", path)
    return result


async def events(server: Server, session: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (
        await server.ok("GET", f"/api/sessions/{session}/audit?limit=1000")
    )["items"]
    return items


async def next_engine_event(server: Server, action: str) -> None:
    """Waits until the engine reports this action for one of the server's containers."""
    filters = {"label": f"paddock.instance={instance(server.state_dir)}", "event": action}
    client = docker.APIClient(version="auto")
    stream = client.events(filters=filters, decode=True)
    try:
        await asyncio.wait_for(asyncio.to_thread(lambda: next(stream)), WAIT_SECONDS)
    finally:
        await asyncio.to_thread(stream.close)
        client.close()


async def test_sessions_and_running_commands_go_on(server: Server) -> None:
    session = await create(server)
    script = "echo before; read line; echo got $line; exit 7"
    command = await run(server, session, ["bash", "-c", script], background=True, stdin_open=True)
    await restart(server)

    assert (await server.ok("GET", f"/api/sessions/{session}"))["status"] == "active"
    path = f"/api/sessions/{session}/processes/{command['command_id']}"
    assert (await server.ok("GET", path))["status"] == "running"
    await server.ok("POST", f"{path}/stdin", {"data": "it\n", "close": True})
    ended = await finished(server, session, command["command_id"])

    assert ended["exit"]["exit_code"] == 7
    assert "".join(chunk["text"] for chunk in ended["output"]) == "before\ngot it\n"
    assert (await server.ok("GET", f"/api/sessions/{session}/audit/verify"))["ok"]


@pytest.mark.parametrize("level", ["high", "medium"])
async def test_long_output_stays_readable(server: Server, level: str) -> None:
    session = await create(server)
    done = await run(server, session, ["seq", "-f", "%07.0f", "0", "999999"])
    assert done["truncated"]
    await run(server, session, ["ls"], permission_level=level)
    await restart(server)
    path = f"/api/sessions/{session}/processes/{done['command_id']}"
    text = ""
    while (page := await server.ok("GET", f"{path}?after={len(text)}"))["output"]:
        assert page["exit"]["stored_bytes"] == 8_000_000
        text += "".join(chunk["text"] for chunk in page["output"])
    assert text == "".join(f"{number:07d}\n" for number in range(1_000_000))


async def test_a_command_that_ended_meanwhile_is_not_lost(server: Server) -> None:
    session = await create(server)
    command = await run(
        server, session, ["bash", "-c", "echo $$; kill -STOP $$; exit 3"], background=True
    )
    path = f"/api/sessions/{session}/processes/{command['command_id']}"
    async with server.client.get(path, headers={"Accept": "text/event-stream"}) as stream:
        async for line in stream.content:
            if line.startswith(b"data:") and b"text" in line:
                pid = json.loads(line[5:])["text"].strip()
                break
    helper = await run(
        server,
        session,
        ["bash", "-c", "read line; exit 0"],
        background=True,
        stdin_open=True,
    )
    assert pid.isdigit()
    await server.kill()
    # The container ends while no control plane runs.
    container = left_behind(server.state_dir)["containers"][0].strip("/")
    client = docker.APIClient(version="auto")
    try:
        top = client.top(container, ps_args="-eo pid,args")
        victim = next(row[0] for row in top["Processes"] if "kill -STOP" in row[1])
    finally:
        client.close()
    watched = Path(f"/proc/{victim}")
    assert watched.exists()
    handle = os.pidfd_open(int(victim))
    os.kill(int(victim), signal.SIGCONT)
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(handle, gone.set)
    await asyncio.wait_for(gone.wait(), WAIT_SECONDS)
    loop.remove_reader(handle)
    os.close(handle)
    await server.start()

    ended = await finished(server, session, command["command_id"])
    assert ended["exit"]["exit_code"] == 3
    assert "".join(chunk["text"] for chunk in ended["output"]).strip() == pid
    still = f"/api/sessions/{session}/processes/{helper['command_id']}"
    assert (await server.ok("GET", still))["status"] == "running"
    operations = [event["operation"] for event in await events(server, session)]
    assert operations.count("command.start") == 2
    assert operations.count("command.exit") == 1


async def test_a_foreground_command_survives_and_its_result_can_be_fetched(
    server: Server,
) -> None:
    session = await create(server)
    argv = ["bash", "-c", "echo started; read -t 20 line < /workspace/fifo; echo ended $line"]
    await run(server, session, ["mkfifo", "/workspace/fifo"])

    async def call() -> None:
        with pytest.raises(Exception):  # noqa: B017, PT011 - whichever way the connection breaks
            await run(server, session, argv)

    calling = asyncio.create_task(call())
    async with server.client.get(f"/api/sessions/{session}/events?after=0") as stream:
        async for line in stream.content:
            if line.startswith(b"data:") and b"started; read" in line:
                command_id = json.loads(line[5:])["args"]["command_id"]
                break
    # A recorded start does not mean that the command runs; its first output does.
    path = f"/api/sessions/{session}/processes/{command_id}"
    async with server.client.get(path, headers={"Accept": "text/event-stream"}) as stream:
        async for line in stream.content:
            if line.strip() == b"event: stdout":
                break
    await restart(server)
    await calling

    listed = (await server.ok("GET", f"/api/sessions/{session}/processes"))["items"]
    command = next(item for item in listed if item["command_id"] == command_id)
    assert command["status"] == "running"
    await run(server, session, ["bash", "-c", "echo now > /workspace/fifo"])
    ended = await finished(server, session, command["command_id"])
    assert ended["exit"]["exit_code"] == 0
    assert "".join(chunk["text"] for chunk in ended["output"]) == "started\nended now\n"


async def test_a_recorded_start_that_never_ran_is_closed(server: Server) -> None:
    """The start is durable before the command is dispatched; yet each start gets an exit."""
    session = await create(server, "low")
    for _ in range(5):
        calls = [
            asyncio.create_task(run(server, session, ["ls"])) for _ in range(random.randint(1, 6))
        ]
        await asyncio.wait(calls, timeout=random.uniform(0, 0.02))
        await server.kill()
        await asyncio.gather(*calls, return_exceptions=True)
        await server.start()
        await run(server, session, ["pwd"])
    recorded = await events(server, session)
    starts = {e["args"]["command_id"] for e in recorded if e["operation"] == "command.start"}
    exits = [e["args"]["command_id"] for e in recorded if e["operation"] == "command.exit"]
    assert sorted(exits) == sorted(starts)
    assert (await server.ok("GET", f"/api/sessions/{session}/audit/verify"))["ok"]


@pytest.mark.parametrize("action", ["create", "start"])
async def test_killed_while_a_session_is_created(server: Server, action: str) -> None:
    await create(server, "low", id="survivor")
    seen = asyncio.create_task(next_engine_event(server, action))
    creating = asyncio.create_task(server.call("POST", "/api/sessions", {"id": "half-made"}))
    await seen
    await server.kill()
    await asyncio.gather(creating, return_exceptions=True)
    await server.start()

    ids = [item["id"] for item in (await server.ok("GET", "/api/sessions"))["items"]]
    known = ["survivor", "half-made"] if "half-made" in ids else ["survivor"]
    assert sorted(ids) == sorted(known)
    assert len(left_behind(server.state_dir)["containers"]) == len(ids)
    assert len(left_behind(server.state_dir)["directories"]) == len(ids)
    assert len(workspaces_left(server.state_dir)["slots"]) == len(ids)
    assert_kept_are_whole(server.state_dir)
    # If its creation was never answered, the session's id is free.
    if "half-made" not in ids:
        await create(server, "low", id="half-made")
    for name in ("survivor", "half-made"):
        assert (await run(server, name, ["ls"]))["exit_code"] == 0


async def test_killed_at_random_moments_of_making_workspaces(server: Server) -> None:
    """Sessions of several sizes at once, so that images are made, moved and mounted."""
    for _ in range(4):
        work = [
            asyncio.create_task(
                server.call("POST", "/api/sessions", {"limits": {"workspace_bytes": size * 2**20}})
            )
            for size in (16, 32, 48, 64)
        ]
        await asyncio.wait(work, timeout=random.uniform(0.02, 0.3))
        await server.kill()
        await asyncio.gather(*work, return_exceptions=True)
        await server.start()
        assert_kept_are_whole(server.state_dir)
        assert made_ahead(server.state_dir) == NONE_AHEAD
        for session in (await server.ok("GET", "/api/sessions?status=active"))["items"]:
            assert (await run(server, session["id"], ["ls"]))["exit_code"] == 0
            await server.ok("DELETE", f"/api/sessions/{session['id']}?purge=true")


async def test_killed_while_a_workspace_is_resized(server: Server) -> None:
    session = await create(server, "high")
    argv = ["dd", "if=/dev/urandom", "of=file", "bs=1M", "count=40"]
    assert (await run(server, session, argv))["exit_code"] == 0
    await run(server, session, ["sh", "-c", "sha256sum file > sum"])
    path = f"/api/sessions/{session}/settings"
    for level in ("low", "medium", "high", "low"):
        work = asyncio.create_task(
            server.call("PUT", path, {"settings": {"permission_level": level}})
        )
        await asyncio.wait([work], timeout=random.uniform(0.2, 0.8))
        await server.kill()
        await asyncio.gather(work, return_exceptions=True)
        await server.start()
        assert await gone_on(server) == [session]
    await server.ok("PUT", path, {"settings": {"permission_level": "high"}})
    assert (await run(server, session, ["sha256sum", "-c", "sum"]))["exit_code"] == 0


async def test_killed_at_random_moments_of_creating_and_closing(server: Server) -> None:
    for cycle in range(8):
        name = f"cycle-{cycle}"
        work = asyncio.create_task(server.call("POST", "/api/sessions", {"id": name}))
        await asyncio.wait([work], timeout=random.uniform(0, 0.5))
        if work.done() and not work.exception():
            work = asyncio.create_task(server.call("DELETE", f"/api/sessions/{name}?purge=true"))
            await asyncio.wait([work], timeout=random.uniform(0, 0.15))
        await server.kill()
        await asyncio.gather(work, return_exceptions=True)
        await server.start()
        assert_kept_are_whole(server.state_dir)
        live = await gone_on(server)
        left = left_behind(server.state_dir)
        assert len(left["containers"]) == len(left["directories"]) == len(live)
        assert len(left["mounts"]) == len(live)
        for session in live:
            assert (await run(server, session, ["ls"]))["exit_code"] == 0
            await server.ok("DELETE", f"/api/sessions/{session}?purge=true")


async def gone_on(server: Server) -> list[str]:
    """The ids of all live sessions; resumes those that an unrecorded stop left paused."""
    items = (await server.ok("GET", "/api/sessions"))["items"]
    for item in items:
        if item["status"] == "paused":
            await server.ok("POST", f"/api/sessions/{item['id']}/resume")
    return [item["id"] for item in items if item["status"] in ("active", "paused")]


async def test_killed_while_a_session_is_closed(server: Server) -> None:
    session = await create(server)
    await run(server, session, ["sleep", "1000"], background=True)
    seen = asyncio.create_task(next_engine_event(server, "die"))
    closing = asyncio.create_task(server.call("DELETE", f"/api/sessions/{session}"))
    await seen
    await server.kill()
    await asyncio.gather(closing, return_exceptions=True)
    await server.start()

    ended = await server.ok("GET", f"/api/sessions/{session}")
    assert ended["status"] == "completed"
    assert ended["termination"]["rationale_code"] == "normal"
    assert left_behind(server.state_dir) == NOTHING
    assert networks(server.state_dir) == []


async def test_a_sandbox_that_died_meanwhile_is_a_crash_with_its_gap(server: Server) -> None:
    session = await create(server)
    command = await run(server, session, ["sleep", "1000"], background=True)
    await server.kill()
    client = docker.APIClient(version="auto")
    try:
        client.kill(left_behind(server.state_dir)["containers"][0].strip("/"))
    finally:
        client.close()
    await server.start()

    ended = await server.ok("GET", f"/api/sessions/{session}")
    assert ended["status"] == "aborted"
    assert ended["termination"]["rationale_code"] == "crash"
    gap = next(e for e in await events(server, session) if e["operation"] == "audit.gap")
    assert gap["args"]["commands"] == [command["command_id"]]
    assert left_behind(server.state_dir) == NOTHING


async def test_a_paused_session_is_taken_up_paused_and_resumes(server: Server) -> None:
    session = await create(server, "low")
    await server.ok("POST", f"/api/sessions/{session}/pause")
    await restart(server)

    assert (await server.ok("GET", f"/api/sessions/{session}"))["status"] == "paused"
    status, refused = await server.call("POST", f"/api/sessions/{session}/exec", {"argv": ["ls"]})
    assert (status, refused["code"]) == (409, "invalid_transition")
    await server.ok("POST", f"/api/sessions/{session}/resume")
    assert (await run(server, session, ["ls"]))["exit_code"] == 0


async def test_idle_deadlines_are_kept(server: Server) -> None:
    session = await create(server, "low", idle_timeout=3600)
    before = (await server.ok("GET", f"/api/sessions/{session}"))["deadlines"]["idle_at"]
    await restart(server)
    assert (await server.ok("GET", f"/api/sessions/{session}"))["deadlines"]["idle_at"] == before

    # Long enough for the kill to come first, even on a slow machine.
    short = await create(server, "low", idle_timeout=5)
    await server.kill()
    await server.start()
    async with server.client.get(f"/api/sessions/{short}/events?after=0") as stream:
        async for line in stream.content:
            if line.strip() == b"event: session.terminated":
                break
    ended = await server.ok("GET", f"/api/sessions/{short}")
    assert ended["termination"]["rationale_code"] == "timeout"


async def test_nobody_shares_a_state_directory(server: Server) -> None:
    second = Server(server.state_dir)
    with pytest.raises(AssertionError, match="another control plane uses this directory"):
        await second.start()
    await second.stop()


async def test_what_belongs_to_no_session_is_removed(server: Server) -> None:
    session = await create(server, "low")
    stray = server.state_dir / "sandboxes" / ("0" * 16)
    await server.kill()
    (stray / "run").mkdir(parents=True)
    (stray / "workspace").mkdir()
    await server.start()
    assert not stray.exists()
    assert (await run(server, session, ["ls"]))["exit_code"] == 0
    recorded = (await server.ok("GET", "/api/sessions"))["items"]
    assert [item["id"] for item in recorded] == [session]
