"""A real sandbox is seen from the host, whether its agent answers or not."""

import asyncio
import json
import os
import signal

import pytest

from orchestrator.config import Settings
from orchestrator.control_plane import ControlPlane
from orchestrator.doctor import run_checks
from paddock.contract.inspection import InspectedSession
from tests.conftest import BoxFactory
from tests.support.box import PATIENCE, TESTER, Box

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def inspect(box: Box) -> InspectedSession:
    """What the API would answer."""
    async with asyncio.timeout(PATIENCE):
        shown = await box.plane.sessions.inspect(box.session)
    return InspectedSession.model_validate_json(json.dumps(shown))


async def test_processes_and_use_while_commands_run(high: Box) -> None:
    spinning = await high.start(argv=["bash", "-c", "while :; do :; done"], background=True)
    sleeping = await high.start(argv=["sleep", "4242"], background=True)
    shown = await inspect(high)
    assert shown.processes is not None
    assert shown.usage is not None
    by_argv = {tuple(process.argv): process for process in shown.processes}
    sleep = by_argv["sleep", "4242"]
    spin = by_argv["bash", "-c", "while :; do :; done"]
    assert sleep.state == "sleeping"
    assert sleep.cpu_percent == 0
    assert spin.cpu_percent > 0
    assert shown.usage.cpu_percent >= spin.cpu_percent / 2
    # The agent, and for each command its guard and itself.
    assert shown.processes[0].pid == 1
    assert shown.usage.pids == len(shown.processes) == 5
    assert 0 < shown.usage.memory_bytes < shown.limits.memory_bytes
    for command in (spinning, sleeping):
        await high.plane.executions.signal(high.session, command, 9)
        await high.finish(command)


async def test_a_stopped_agent_is_still_seen(low: Box) -> None:
    found = await inspect(low)
    assert found.processes is not None
    agent = found.processes[0]
    assert (agent.pid, agent.state) == (1, "sleeping")
    os.kill(agent.host_pid, signal.SIGSTOP)
    try:
        stopped = await inspect(low)
    finally:
        os.kill(agent.host_pid, signal.SIGCONT)
    assert stopped.processes is not None
    assert stopped.processes[0].state == "stopped"
    assert stopped.usage is not None
    assert (await low.run("pwd")).exit_code == 0


async def test_a_paused_sandbox_is_seen(new_box: BoxFactory) -> None:
    box = await new_box("low")
    await box.plane.sessions.pause(TESTER, box.session)
    shown = await inspect(box)
    assert shown.sandbox is not None
    assert shown.sandbox.state == "paused"
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
