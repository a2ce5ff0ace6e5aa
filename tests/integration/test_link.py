"""After a broken or stalled connection, nothing is lost or recorded twice."""

import asyncio
import random
import secrets
from typing import Any

import pytest

from orchestrator.ground.errors import (
    AuditUnavailableError,
    BusyError,
    PaddockError,
    SandboxUnavailableError,
)
from orchestrator.host.link.agent_link import AgentLink
from orchestrator.host.link.messages import AgentEvent
from orchestrator.state.command import Command
from orchestrator.work.commands import running_command
from tests.conftest import BoxFactory
from tests.support.box import PATIENCE, TESTER, Box, ended

pytestmark = pytest.mark.asyncio(loop_scope="module")


def link_of(box: Box) -> AgentLink:
    assert box.session.sandbox is not None
    return box.session.sandbox.link


def break_connection(box: Box) -> None:
    """Ends the agent's connection without a message, as a failing socket would."""
    connection = link_of(box)._current
    assert connection is not None
    connection.drop("for a test")


async def assert_every_start_has_one_end(box: Box) -> None:
    events = await box.events()
    started = [e["args"]["command_id"] for e in events if e["operation"] == "command.start"]
    exits = [e["args"]["command_id"] for e in events if e["operation"] == "command.exit"]
    assert sorted(started) == sorted(exits)
    agent = [(e["agent"]["boot_id"], e["agent"]["seq"]) for e in events if e["agent"]]
    assert len({boot for boot, _ in agent}) == 1
    assert [seq for _, seq in agent] == list(range(1, len(agent) + 1))


async def test_what_ends_while_nobody_listens_is_told_afterwards(new_box: BoxFactory) -> None:
    box = await new_box("high")
    script = "import time; print('up', flush=True); time.sleep(1000)"
    commands = [await box.start(argv=["python3", "-c", script], background=True) for _ in range(5)]
    for command in commands:
        await box.printed(command, "up")
    await link_of(box).close()
    for process in box.processes():
        process.kill()
        await ended(process)
    assert not any(command.ended for command in commands)
    await link_of(box).listen()
    for command in commands:
        done = await box.finish(command)
        assert (done.exit["signal"], done.stdout) == ("SIGKILL", "up\n")
    await assert_every_start_has_one_end(box)
    await box.close()


async def test_commands_go_on_while_the_connection_is_lost(new_box: BoxFactory) -> None:
    box = await new_box("low")
    command = await box.start("cat", background=True, stdin_open=True)
    await box.feed(command, b"before ")
    await box.printed(command, "before ")
    break_connection(box)
    # Requests wait for the agent to reconnect.
    await box.feed(command, b"after", close=True)
    assert (await box.finish(command)).stdout == "before after"
    assert await box.write("file", b"x") == 1
    await box.close()


async def test_a_request_under_way_fails_and_may_be_tried_again(new_box: BoxFactory) -> None:
    box = await new_box("low")
    command = await box.start("cat", background=True, stdin_open=True)
    reading = asyncio.create_task(running_command.read_output(box.session, command, 0, 30.0))
    await box.ask("stats")
    break_connection(box)
    with pytest.raises(SandboxUnavailableError):
        await reading
    await box.feed(command, b"x", close=True)
    assert (await box.finish(command)).stdout == "x"
    await box.close()


async def test_an_upload_that_loses_its_connection_changes_nothing(new_box: BoxFactory) -> None:
    box = await new_box("low")
    await box.write("kept", b"old")
    chunks = iter([b"new", b"er"])

    async def broken() -> Any:
        yield next(chunks)
        break_connection(box)
        yield next(chunks)

    with pytest.raises(PaddockError):
        await box.plane.files.write(TESTER, box.session, "kept", "overwrite", broken())
    assert await box.read("kept") == b"old"
    # No worker of the lost connection is left.
    held = [await box.plane.files.read(TESTER, box.session, "kept") for _ in range(8)]
    for download in held:
        await download.close()
    await box.close()


