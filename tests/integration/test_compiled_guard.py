"""The compiled guard in real sandboxes, beside the one in Python: they do the same."""

import asyncio
import functools
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import pytest_asyncio

from api.views.facilities import facilities_of
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PaddockError
from sandbox_agent.decide.facilities import GUARD
from sandbox_agent.enforce.guards.availability import PROGRAM
from tests.support.box import Box, Outcome
from tests.support.older_kernels import older_image
from tests.support.plane import opened
from tests.support.tool import Tool, results
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEVELS = ("low", "medium", "high")
# What differs from command to command.
MEASURED = {"audit", "duration_ms", "duration_us", "cpu_us", "cpu_ms", "max_rss_bytes"}
# Detached, and deaf to what asks it to end.
DAEMON = """
import os, signal, sys, time
ready, told = os.pipe()
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.write(told, b".")
    time.sleep(1000)
os.read(ready, 1)
sys.exit(3)
"""
STOPPED = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
ATTACKER = """
import os
print("up", flush=True)
while True:
    try:
        os.kill(-1, 19)
    except OSError:
        pass
"""
BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


class Sides(NamedTuple):
    """Sessions of one level: with the compiled guard, and with the one in Python."""

    compiled: Box
    python: Box


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def without(sandbox_image: str) -> AsyncIterator[ControlPlane]:
    """A control plane whose sandboxes have no compiled guard."""
    with older_image(sandbox_image, (GUARD,)) as image:
        async with opened(image=image) as plane:
            yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=LEVELS)
async def sides(
    request: pytest.FixtureRequest, control_plane: ControlPlane, without: ControlPlane
) -> AsyncIterator[Sides]:
    made = [await Box.create(plane, request.param) for plane in (control_plane, without)]
    for box in made:
        lay_out(box)
    yield Sides(*made)
    for box in made:
        await box.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def high(control_plane: ControlPlane, without: ControlPlane) -> AsyncIterator[Sides]:
    made = [await Box.create(plane, "high") for plane in (control_plane, without)]
    yield Sides(*made)
    for box in made:
        await box.close()


def lay_out(box: Box) -> None:
    """Files, and links that stay, that lead out, that have no target and that have no end."""
    top = box.workspace
    (top / "deep" / "er").mkdir(parents=True)
    (top / "deep" / "file").write_text("text\n")
    targets = {
        **{"in": "deep/file", "into": "deep", "up": "deep/../deep/er/..", "out": "/etc/hostname"},
        **{"over": "../../etc", "gone": "nowhere", "new": "nowhere/../..", "a": "b", "b": "a"},
        "deep/back": "../deep/er",
    }
    for name, target in targets.items():
        (top / name).symlink_to(target)
    for path in (top, *top.rglob("*")):
        os.chown(path, box.uid, box.uid, follow_symlinks=False)


def agent_children(box: Box) -> list[psutil.Process]:
    """What the session's agent has started."""
    sandbox = box.session.sandbox
    assert sandbox is not None
    assert sandbox.first is not None
    return psutil.Process(sandbox.first.pid).children()


def guards(box: Box) -> list[psutil.Process]:
    """The session's guards that are the compiled program."""
    return [child for child in agent_children(box) if child.cmdline()[:1] == ["guard"]]


def told(box: Box, done: Outcome) -> dict[str, Any]:
    """What both guards must say alike."""
    members = {name: value for name, value in done.exit.items() if name not in MEASURED}
    texts = [text.replace(str(box.uid), "UID") for text in (done.stdout, done.stderr)]
    return {**members, "stdout": texts[0], "stderr": texts[1]}


async def tried(box: Box, **request: Any) -> dict[str, Any]:
    """The command's outcome, or why it was refused."""
    try:
        return told(box, await box.run(**request))
    except PaddockError as error:
        return {"refused": error.detail}


async def both(sides: Sides, **request: Any) -> dict[str, Any]:
    """The same outcome from both."""
    compiled, python = [await tried(box, **request) for box in sides]
    assert compiled == python, request
    return compiled


