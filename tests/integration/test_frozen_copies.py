"""What stops something takes effect at once, also while a copy holds what the session writes."""

import asyncio
import itertools
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import psutil
import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ConflictError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.host.workspace import image_clone
from orchestrator.state.command import Command
from paddock.contract.words import Status
from tests.conftest import BoxFactory
from tests.support.box import TESTER, Box, ended
from tests.support.limits import PROGRAM_SECONDS, WAIT_SECONDS
from tests.support.plane import opened
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Writes all the time, and does not end on TERM.
WRITER = [
    "python3",
    "-c",
    "import os, signal\nsignal.signal(15, signal.SIG_IGN)\n"
    "file = os.open('file', os.O_WRONLY | os.O_CREAT)\nprint('up', flush=True)\n"
    "while True: os.pwrite(file, os.urandom(4096), 0); os.fsync(file)",
]

Stop = Callable[[Box, Command], Awaitable[object]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str) -> AsyncIterator[ControlPlane]:
    async with opened(image=sandbox_image) as plane:
        yield plane


@asynccontextmanager
async def held(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[], bool]]:
    """A copy that has frozen a workspace goes on after the block; whether one has is returned."""
    frozen, goes_on = threading.Event(), threading.Event()

    def reached(point: FaultPoint) -> None:
        if point is FaultPoint.SNAPSHOT_FROZEN:
            frozen.set()
            assert goes_on.wait(PROGRAM_SECONDS)

    with monkeypatch.context() as patch:
        patch.setattr(image_clone, "MOST_FROZEN_SECONDS", 10.0 * PROGRAM_SECONDS)
        patch.setattr(FaultPoint, "reached", reached)
        # As if something were written at any moment, also where the disk is slow.
        marks = itertools.count()
        patch.setattr(image_clone, "mark", lambda _slot: next(marks))
        try:
            yield frozen.is_set
        finally:
            goes_on.set()


def waits_for_the_disk(process: psutil.Process) -> bool:
    return process.status() == psutil.STATUS_DISK_SLEEP


async def abort(box: Box, _command: Command) -> None:
    await box.plane.sessions.abort(TESTER, box.session)


async def interrupt(box: Box, _command: Command) -> None:
    await box.plane.sessions.interrupt(box.session)


async def cancel(box: Box, command: Command) -> None:
    await box.cancel(command)


async def kill(box: Box, command: Command) -> None:
    await box.signal(command, signal.SIGKILL)
    await box.finish(command)


@pytest.mark.parametrize("stop", [abort, interrupt, cancel, kill])
async def test_a_stop_is_answered_while_the_copy_is_held(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, stop: Stop
) -> None:
    box = await Box.create(plane, "high")
    command = await box.start(argv=WRITER, background=True)
    await box.printed(command, "up")
    process = box.process(WRITER)
    async with held(monkeypatch) as frozen:
        taking = asyncio.create_task(plane.named_snapshots.take(TESTER, box.session, "held"))
        await until(frozen)
        await until(lambda: waits_for_the_disk(process))
        async with asyncio.timeout(WAIT_SECONDS):
            await stop(box, command)
        await ended(process)
        assert not taking.done()
    with pytest.raises(ConflictError, match="something in the session was stopped"):
        await taking
    assert os.listdir(plane.settings.snapshots_path) == []
    assert await plane.named_snapshots.page(None, None, ("", ""), 10) == []
    await box.close()


async def test_a_fork_is_given_up_likewise(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await Box.create(plane, "high")
    command = await box.start(argv=WRITER, background=True)
    await box.printed(command, "up")
    async with held(monkeypatch) as frozen:
        forking = asyncio.create_task(plane.forks.fork(TESTER, box.session, 2))
        await until(frozen)
        await box.cancel(command)
    with pytest.raises(ConflictError, match="something in the session was stopped"):
        await forking
    assert plane.sessions.registry.live == [box.session]
    assert os.listdir(plane.settings.snapshots_path) == []
    assert (await plane.named_snapshots.take(TESTER, box.session, "now")).snapshot.ready
    await box.close()


async def test_a_pause_is_no_kill(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that waits for the disk could not be frozen, so a pause would end it."""
    box = await Box.create(plane, "high")
    command = await box.start(argv=WRITER, background=True)
    await box.printed(command, "up")
    process = box.process(WRITER)
    async with held(monkeypatch) as frozen:
        taking = asyncio.create_task(plane.named_snapshots.take(TESTER, box.session, "held"))
        await until(frozen)
        await until(lambda: waits_for_the_disk(process))
        await plane.sessions.pause(TESTER, box.session)
    with pytest.raises(ConflictError, match="something in the session was stopped"):
        await taking
    assert (box.session.status, process.is_running()) == (Status.PAUSED, True)
    taken = (await plane.named_snapshots.take(TESTER, box.session, "paused")).snapshot
    assert (taken.ready, taken.frozen_us) == (True, 0)
    await plane.sessions.resume(TESTER, box.session)
    await box.cancel(command)
    await box.close()


async def test_the_agent_tells_what_it_stops_by_itself(new_box: BoxFactory) -> None:
    box = await new_box("high")
    assert box.session.sandbox is not None
    with box.session.sandbox.freezes.one() as freeze:
        left = await box.run(argv=["sh", "-c", "sleep 1000 & exit 3"])
        assert (left.exit_code, left.exit["leftover_killed"]) == (3, 1)
        freeze.check()  # what outlives its command is no stop
        late = await box.run(argv=["sleep", "1000"], timeout=0.1)
        assert late.exit["timed_out"]
        with pytest.raises(ConflictError, match="was stopped"):
            freeze.check()
    await box.close()