async def test_a_connection_that_breaks_all_the_time(new_box: BoxFactory) -> None:
    box = await new_box("high")
    chance = random.Random(4)
    commands: list[Command] = []

    async def work(number: int) -> None:
        try:
            commands.append(await box.start(argv=["echo", str(number)], background=True))
        except SandboxUnavailableError:
            return  # it may have started anyway, which the record shows
        except BusyError:
            return  # too many such commands

    for cycle in range(12):
        tasks = [asyncio.create_task(work(cycle * 8 + number)) for number in range(8)]
        await asyncio.wait(tasks, timeout=chance.uniform(0, 0.03))
        if link_of(box).connected:
            break_connection(box)
        await asyncio.gather(*tasks)
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(command.done for command in box.session.commands.values()))
        await box.plane.executions.reconcile(box.session)
    assert commands
    await assert_every_start_has_one_end(box)
    await box.close()


# Events that are never acknowledged


async def run_builtin(box: Box) -> None:
    """Runs a command that has one event and no process."""
    await box.ask(
        "exec",
        command_id=secrets.token_hex(8),
        argv=["which", "ls"],
        cwd="/workspace",
        env={},
        stdin=None,
        stdin_open=False,
        timeout_ms=None,
        background=False,
    )


async def test_unacknowledged_events_stop_new_work_and_lose_nothing(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("medium")
    running = await box.start("cat", background=True, stdin_open=True)
    link, go_on = link_of(box), asyncio.Event()
    record = link._on_event

    async def stalled(event: AgentEvent) -> None:
        await go_on.wait()
        await record(event)

    monkeypatch.setattr(link, "_on_event", stalled)
    for _ in range(1024):
        await run_builtin(box)
    stats = await box.ask("stats")
    assert stats["buffered_events"] == 1024
    with pytest.raises(AuditUnavailableError):
        await run_builtin(box)
    operations: list[tuple[str, dict[str, Any]]] = [
        ("file.list", {"path": ".", "depth": 1, "limit": 10}),
        ("file.open", {"op": "read", "path": "x"}),
        ("file.mkdir", {"path": "x"}),
    ]
    for operation, params in operations:
        with pytest.raises(AuditUnavailableError):
            await box.ask(operation, **params)
    # Running commands can still be used, and there is room for their end.
    await box.feed(running, b"in and out", close=True)
    async with asyncio.timeout(PATIENCE):
        while (await box.ask("stats"))["buffered_events"] == 1024:
            await running_command.read_output(box.session, running, 10, 5.0)
    assert not running.ended

    go_on.set()
    done = await box.finish(running)
    assert (done.exit_code, done.stdout) == (0, "in and out")
    await run_builtin(box)
    numbers = [e["agent"]["seq"] for e in await box.events() if e["agent"]]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 1025
    await box.close()


async def test_an_event_that_cannot_be_recorded_is_sent_again(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("medium")
    link, failures = link_of(box), iter(range(3))
    record = link._on_event

    async def failing(event: AgentEvent) -> None:
        if next(failures, None) is not None:
            raise AuditUnavailableError("no room on the disk")
        await record(event)

    monkeypatch.setattr(link, "_on_event", failing)
    done = await box.finish(await box.start("whoami"))
    assert done.exit_code == 0
    assert done.exit["audit"]["seq"] > 0
    await assert_every_start_has_one_end(box)
    await box.close()


async def test_closing_gives_up_on_events_that_cannot_be_recorded(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session ends anyway, and the record states that something is missing."""
    box = await new_box("high")
    command = await box.start(argv=["sleep", "1000"], background=True)

    async def failing(_event: AgentEvent) -> None:
        raise AuditUnavailableError("no room on the disk")

    monkeypatch.setattr(link_of(box), "_on_event", failing)
    monkeypatch.setattr("orchestrator.sandbox.sandboxes.session_sandboxes._SHUTDOWN_SECONDS", 1.0)
    await box.close()
    (gap,) = await box.events("audit.gap")
    assert gap["args"]["commands"] == [command.id]


async def test_output_of_who_was_disconnected_is_asked_for(high: Box) -> None:
    command = await high.start(
        argv=["bash", "-c", "read line; echo $line"], stdin_open=True, collect=True
    )
    break_connection(high)
    await high.feed(command, b"hello\n", close=True)
    done = await high.finish(command)
    assert (done.stdout, command.output) == ("hello\n", None)