async def test_only_a_runtime_with_the_program_has_it(sides: Sides) -> None:
    for box in sides:
        assert (await box.run("ls")).exit_code == 0
    (guard,) = guards(sides.compiled)
    assert guard.exe() == PROGRAM
    assert guards(sides.python) == []
    told = []
    for box in sides:
        shown = facilities_of(box.session, box.plane.node.kernel) or []
        told += [each.preferred for each in shown if each.name == "guard"]
    assert told == [True, False]


@pytest.mark.parametrize(
    "command",
    [
        "cat deep/file",
        "cat in",
        "cat into/file",
        "cat up/file",
        "cat deep/../in",
        "cat missing",
        "cat deep/file/x",
        "cat out",
        "cat over/passwd",
        "ls into/back/",
        "ls -d over",
        "cat gone",
        "mkdir new/x",
        "mkdir -p deep/new/x",
        "cat a",
        "ls deep/back/../../..",
        "ls " + "x" * 300,
        "ls " + "deep/../" * 400,
        "rm -f a",
    ],
)
async def test_operands_lead_to_the_same(sides: Sides, command: str) -> None:
    await both(sides, command=command)


@pytest.mark.parametrize(
    "cwd", ["deep", "into", "deep/back", "deep/er/..", "missing", "in", "over", "out", "a", "."]
)
async def test_directories_are_entered_alike(sides: Sides, cwd: str) -> None:
    await both(sides, command="pwd", cwd=cwd)


@pytest.mark.parametrize(
    ("script", "exit_code"),
    [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
        ("echo out; echo err >&2", 0),
        ("cat", 0),
        ("ulimit -a; umask; id", 0),
        ("grep -E '^(Sig|Cap|NoNew|Seccomp|Uid|Gid|Groups)' /proc/self/status", 0),
        ("cat /proc/self/oom_score_adj; ls /proc/self/fd | wc -l", 0),
        ("ps -o sid=,pgid= -p $$ | tr -s ' ' | awk '{print $1 == $2}'", 0),
    ],
)
async def test_processes_are_the_same(high: Sides, script: str, exit_code: int) -> None:
    said = await both(high, argv=["bash", "-c", script], stdin="input\n")
    assert said["exit_code"] == exit_code


async def test_programs_that_can_t_be_executed_fail_alike(high: Sides) -> None:
    for box in high:
        (box.workspace / "no-format").write_bytes(b"\x00\x01\x02")
        (box.workspace / "no-format").chmod(0o755)
        (box.workspace / "plain").write_text("#!/bin/sh\n")
        (box.workspace / "lost").write_text("#!/no/interpreter\n")
        (box.workspace / "lost").chmod(0o755)
    for program in ("./no-format", "./plain", "./lost", "./missing", "/etc", "/bin/true/x"):
        said = await both(high, argv=[program])
        assert said["exit_code"] in (126, 127), program
        assert "cannot run" in said["stderr"], program


async def test_words_up_to_the_kernel_s_limit_arrive_and_longer_ones_fail(high: Sides) -> None:
    most = 131_071
    said = await both(high, argv=["/bin/sh", "-c", 'echo "${#1}"', "sh", "x" * most])
    assert said["stdout"] == f"{most}\n"
    said = await both(high, argv=["/bin/true", "x" * (most + 1)])
    assert (said["exit_code"], "Argument list too long" in said["stderr"]) == (126, True)


async def test_what_outlives_its_command_is_killed_and_counted(high: Sides) -> None:
    said = await both(high, argv=["/usr/bin/python3", "-c", DAEMON])
    assert (said["exit_code"], said["leftover_killed"]) == (3, 1)
    assert [box.processes() for box in high] == [[], []]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1])
async def test_signals_arrive_alike(high: Sides, number: int) -> None:
    ends = []
    for box in high:
        command = await box.start(argv=["/bin/sleep", "1000"], background=True)
        await box.signal(command, number)
        ends.append(told(box, await box.finish(command)))
    assert ends[0] == ends[1]
    assert ends[0]["signal"] == signal.Signals(number).name


