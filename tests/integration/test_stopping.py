"""Stops take effect for real, with a dead disk, a hung engine, a stopped agent."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

import docker
import psutil
import pytest

from orchestrator.ground.errors import AuditUnavailableError
from orchestrator.host.engine.base import ContainerState
from orchestrator.host.node import container_freeze
from orchestrator.host.node.container_kill import first_process, kill_all
from orchestrator.host.node.control_groups import this_host
from paddock.contract.words import Status
from tests.conftest import BoxFactory
from tests.support.box import TESTER, Box
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Reports its start, and ends neither by itself nor on TERM.
STUBBORN = [
    "python3",
    "-c",
    "import signal\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n"
    "print('up', flush=True)\nwhile True: pass",
]


@pytest.fixture(autouse=True)
def retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a disk that works again noticed at once."""
    monkeypatch.setattr("orchestrator.record.audit.stop_records._RETRY_SECONDS", 0.05)


@asynccontextmanager
async def hung_disk(box: Box) -> AsyncIterator[None]:
    """The writer's thread waits for a disk that does not answer, for which nobody waits long."""
    answers = threading.Event()
    waiting = asyncio.ensure_future(box.plane.database._writer.run(answers.wait))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("orchestrator.record.audit.stop_records.PATIENCE_SECONDS", 0.5)
            patch.setattr("orchestrator.ground.store.database._WRITE_SECONDS", 2.0)
            yield
    finally:
        answers.set()
        await waiting


async def stubborn(box: Box) -> psutil.Process:
    """A command that only a kill ends, as the host sees it."""
    command = await box.start(argv=STUBBORN, background=True)
    await box.printed(command, "up")
    pid = (await box.container()).pid
    assert pid is not None
    (found,) = [
        process
        for process in psutil.Process(pid).children(recursive=True)
        if process.cmdline() == STUBBORN
    ]
    return found


def gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two calls
        return True


@pytest.mark.parametrize("way", ["abort", "close", "lower"])
async def test_with_a_disk_that_hangs(new_box: BoxFactory, way: str) -> None:
    box = await new_box("high")
    process = await stubborn(box)
    async with hung_disk(box):
        if way == "lower":
            with pytest.raises(AuditUnavailableError):
                await box.plane.sessions.changes.set_level(TESTER, box.session, "low", {})
        elif way == "abort":
            await box.plane.sessions.abort(TESTER, box.session)
        else:
            await box.plane.sessions.close(TESTER, box.session, purge=False)
        assert gone(process)
        assert box.session.sandbox is None
    if way == "lower":
        await until(lambda: box.session.key not in box.plane.sessions._stops._queues)
        await box.plane.sessions.changes.set_level(TESTER, box.session, "low", {})
        assert (await box.run("ls")).exit_code == 0
    await until(lambda: box.session.key not in box.plane.sessions._stops._queues)
    await box.close()
    assert [event["operation"] for event in await box.events()][-1] in (
        "session.terminated",
        "audit.gap",
    )


async def test_a_deadline_with_a_disk_that_hangs(new_box: BoxFactory) -> None:
    box = await new_box("high", wall_timeout=10)
    process = await stubborn(box)
    async with hung_disk(box):
        await until(lambda: gone(process))
        await box.session.over
        assert box.session.status is Status.ABORTED
    await until(lambda: box.session.key not in box.plane.sessions._stops._queues)
    await box.close()


@pytest.mark.parametrize("here", [True, False], ids=["frozen here", "killed here"])
async def test_an_engine_that_hangs(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    """No engine is needed: its control group is frozen, or else what is in it is killed."""
    monkeypatch.setattr("orchestrator.sandbox.sandboxes.stopper._FREEZE_SECONDS", 0.1)
    box = await new_box("high")
    process = await stubborn(box)

    async def hang(_container: str) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(box.plane.engine, "pause", hang)
        if not here:
            patch.setattr(container_freeze, "freeze", lambda *_: False)
        await box.plane.sessions.abort(TESTER, box.session)
    assert gone(process)
    assert [event["operation"] for event in await box.events()][-2:] == [
        "session.terminated",
        "command.exit" if here else "audit.gap",
    ]
    await box.close()


async def test_an_agent_that_is_stopped(new_box: BoxFactory) -> None:
    box = await new_box("high")
    process = await stubborn(box)
    container = await box.container()
    assert container.pid is not None
    os.kill(container.pid, signal.SIGSTOP)
    aborting = asyncio.create_task(box.plane.sessions.abort(TESTER, box.session))
    while (found := await box.plane.engine.inspect(container.id)) is not None:
        if found.state is ContainerState.PAUSED or gone(process):
            break
    await aborting
    assert gone(process)
    await box.close()


async def test_a_control_group_in_a_place_of_its_own_is_found(
    new_box: BoxFactory, sandbox_image: str
) -> None:
    """As with `cgroup-parent`, set for the daemon or for a container."""
    client = docker.APIClient(version="auto")
    config = client.create_host_config(cgroup_parent="/paddock-test/agents", network_mode="none")
    argv = ["python3", "-c", "import os\nos.fork()\nos.fork()\nwhile True: pass"]
    made = client.create_container(sandbox_image, entrypoint=argv, host_config=config)
    try:
        client.start(made["Id"])
        pid = client.inspect_container(made["Id"])["State"]["Pid"]
        inside = psutil.Process(pid)
        await until(lambda: len(inside.children(recursive=True)) == 3)
        processes = [inside, *inside.children(recursive=True)]
        first = first_process(made["Id"], pid, this_host())
        assert first is not None
        assert "paddock-test" in str(first.groups[0])
        assert kill_all(made["Id"], first, this_host(), spare_first=True) == 3
        await until(lambda: [gone(process) for process in processes] == [False, True, True, True])
        assert kill_all(made["Id"], first, this_host()) >= 1
        await until(lambda: gone(inside))
    finally:
        client.remove_container(made["Id"], force=True)
        client.close()


async def test_a_sandbox_s_first_process_is_known(new_box: BoxFactory) -> None:
    box = await new_box("high")
    sandbox = box.session.sandbox
    assert sandbox is not None
    assert sandbox.first is not None
    assert sandbox.first.pid == (await box.container()).pid
    assert sandbox.first.groups
    await box.close()
