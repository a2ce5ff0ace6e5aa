"""Programs that use all available resources: the agent and the next command keep working."""

import errno

import pytest

from orchestrator.host.engine.docker_kernel_views import MOST_TERMINALS
from tests.support.attack import Attacks, assert_well
from tests.support.attempts import attempt
from tests.support.box import Box

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 2**20


async def hog(attacks: Attacks, level: str, *arguments: str) -> str:
    """The output of the program, after it has ended and left nothing."""
    box = await attacks.box(level)
    done = await box.run(argv=["attack-hogs", *arguments])
    await attacks.assert_unharmed(box, done)
    return done.stdout


@attempt("daemons: two forks, sessions of their own, deaf to signals", layer="guard")
async def test_daemons(attacks: Attacks, level: str) -> None:
    box = await attacks.box(level)
    done = await box.run(argv=["attack-hogs", "daemons"])
    assert (done.exit_code, done.stdout) == (0, "left\n")
    assert done.exit["leftover_killed"] == 5
    await assert_well(box)


@attempt("a fork bomb", layer="process limit")
async def test_fork_bomb(attacks: Attacks, level: str) -> None:
    box = await attacks.box(level)
    bomb = await box.start(argv=["attack-hogs", "forks"], background=True)
    await box.printed(bomb, "bombing")
    assert (await box.ask("stats"))["running"] == [bomb.id]
    await box.cancel(bomb)
    await assert_well(box)


@attempt("all memory", layer="memory limit, OOM scores")
async def test_memory(attacks: Attacks, level: str) -> None:
    box = await Box.create(attacks.plane, level, limits={"memory_bytes": 128 * MIB})
    done = await box.run(argv=["attack-hogs", "memory"])
    assert (done.exit["signal"], done.stdout) == ("SIGKILL", "start\n")
    assert box.session.live
    await assert_well(box)
    await box.close()


@attempt("all descriptors", layer="limit of open files")
async def test_descriptors(attacks: Attacks, level: str) -> None:
    assert 1000 < int(await hog(attacks, level, "descriptors")) <= 4096


@attempt("all of /tmp", layer="sized mount")
async def test_tmp(attacks: Attacks, level: str) -> None:
    size, reason = (await hog(attacks, level, "fill", "/tmp/fill")).split()
    limits = (await attacks.box(level)).session.limits
    assert int(size) == limits.tmp_bytes
    assert reason == "28"  # ENOSPC


@attempt("output without end", layer="agent")
async def test_output(attacks: Attacks, level: str) -> None:
    box = await attacks.box(level)
    agent = box.agent()
    before = agent.memory_info().rss
    done = await box.run(argv=["attack-hogs", "flood"], timeout=1)
    assert done.exit["timed_out"]
    assert done.exit["truncated"]
    kept = box.session.level.output_bytes
    assert len(done.stdout) + len(done.stderr) <= kept
    assert agent.memory_info().rss - before < 4 * kept
    await assert_well(box)


@attempt("directories 3,000 deep", layer="agent, control plane")
async def test_deep_directories(attacks: Attacks, level: str) -> None:
    box = await Box.create(attacks.plane, level)
    assert (await box.run(argv=["attack-hogs", "deep"])).stdout == "3000\n"
    assert (await box.listing(".", depth=64)).entries
    await assert_well(box)
    workspace = box.workspace.resolve()
    await box.close()
    assert not workspace.exists()


@attempt("hundreds of executions, each of which is recorded", layer="agent")
async def test_executions(attacks: Attacks, level: str) -> None:
    box = await attacks.box(level)
    assert int(await hog(attacks, level, "execs", "500")) == 500
    recorded = [e for e in await box.events("command.exec") if e["args"]["argv"] == ["pwd"]]
    # Repeats in quick succession are recorded as one event with their number.
    assert sum(e["args"].get("repeats", 1) for e in recorded) == 500


@attempt("arguments and an environment as large as the kernel takes", layer="agent")
async def test_huge_arguments(attacks: Attacks, level: str) -> None:
    box = await attacks.box(level)
    done = await box.run(argv=["ls", *(["x" * 1000] * 1000)])
    assert done.exit_code == 2
    refused = await box.run(argv=["ls", "x" * 200_000])
    assert refused.exit_code == 126
    assert "Argument list too long" in refused.stderr
    done = await box.run("ls", env={"LC_X": "y" * 30_000})
    assert done.exit_code == 0
    await assert_well(box)


SEGMENTS = """
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
made = 0
while (segment := libc.shmget(0, 8 * 2**20, 0o1600)) >= 0 and made < 1000:
    libc.shmat.restype = ctypes.c_void_p
    ctypes.memset(libc.shmat(segment, None, 0), 1, 8 * 2**20)
    made += 1
print(made, ctypes.get_errno())
"""
TERMINALS = """
import os
opened = []
try:
    while len(opened) < 500:
        opened.append(os.openpty())
except OSError as error:
    print(len(opened), error.errno)
"""


@attempt("shared segments that outlive their command", layer="IPC namespace", levels="high")
async def test_shared_segments(attacks: Attacks) -> None:
    box = await attacks.box("high")
    for _ in range(2):  # the second finds nothing of the first
        done = await box.run(argv=["python3", "-c", SEGMENTS])
        assert done.stdout.split() == ["8", str(errno.ENOSPC)]
    left = await box.run(argv=["cat", "/proc/sysvipc/shm"])
    assert len(left.stdout.splitlines()) == 1


@attempt("all of the host's pseudo-terminals", layer="sized mount", levels="high")
async def test_terminals(attacks: Attacks) -> None:
    done = await (await attacks.box("high")).run(argv=["python3", "-c", TERMINALS])
    assert done.stdout.split() == [str(MOST_TERMINALS), str(errno.ENOSPC)]
