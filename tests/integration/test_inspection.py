"""Inspects a real sandbox from the host, whether or not its agent answers."""

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from api.views.sessions import inspected
from orchestrator.control_plane import ControlPlane
from orchestrator.operate.checks.doctor import run_checks
from orchestrator.settings.settings import Settings
from orchestrator.work.commands import running_command
from paddock.contract.inspection import InspectedSession, SandboxProcess
from tests.conftest import BoxFactory
from tests.support.box import PATIENCE, TESTER, Box

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def inspect(box: Box) -> InspectedSession:
    """The answer of the API."""
    async with asyncio.timeout(PATIENCE):
        return inspected(box.session, await box.plane.sessions.inspector.inspect(box.session))


async def inspect_until(
    box: Box, condition: Callable[[InspectedSession], bool]
) -> InspectedSession:
    """Repeats the inspection until the condition holds: processes take a moment to start."""
    async with asyncio.timeout(PATIENCE):
        while not condition(shown := await inspect(box)):
            pass
    return shown


def process_of(shown: InspectedSession, *argv: str) -> SandboxProcess | None:
    found = [process for process in shown.processes or [] if process.argv == list(argv)]
    return found[0] if found else None


async def test_processes_and_use_while_commands_run(high: Box) -> None:
    loop = ["bash", "-c", "while :; do :; done"]
    spinning = await high.start(argv=loop, background=True)
    sleeping = await high.start(argv=["sleep", "4242"], background=True)

    def settled(shown: InspectedSession) -> bool:
        spin, sleep = process_of(shown, *loop), process_of(shown, "sleep", "4242")
        if spin is None or sleep is None or shown.usage is None:
            return False
        spins = 0 < spin.cpu_percent / 2 <= shown.usage.cpu_percent
        return spins and (sleep.state, sleep.cpu_percent) == ("sleeping", 0)

    shown = await inspect_until(high, settled)
    assert shown.processes is not None
    assert shown.usage is not None
    # The agent, and for each command its guard and its own process.
    assert shown.processes[0].pid == 1
    assert shown.usage.pids == len(shown.processes) == 5
    assert 0 < shown.usage.memory_bytes < shown.limits.memory_bytes
    for command in (spinning, sleeping):
        await running_command.signal(high.session, command, 9)
        await high.finish(command)


def agent_of(shown: InspectedSession) -> SandboxProcess:
    assert shown.processes is not None
    assert shown.processes[0].pid == 1
    return shown.processes[0]


async def test_a_stopped_agent_is_still_seen(low: Box) -> None:
    found = await inspect_until(low, lambda shown: agent_of(shown).state == "sleeping")
    agent = agent_of(found)
    os.kill(agent.host_pid, signal.SIGSTOP)
    try:
        stopped = await inspect_until(low, lambda shown: agent_of(shown).state == "stopped")
    finally:
        os.kill(agent.host_pid, signal.SIGCONT)
    assert stopped.usage is not None
    assert (await low.run("pwd")).exit_code == 0


async def test_a_paused_sandbox_is_seen(new_box: BoxFactory) -> None:
    box = await new_box("low")
    await box.plane.sessions.pause(TESTER, box.session)
    shown = await inspect(box)
    assert shown.sandbox is not None
    assert shown.sandbox.state == "paused"
    await box.plane.sessions.resume(TESTER, box.session)
    shown = await inspect(box)
    assert shown.sandbox is not None
    assert shown.sandbox.state == "running"
    # The engine's pause, made by someone else, does not pause the session.
    await box.plane.engine.pause(box.container_id)
    shown = await inspect(box)
    await box.plane.engine.resume(box.container_id)
    assert shown.sandbox is not None
    assert (shown.status, shown.sandbox.state) == ("active", "paused")
    assert shown.processes is not None
    assert shown.processes[0].pid == 1


async def test_the_doctor_beside_a_running_control_plane(control_plane: ControlPlane) -> None:
    settings: Settings = control_plane.settings
    ours = settings.model_copy(update={"listen": "127.0.0.1:0"})
    before = sorted(os.listdir(settings.state_dir))
    async with asyncio.timeout(2 * PATIENCE):
        checks = await run_checks(ours)
    assert [check for check in checks if not check.ok] == []
    levels = {check.name: check.status for check in checks if check.name.startswith("level")}
    assert set(levels) == {"level low", "level medium", "level high"}
    assert sorted(os.listdir(settings.state_dir)) == before
