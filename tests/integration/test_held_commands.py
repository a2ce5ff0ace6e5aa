"""A command never runs before its start is on record, whatever happens to it in between."""

import asyncio
import functools
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.ground.errors import AuditUnavailableError, PaddockError, SandboxUnavailableError
from orchestrator.ground.store.database_file import StoreError
from orchestrator.host.link.agent_link import AgentLink
from orchestrator.host.node import container_freeze
from orchestrator.work.commands import execution
from sandbox_agent.decide.frames import notification
from sandbox_agent.enforce.filters.architectures import ARCHITECTURES
from tests.conftest import BoxFactory
from tests.support.box import TESTER, Box, ended
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANARY = ["touch", "canary"]
LEVELS = ["low", "high"]


@pytest_asyncio.fixture(loop_scope="module", params=LEVELS)
async def box(new_box: BoxFactory, request: pytest.FixtureRequest) -> AsyncIterator[Box]:
    box = await new_box(request.param)
    yield box
    await box.close()


class Disk:
    """The ledger's disk, which hangs until the test decides."""

    def __init__(self, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        database = box.plane.ledger._database
        write = database.write

        async def hang(*given: object, **more: object) -> object:
            self.asked.set()
            await asyncio.shield(self.answer)
            return await write(*given, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(database, "write", hang)


@pytest_asyncio.fixture(loop_scope="module")
async def disk(box: Box, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(box, monkeypatch)


def link_of(box: Box) -> AgentLink:
    assert box.session.sandbox is not None
    return box.session.sandbox.link


async def held(box: Box, disk: Disk) -> "asyncio.Task[object]":
    """A command that the agent has made ready and whose start is not on record."""
    task = asyncio.create_task(box.start(argv=CANARY, background=True))
    await disk.asked.wait()
    stats = await box.ask("stats")  # answered after the command was made ready
    assert stats["running"] == []
    return task


async def exists(box: Box) -> bool:
    return (box.workspace / "canary").exists()


def executing(box: Box) -> bool:
    """Whether a process of the session waits in a call of execve."""
    number = ARCHITECTURES[os.uname().machine].calls["execve"]
    calls = [Path(f"/proc/{process.pid}/syscall").read_text() for process in box.processes()]
    return any(call.startswith(f"{number} ") for call in calls)


async def assert_works(box: Box) -> None:
    """Nothing of the dropped command is left, and the next command runs."""
    assert (await box.run(argv=["ls"])).exit_code == 0
    assert not await exists(box)
    assert (await box.ask("stats"))["running"] == []


async def test_a_command_waits_for_a_disk_that_hangs(box: Box, disk: Disk) -> None:
    starting = await held(box, disk)
    for _ in range(20):
        await box.ask("stats")
    assert not await exists(box)
    assert not starting.done()
    disk.answer.set_result(None)
    await starting
    (command,) = box.session.commands.values()
    assert (await box.finish(command)).exit_code == 0
    assert await exists(box)


async def test_its_process_waits_in_the_call_that_executes_its_program(
    box: Box, disk: Disk
) -> None:
    starting = await held(box, disk)
    await until(lambda: executing(box))
    disk.answer.set_result(None)
    await starting
    (command,) = box.session.commands.values()
    assert (await box.finish(command)).exit_code == 0
    assert await box.events("command.exec") == []  # it is on record as the command's start


async def test_a_program_may_end_with_any_status(box: Box) -> None:
    if box.session.level.name == "high":
        assert (await box.bash("exit 255")).exit_code == 255
    assert (await box.run(argv=["ls", "nowhere"])).exit_code == 2


async def test_a_start_that_can_not_be_recorded_runs_nothing(box: Box, disk: Disk) -> None:
    starting = await held(box, disk)
    disk.answer.set_exception(StoreError("the disk is full"))
    with pytest.raises(AuditUnavailableError):
        await starting
    assert box.session.commands == {}
    disk.answer = asyncio.get_running_loop().create_future()
    disk.answer.set_result(None)
    await assert_works(box)


async def test_a_connection_that_breaks_before_the_word(box: Box, disk: Disk) -> None:
    """The control plane may have been killed: a word for it never comes."""
    starting = await held(box, disk)
    connection = link_of(box)._current
    assert connection is not None
    connection.drop("for a test")
    await until(lambda: link_of(box).connected)
    disk.answer.set_result(None)
    with pytest.raises(SandboxUnavailableError):
        await starting
    await assert_works(box)
    (lost, *_) = await box.events("command.exit")
    assert lost["result"] is None
    assert lost["error"]


async def test_a_session_that_changes_or_ends_before_the_word(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for change in ("medium", "paused", "ended"):
        box = await new_box("high")
        with monkeypatch.context() as patch:
            disk = Disk(box, patch)
            starting = await held(box, disk)
            sessions = box.plane.sessions
            if change == "paused":
                work = sessions.pause(TESTER, box.session)
            elif change == "ended":
                work = sessions.close(TESTER, box.session, purge=False)
            else:
                work = sessions.changes.set_level(TESTER, box.session, change, {})
            changing = asyncio.ensure_future(work)
            await until(functools.partial(_closed, box))
            disk.answer.set_result(None)
            with pytest.raises(PaddockError):
                await starting
            await changing
        assert not await exists(box)
        assert all(event["result"] is None for event in await box.events("command.exit"))
        if change != "ended":
            await box.close()


async def test_a_stop_that_has_begun_comes_before_the_word(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the engine freezes the sandbox, the session does not count as closed yet."""
    for change in ("low", "ended"):
        box = await new_box("high")
        engine = box.plane.engine
        asked, frozen, pause = asyncio.Event(), asyncio.Event(), engine.pause

        async def slow(
            container_id: str,
            asked: asyncio.Event = asked,
            frozen: asyncio.Event = frozen,
            pause: Callable[[str], Awaitable[None]] = pause,
        ) -> None:
            await pause(container_id)
            asked.set()
            await frozen.wait()

        with monkeypatch.context() as patch:
            disk = Disk(box, patch)
            starting = await held(box, disk)
            patch.setattr(engine, "pause", slow)
            patch.setattr(container_freeze, "freeze", lambda *_: False)
            sessions = box.plane.sessions
            if change == "ended":
                work = sessions.close(TESTER, box.session, purge=False)
            else:
                work = sessions.changes.set_level(TESTER, box.session, change, {})
            changing = asyncio.ensure_future(work)
            await asked.wait()
            disk.answer.set_result(None)
            with pytest.raises(PaddockError):
                await starting
            frozen.set()
            await changing
        assert not await exists(box)
        if change != "ended":
            await box.close()


async def test_a_command_that_is_ended_before_the_word(box: Box, disk: Disk) -> None:
    starting = await held(box, disk)
    await box.plane.executions.cancel_all(box.session, "client_gone")
    disk.answer.set_result(None)
    with pytest.raises(PaddockError):
        await starting
    await assert_works(box)


async def test_the_agent_drops_a_held_command_that_it_is_told_to_cancel(
    box: Box, disk: Disk
) -> None:
    starting = await held(box, disk)
    (command,) = box.session.commands.values()
    await box.ask("cancel", command_id=command.id, reason="for a test")
    disk.answer.set_result(None)
    await starting  # the word to go finds no command
    await box.plane.executions.reconcile(box.session)
    assert (await box.finish(command)).exit_code is None
    await assert_works(box)


def _closed(box: Box) -> bool:
    try:
        box.session.check_open()
    except PaddockError:
        return True
    return False


async def test_words_for_commands_that_are_not_held_change_nothing(box: Box) -> None:
    connection = link_of(box)._current
    assert connection is not None
    for word in ("go", "drop"):
        connection.send(notification(word, {"command_id": secrets.token_hex(8)}))
    running = await box.start(argv=["cat"], background=True, stdin_open=True)
    for word in ("go", "drop"):
        connection.send(notification(word, {"command_id": running.id}))
    await box.feed(running, b"still here", close=True)
    assert (await box.finish(running)).stdout == "still here"


async def test_the_process_that_waits_for_a_command_can_be_killed(box: Box) -> None:
    """As the kernel does when memory runs out: the next command runs all the same."""
    assert (await box.run(argv=["ls"])).exit_code == 0
    waiting = [each for each in box.agent().children(recursive=True) if not each.children()]
    assert waiting
    for process in waiting:
        process.kill()
        await ended(process)
    assert (await box.run(argv=["ls"])).exit_code == 0


async def test_a_frozen_sandbox_is_answered_with_the_commands_id(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start is on record, so it may run once the sandbox goes on; who asks gets its end."""
    monkeypatch.setattr(execution, "_START_SECONDS", 0.2)
    assert box.session.sandbox is not None
    frozen = box.session.sandbox.container_id
    await box.plane.engine.pause(frozen)
    try:
        with pytest.raises(SandboxUnavailableError) as told:
            await box.start(argv=CANARY)
    finally:
        await box.plane.engine.resume(frozen)
    command = box.session.commands[told.value.fields["command_id"]]
    assert command.id in told.value.detail
    assert (await box.finish(command)).exit_code == 0
    assert (box.workspace / "canary").exists()
