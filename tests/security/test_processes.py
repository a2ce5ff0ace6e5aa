"""Attacks on other processes: the agent, the guard, other commands of the session."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import pytest_asyncio

from sandbox_agent.enforce.filters.architectures import ARCHITECTURES
from tests.support.attack import Attacks, assert_well, numbers
from tests.support.attempts import attempt, attempts
from tests.support.box import Box, Outcome, ended, inner_pid
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEVELS = ("low", "medium", "high")


class Victim(NamedTuple):
    """The pids of a command and its guard inside the sandbox."""

    pid: int
    guard: int


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def victims(attacks: Attacks) -> AsyncIterator[dict[str, Victim]]:
    """Another command of each session, which waits for input."""
    found, commands = {}, {}
    for level in LEVELS:
        box = await attacks.box(level)
        commands[level] = await box.start("cat", background=True, stdin_open=True)
        await box.feed(commands[level], b"first\n")
        await box.printed(commands[level], "first")
        process = box.process(["cat"])
        guard = process.parent()
        assert guard is not None
        found[level] = Victim(inner_pid(process), inner_pid(guard))
    yield found
    for level in LEVELS:
        box = await attacks.box(level)
        await box.feed(commands[level], b"unharmed", close=True)
        assert (await box.finish(commands[level])).stdout == "first\nunharmed"
        await assert_well(box)


@attempts(
    {
        "environment": "its environment",
        "mappings": "its memory map",
        "mappings_in_short": "its memory map, in short",
        "pages": "its page map",
        "stack": "its kernel stack",
        "call": "its current system call",
        "vector": "its auxiliary vector",
        "memory": "its memory",
        "root": "its root",
        "directory": "its working directory",
        "program": "its program's path",
        "input": "its standard input's target",
        "input_opened": "its standard input",
        "namespace": "its mount namespace",
        "vm_read": "its memory by process_vm_readv",
        "descriptor_taken": "a descriptor by pidfd_getfd",
        "compared": "its resources by kcmp",
        "memory_written": "its memory opened for writing",
        "name_changed": "its name",
        "attached": "traced by attaching",
        "seized": "traced by seizing",
        "advised": "its memory given back by process_madvise",
        "pages_moved": "its pages moved",
        "limited": "its limits, by prlimit",
        "slowed": "its priority",
        "pinned": "its processors",
        "made_idle": "its scheduling",
        "parameters_set": "its scheduling's parameters",
        "attributes_set": "its scheduling's attributes",
        "group_slowed": "its group's priority",
        "input_slowed": "its priority of input and output",
        "user_slowed": "its priority, with that of all of its user's processes",
        "user_input_slowed": "… of input and output",
        "probed": "a signal 0",
        "terminated": "SIGTERM",
        "stopped": "SIGSTOP",
        "killed": "SIGKILL",
        "group_killed": "SIGKILL to its group",
        "thread_killed": "SIGKILL to its thread",
        "queued": "a queued SIGKILL",
        "killed_by_descriptor": "SIGKILL by a pidfd",
        "killed_by_its_input": "SIGKILL by the owner of a descriptor (F_SETOWN)",
    },
    layer="uid, Landlock scopes, seccomp",
)
async def test_another_process(
    attacks: Attacks, victims: dict[str, Victim], level: str, name: str
) -> None:
    targets = {
        "the agent": 1,
        "its own guard": 0,  # 0 makes the program use its parent
        "another guard": victims[level].guard,
        "another command": victims[level].pid,
    }
    for target, pid in targets.items():
        (await attacks.report(level, "reach", str(pid))).stopped(name, f"on {target}")


# At high the kernel lets a command count the descriptors of another command of the same user, and
# choose which of them is killed first when memory runs out.
@attempts(
    {"score": "its OOM score", "descriptors": "its descriptors, counted"},
    layer="Landlock",
    levels="low medium",
)
async def test_what_the_user_may_see(
    attacks: Attacks, victims: dict[str, Victim], level: str, name: str
) -> None:
    targets = {"the agent": 1, "its own guard": 0, "another command": victims[level].pid}
    for target, pid in targets.items():
        (await attacks.report(level, "reach", str(pid))).stopped(name, f"on {target}")


@attempt("every process at once, by kill(-1)", layer="Landlock scopes")
async def test_kill_all(attacks: Attacks, victims: dict[str, Victim], level: str) -> None:
    """`kill(-1)` is the last attempt of `reach`; the agent and other commands survive it."""
    await attacks.report(level, "reach", str(victims[level].pid))
    box = await attacks.box(level)
    assert box.process(["cat"]).is_running()
    assert box.agent().is_running()


# The supervisor of executions


@attempt("an execution that can't be recorded, because the agent is stopped", layer="seccomp")
async def test_nothing_runs_unrecorded(attacks: Attacks, level: str) -> None:
    box = await attacks.box(level)
    command = await box.start(argv=["attack-hogs", "waiting"], background=True)
    await box.printed(command, "waiting")
    process, agent = box.process(["attack-hogs", "waiting"]), box.agent()
    agent.send_signal(signal.SIGSTOP)
    try:
        (box.workspace / "go").touch()
        await until(lambda: executing(process))
        assert not (box.workspace / "marker").exists()
    finally:
        agent.send_signal(signal.SIGCONT)
    assert (await box.finish(command)).exit_code == 0
    assert (box.workspace / "marker").exists()
    (event,) = [e for e in await box.events("command.exec") if e["args"]["argv"][:1] == ["touch"]]
    assert event["args"]["command_id"] == command.id
    for name in ("go", "marker"):
        await box.delete(name)
    await assert_well(box)


@attempt("an execution after the agent was killed", layer="seccomp, process namespace")
async def test_nothing_runs_without_its_supervisor(attacks: Attacks, level: str) -> None:
    box = await Box.create(attacks.plane, level)
    command = await box.start(argv=["attack-hogs", "waiting"], background=True)
    await box.printed(command, "waiting")
    process, agent = box.process(["attack-hogs", "waiting"]), box.agent()
    agent.send_signal(signal.SIGSTOP)
    (box.workspace / "go").touch()
    await until(lambda: executing(process))
    agent.kill()
    await ended(process)
    await box.event("session.terminated")
    assert not (box.workspace / "marker").exists()
    assert box.processes() == []


@attempt("an execution by a process that hides its memory, or by a link into /proc", layer="agent")
async def test_what_is_executed_in_hiding(attacks: Attacks, level: str) -> None:
    box = await attacks.box(level)
    done = await box.run(argv=["attack-hogs", "hidden"])
    assert done.exit_code == 0
    recorded = await executions(box, done)
    # The first program can't be determined; the second path is a link, resolved for its caller.
    found = [event["args"]["real_path"] for event in recorded]
    assert found == ["unknown", "/usr/bin/touch"]
    assert (box.workspace / "marker").exists()
    await box.delete("marker")
    await assert_well(box)


@attempt("an execution of a path that does not exist while it is checked", layer="agent")
async def test_race_of_the_record(attacks: Attacks, level: str) -> None:
    done = await attacks.run(level, "races", "exec", "/usr/bin/nothing", "500")
    counted = numbers(done.stdout)
    assert counted["ran"] > 0
    assert counted["refused"] > 0
    assert counted["ran"] <= len(await executions(await attacks.box(level), done))


async def executions(box: Box, done: Outcome) -> list[dict[str, Any]]:
    """The recorded executions of a command."""
    events = await box.events("command.exec")
    return [event for event in events if event["args"]["command_id"] == done.command.id]


def executing(process: psutil.Process) -> bool:
    """Whether the process waits in execve."""
    number = ARCHITECTURES[os.uname().machine].calls["execve"]
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        text = Path(f"/proc/{process.pid}/syscall").read_text()
        return text.split()[0] == str(number)
    return False
