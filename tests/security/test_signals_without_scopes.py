"""Signals of commands, and the ends of their trees, on kernels without Landlock scopes.

The tests that are imported run here once more, with the sessions of this module.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.state.command import Command
from orchestrator.state.pack import Pack
from paddock.contract.pack_form import ToolClass
from sandbox_agent.decide.facilities import WITHOUT
from tests.conftest import BoxFactory
from tests.integration.test_terminals import (
    test_a_tool_that_is_killed_between_lines_has_ended,
    test_the_program_has_a_terminal_of_its_own,
)
from tests.security.test_isolation import (
    inner_parent,
    start_victim,
    test_a_command_cannot_reach_its_own_guard,
    test_a_new_process_is_never_in_reach,
    test_file_workers_are_out_of_reach,
    test_the_agent_is_out_of_reach,
)
from tests.security.test_processes import (
    test_another_process,
    test_kill_all,
    test_race_of_the_record,
    victims,
)
from tests.security.test_resource_abuse import (
    test_a_flood_of_signals_stalls_and_ends_nothing,
    test_a_fork_bomb_is_contained,
    test_a_timeout_ends_a_fork_bomb,
)
from tests.support import signalling_program
from tests.support.arsenal import Arsenal
from tests.support.attack import Attacks, assert_well, write_armed_levels
from tests.support.attempts import attempt
from tests.support.box import Box
from tests.support.older_kernels import older_host, older_image
from tests.support.plane import opened
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGAIN = (
    test_a_command_cannot_reach_its_own_guard,
    test_a_flood_of_signals_stalls_and_ends_nothing,
    test_a_fork_bomb_is_contained,
    test_a_new_process_is_never_in_reach,
    test_a_timeout_ends_a_fork_bomb,
    test_a_tool_that_is_killed_between_lines_has_ended,
    test_the_program_has_a_terminal_of_its_own,
    test_another_process,
    test_file_workers_are_out_of_reach,
    test_kill_all,
    test_race_of_the_record,
    test_the_agent_is_out_of_reach,
    victims,
)
_LACKING = ("scopes",)
_PROGRAM = Path(signalling_program.__file__).read_text()
# With job control, `wait` may answer with an earlier stop of a job that has ended since.
_SHELL = """
set -m
sleep 100 & kill %1; wait %1; echo "job $?"
set +m
sleep 100 & kill -STOP $!; kill -CONT $!; kill -KILL $!; wait $!; echo "stopped $?"
timeout 0.1 sleep 100; echo "timeout $?"
timeout -s KILL 0.1 bash -c 'trap "" TERM; sleep 100'; echo "deaf $?"
(trap 'echo trapped; exit 3' USR1; kill -USR1 $BASHPID); echo "self $?"
bash -c 'kill -ABRT $$'; echo "abort $?"
yes | head -1 >/dev/null; echo "pipe ${PIPESTATUS[0]}"
kill -0 999999 || echo gone
sleep 777 & until pkill -x -f "sleep 777"; do :; done; wait $!; echo "found $?"
"""
_LIBRARIES = """
import asyncio, multiprocessing, signal, subprocess, time
def square(number): return number * number
def hang(): time.sleep(100)
with multiprocessing.Pool(2) as pool: print(pool.map(square, [1, 2, 3]))
for end in ("terminate", "kill"):
    process = multiprocessing.Process(target=hang)
    process.start(); getattr(process, end)(); process.join(); print(process.exitcode)
process = subprocess.Popen(["sleep", "100"])
process.send_signal(signal.SIGINT); print(process.wait())
try: subprocess.run(["sleep", "100"], timeout=0.1)
except subprocess.TimeoutExpired: print("timeout")
async def main():
    process = await asyncio.create_subprocess_exec("sleep", "100")
    process.terminate(); print(await process.wait())
asyncio.run(main())
"""
_STOPPING = """
sleep 1234 &
until [ "$(tr '\\0' ' ' < /proc/$!/cmdline)" = "sleep 1234 " ]; do :; done
kill -STOP $!; echo stopped; exec cat
"""
_INTERRUPTED = """
import time
try: print("up", flush=True); time.sleep(1000)
except KeyboardInterrupt: print("interrupted")
"""
_FLOOD = """
import os, threading, time
for _ in range(20):
    if os.fork() == 0: time.sleep(1000)
def signals():
    while True: os.kill(-1, 0)