def has_stopped(box: Box) -> bool:
    """Whether one of its processes stands still."""
    return any(each.status() == "stopped" for each in box.processes())


async def test_a_stopped_command_ends_when_it_is_cancelled(high: Sides) -> None:
    ends = []
    for box in high:
        command = await box.start(argv=["/usr/bin/python3", "-c", STOPPED], background=True)
        await until(functools.partial(has_stopped, box))
        await box.cancel(command)
        ends.append(told(box, await box.finish(command)))
    assert ends[0] == ends[1]
    assert [box.processes() for box in high] == [[], []]


async def test_a_fork_bomb_ends_as_a_whole(high: Sides) -> None:
    for box in high:
        done = await box.run(argv=["/usr/bin/python3", "-c", BOMB], timeout=0.5)
        assert done.exit["timed_out"]
        assert box.processes() == []
        assert (await box.run(argv=["/bin/true"])).exit_code == 0


async def test_siblings_can_t_reach_what_starts(high: Sides) -> None:
    """One command signals whatever it can while others start: none of them is hit."""
    box = high.compiled
    source = ATTACKER
    attacker = await box.start(argv=["/usr/bin/python3", "-c", source], background=True)
    await box.printed(attacker, "up")
    for _ in range(30):
        assert (await box.run(argv=["/bin/true"])).exit_code == 0
    await box.cancel(attacker)
    await box.finish(attacker)


async def test_a_killed_guard_costs_its_command_only(high: Sides) -> None:
    box = high.compiled
    command = await box.start(argv=["/bin/sleep", "1000"], background=True)
    (busy,) = [guard for guard in guards(box) if guard.children()]
    busy.kill()
    done = await box.finish(command)
    assert done.exit["reason"] == "guard_failed"
    assert box.processes() == []
    assert (await box.run(argv=["/bin/true"])).exit_code == 0


async def test_terminals_are_the_same(high: Sides) -> None:
    kinds = []
    for box in high:
        tool = await Tool.open(box)
        (program,) = box.processes()
        stat = Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()
        group, session, device, foreground = map(int, stat[2:6])
        assert group == session == foreground == program.pid
        assert device != 0
        guard = program.parent()
        assert guard is not None
        kinds.append(guard.cmdline()[:1] == ["guard"])
        assert "hello" in str(results(await tool.do("say hello")))
        await box.plane.terminals.close(box.session, tool.id)
    assert kinds == [True, False]


async def test_without_memory_a_command_can_t_start_and_the_next_one_can(high: Sides) -> None:
    """The limit is of the guards only, where the words of the command have no room."""
    for box in high:
        assert (await box.run(argv=["/bin/true"])).exit_code == 0
        limited = [each for each in agent_children(box) if each.uids().real == 0]
        before = [each.rlimit(psutil.RLIMIT_AS) for each in limited]
        for each in limited:
            each.rlimit(psutil.RLIMIT_AS, (each.memory_info().vms, psutil.RLIM_INFINITY))
        done = await box.run(argv=["/bin/true", *["x" * 100_000] * 8])
        for each, limit in zip(limited, before, strict=True):
            each.rlimit(psutil.RLIMIT_AS, limit)
        assert (done.exit_code, done.exit["reason"]) == (126, "oom")
        assert "cannot start: Cannot allocate memory" in done.stderr
        assert (await box.run(argv=["/bin/true"])).exit_code == 0


async def test_eight_at_once(high: Sides) -> None:
    done = await asyncio.gather(
        *(high.compiled.run(argv=["/bin/sh", "-c", f"exit {n}"]) for n in range(8))
    )
    assert [each.exit_code for each in done] == list(range(8))


async def test_nothing_of_a_compiler_is_in_the_image(high: Sides) -> None:
    said = await both(high, argv=["bash", "-c", "command -v gcc cc as ld || echo none"])
    assert said["stdout"] == "none\n"