for _ in range(10): threading.Thread(target=signals).start()
print("flooding", flush=True)
"""
# What a signal to a process that is not the command's gives, in each way; and with the kernel's
# error for a user's owner of a descriptor.
_ABSENT = ["ESRCH"] * 8 + ["EPERM"] * 4


@pytest.fixture(scope="module")
def levels_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("levels")
    write_armed_levels(directory)
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control_plane(arsenal: Arsenal, levels_dir: Path) -> AsyncIterator[ControlPlane]:
    with older_image(arsenal.image, _LACKING) as image, older_host(_LACKING):
        async with opened(image=image, levels_dir=levels_dir) as plane:
            yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attacks(arsenal: Arsenal, control_plane: ControlPlane) -> Attacks:
    return Attacks(control_plane, arsenal)


async def test_it_is_a_kernel_without_scopes(high: Box) -> None:
    assert WITHOUT.encode() in Path(f"/proc/{high.agent().pid}/environ").read_bytes()


async def told(box: Box) -> dict[str, Any]:
    command, pid = await start_victim(box)
    guard = await inner_parent(box, pid)
    found: dict[str, Any] = (await box.python(_PROGRAM, str(pid), str(guard))).value
    await box.feed(command, b"\n")
    assert (await box.finish(command)).stdout.splitlines()[-1] == "alive True"
    return found


def check(found: dict[str, Any]) -> None:
    assert found["others"] == dict.fromkeys(("other", "guard", "agent", "nothing"), _ABSENT)
    own, family = found["own"], found["family"]
    assert own["ways"] == [["done", 1]] * 12
    assert own["owner"] == 1
    assert own["invalid"] == ["EINVAL", "EINVAL"]
    assert own["by no descriptor"] == ["EBADF", "EBADF"]
    assert family["ended"] == [-15] * 6
    assert family["in another session"] == [-15, -15]
    assert family["received"] == ["-1 True True 0", "-1 True True 42"]
    assert (family["there"], family["gone"]) == ("done", "ESRCH")
    assert (family["as the kernel"], family["invalid"]) == ("EPERM", "EINVAL")
    assert family["everybody"] == [-9]


@attempt(
    "signals in every way, to another command, a guard, the agent", layer="agent", levels="high"
)
async def test_signals_reach_the_own_command_only(high: Box) -> None:
    check(await told(high))


async def test_in_a_session_with_a_pack_as_well(control_plane: ControlPlane) -> None:
    words = "python3 signals.py"
    pack = Pack(
        *("signals", "sha256:" + "0" * 64, "warn"), tools=frozenset(ToolClass), commands=(words,)
    )
    box = await Box.create(control_plane, "high", consume=pack)
    (box.workspace / "signals.py").write_text(_PROGRAM)
    check((await box.run(words)).value)
    await box.close()


async def test_where_signals_interrupt_reported_calls(arsenal: Arsenal) -> None:
    """Kernels before 5.19: what a process sends to itself reaches it once, all the same."""
    lacking = (*_LACKING, "undisturbed")
    with older_image(arsenal.image, lacking) as image, older_host(lacking):
        async with opened(image=image) as plane:
            check(await told(await Box.create(plane, "high")))


async def test_shells_and_libraries_work_as_ever(high: Box) -> None:
    assert (await high.bash(_SHELL)).stdout.split("\n") == [
        *("job 143", "stopped 137", "timeout 124", "deaf 137", "trapped", "self 3", "abort 134"),
        *("pipe 141", "gone", "found 143", ""),
    ]
    assert (await high.python(_LIBRARIES)).stdout.split("\n") == [
        *("[1, 4, 9]", "-15", "-9", "-2", "timeout", "-15", ""),
    ]


async def test_a_client_interrupts(high: Box) -> None:
    command = await high.start(argv=["python3", "-c", _INTERRUPTED])
    await high.printed(command, "up")
    await high.signal(command, signal.SIGINT)
    assert (await high.finish(command)).stdout == "up\ninterrupted\n"


@attempt("a flood of signals to all processes", layer="agent", levels="high")
async def test_who_never_stops_signalling_holds_nobody_up(high: Box) -> None:
    flood = await high.start(argv=["python3", "-c", _FLOOD], background=True)
    await high.printed(flood, "flooding")
    for number in range(5):
        assert (await high.run(argv=["echo", str(number)])).stdout == f"{number}\n"
    await high.cancel(flood)


async def bystanders(box: Box) -> tuple[Command, Command]:
    """A command that waits, and one with a job that it has stopped."""
    waiting = await box.start("cat", background=True, stdin_open=True)
    stopping = await box.start(
        argv=["bash", "-c", _STOPPING],
        background=True,
        stdin_open=True,
    )
    await box.printed(stopping, "stopped")
    await until(lambda: box.process(["sleep", "1234"]).status() == psutil.STATUS_STOPPED)
    return waiting, stopping


async def assert_only_these_are_left(box: Box, waiting: Command, stopping: Command) -> None:
    await until(lambda: len(box.processes()) == 3)
    assert box.process(["sleep", "1234"]).status() == psutil.STATUS_STOPPED
    for command in (waiting, stopping):
        await box.feed(command, b"unharmed\n", close=True)
        assert (await box.finish(command)).stdout.endswith("unharmed\n")
    await assert_well(box)


@attempt("processes that hand over to a child and end, always", layer="guard, agent", levels="high")
@pytest.mark.parametrize("kind", ["relays", "cradles"])
async def test_processes_that_hand_over_are_ended(new_box: BoxFactory, kind: str) -> None:
    box = await new_box("high")
    others = await bystanders(box)
    bombs = [await box.start(argv=["attack-hogs", kind, "2"], background=True) for _ in range(2)]
    for bomb in bombs:
        await box.printed(bomb, "running")
    await asyncio.gather(*(box.cancel(bomb) for bomb in bombs))
    await assert_only_these_are_left(box, *others)
    await box.close()


@attempt("… that have lost their guard", layer="agent", levels="high")
@pytest.mark.parametrize("kind", ["relays", "cradles"])
async def test_they_are_ended_without_their_guard(new_box: BoxFactory, kind: str) -> None:
    box = await new_box("high")
    others = await bystanders(box)
    script = f"attack-hogs {kind} 4; exec sleep 4321"
    bomb = await box.start(argv=["bash", "-c", script], background=True)
    await box.printed(bomb, "running")
    await until(lambda: [each for each in box.processes() if argv(each) == ["sleep", "4321"]] != [])
    guard = box.process(["sleep", "4321"]).parent()
    assert guard is not None
    guard.kill()
    done = await box.finish(bomb)
    assert done.exit["reason"] == "guard_failed"
    await assert_only_these_are_left(box, *others)
    await box.close()


def argv(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []
