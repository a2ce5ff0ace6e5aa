"""A command is a process tree: after its end, nothing of the tree is left."""

import json
from contextlib import closing
from pathlib import Path

import docker
import pytest

from orchestrator.ground.errors import BusyError
from tests.conftest import BoxFactory
from tests.support import guard_without_scopes
from tests.support.agent_code import AGENT_CODE
from tests.support.attempts import attempt
from tests.support.box import Box, ended
from tests.support.limits import PROGRAM_SECONDS, WAIT_SECONDS
from tests.support.tool import Tool
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAITING = ["python3", "-c", "import time; print('up', flush=True); time.sleep(1000)"]

# Detached in every possible way: new session, double fork, no streams, signals ignored.
DAEMON = """
import os, signal, sys, time
def detach():
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    ready = os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.write(ready, b"up\\n")
    os.close(ready)
    while True:
        time.sleep(1000)
for _ in range(int(sys.argv[1])):
    detach()
for _ in range(int(sys.argv[1])):
    os.wait()
"""


@attempt("daemons of a shell", layer="guard", levels="high")
async def test_daemons_end_with_their_command(high: Box) -> None:
    done = await high.python(DAEMON + "import os; os._exit(3)", "5")
    assert done.exit_code == 3
    assert done.exit["leftover_killed"] == 5
    assert high.processes() == []
    seen = await high.run(argv=["ps", "-eo", "user=,args="])
    assert [line for line in seen.stdout.splitlines() if line.startswith("sandbox")] == [
        "sandbox  ps -eo user=,args="
    ]


async def test_a_background_command_keeps_its_daemons_until_it_ends(high: Box) -> None:
    script = DAEMON + "print('all', flush=True); sys.stdin.read()"
    command = await high.start(
        argv=["python3", "-c", script, "2"], background=True, stdin_open=True
    )
    await high.printed(command, "all")
    assert len(high.processes()) == 3
    await high.feed(command, b"", close=True)
    done = await high.finish(command)
    assert (done.exit_code, done.exit["leftover_killed"]) == (0, 2)
    assert high.processes() == []


async def test_a_timeout_ends_a_tree_that_ignores_it(high: Box) -> None:
    script = (
        "trap '' TERM; echo deaf; bash -c 'trap \"\" TERM; sleep 1000; sleep 1000' & "
        "setsid sleep 1000 & while :; do wait; done"
    )
    done = await high.bash(script, timeout=3)
    assert (done.exit["signal"], done.exit["timed_out"]) == ("SIGKILL", True)
    # The kill did not come at once: the command had time to clean up.
    assert done.exit["duration_ms"] >= 5000
    assert high.processes() == []


async def test_a_tree_that_heeds_a_timeout_has_time_to_clean_up(high: Box) -> None:
    script = "trap 'echo cleaned; exit 9' TERM; echo ready; sleep 1000 & wait"
    done = await high.bash(script, timeout=3)
    assert (done.exit_code, done.stdout) == (9, "ready\ncleaned\n")
    assert done.exit["reason"] == "timeout"
    assert high.processes() == []


async def test_a_grandchild_that_keeps_the_pipe_does_not_hang_the_command(high: Box) -> None:
    done = await high.bash("echo out; sleep 1000 & echo err >&2", timeout=WAIT_SECONDS)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "out\n", "err\n")
    assert done.exit["leftover_killed"] == 1
    assert not done.exit["timed_out"]
    assert high.processes() == []


async def test_what_a_leftover_still_writes_is_drained_for_a_moment_only(high: Box) -> None:
    done = await high.bash("while :; do echo again; done & exit 4", timeout=WAIT_SECONDS)
    assert done.exit_code == 4
    assert done.exit["leftover_killed"] >= 1
    assert not done.exit["timed_out"]
    assert high.processes() == []


async def test_leftovers_that_end_by_themselves_are_waited_for(high: Box) -> None:
    """They end after the first process and before they would be killed."""
    for number in range(20):
        done = await high.bash(f"(sleep 0.0{number:02d}; echo late) & exit 5", timeout=WAIT_SECONDS)
        assert done.exit_code == 5
        assert not done.exit["timed_out"]
    assert high.processes() == []


async def test_a_sandbox_without_room_for_a_process_says_so(high: Box) -> None:
    """The lowered limit has the same effect as a command that uses every allowed process."""
    await high.run(argv=["true"])  # a guard is ready
    path = limit_of_processes(high.agent().pid)
    limit = path.read_text()
    path.write_text("1")
    try:
        await high.run(argv=["true"])  # its process was forked before
        done = await high.run(argv=["true"])
        assert done.exit_code == 126
        assert "cannot start: Resource temporarily unavailable" in done.stderr
        with pytest.raises(BusyError):
            await high.write("x", b"")
    finally:
        path.write_text(limit)
    assert (await high.run(argv=["true"])).exit_code == 0


def limit_of_processes(pid: int) -> Path:
    """The file with the most processes of a process's control group, of either version."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        path = Path("/sys/fs/cgroup", controllers, group.lstrip("/"), "pids.max")
        if path.exists():
            return path
    raise AssertionError("the control groups are mounted elsewhere")


@attempt("processes left behind that fork all the time", layer="guard", levels="high")
async def test_leftovers_that_fork_all_the_time_are_ended(high: Box) -> None:
    script = "f() { setsid bash -c 'while :; do (sleep 0.01; true) & sleep 0.005; done'; }; f & f &"
    done = await high.bash(script + " sleep 0.1", timeout=WAIT_SECONDS)
    assert done.exit_code == 0
    assert high.processes() == []


async def test_zombies_do_not_pile_up(high: Box) -> None:
    """Orphans of a running command are reaped, although their parent never waits for them."""
    script = """
import os, sys
for _ in range(50):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
print("forked", flush=True)
sys.stdin.read()
"""
    command = await high.start(argv=["python3", "-c", script], stdin_open=True)
    await high.printed(command, "forked")
    # By the end of another command, all processes that ended before have been reaped.
    await high.run(argv=["true"])
    assert len(high.processes()) == 1
    await high.feed(command, b"", close=True)
    assert (await high.finish(command)).exit["leftover_killed"] == 0
    agent = high.agent()
    assert "zombie" not in [child.status() for child in agent.children(recursive=True)]


async def test_a_command_that_is_killed_from_outside_is_reported(high: Box) -> None:
    command = await high.start(argv=WAITING)
    await high.printed(command, "up")
    high.process(WAITING).kill()
    assert (await high.finish(command)).exit["signal"] == "SIGKILL"


@attempt("the guard itself killed", layer="agent", levels="high")
async def test_a_guard_that_dies_costs_its_command_only(new_box: BoxFactory) -> None:
    """All its processes are killed, even those that fork constantly or left their group."""
    box = await new_box("high")
    bystander = await box.start(argv=["cat"], background=True, stdin_open=True)
    script = "f() { setsid bash -c 'while :; do (sleep 0.01; true) & sleep 0.005; done'; }; "
    # The first process is also killed, so it can report that all the others run.
    script += "f & f & (setsid sleep 1000 &) ; exec python3 -uc 'print(1); input()'"
    command = await box.start(argv=["bash", "-c", script], background=True, stdin_open=True)
    await box.printed(command, "1")
    guard = box.process(["python3", "-uc", "print(1); input()"]).parent()
    assert guard is not None
    assert guard.parent() == box.agent()
    guard.kill()
    done = await box.finish(command)
    assert (done.exit_code, done.exit["signal"]) == (137, "SIGKILL")
    assert done.exit["reason"] == "guard_failed"
    assert [process.name() for process in box.processes()] == ["cat"]
    assert "guard" in (await box.event("command.exit"))["error"]
    # Other commands are unaffected, and new ones can run, each with its own guard.
    for _ in range(3):
        assert (await box.run(argv=["echo", "fine"])).stdout == "fine\n"
    await box.feed(bystander, b"still here", close=True)
    assert (await box.finish(bystander)).stdout == "still here"
    assert box.session.live
    assert box.processes() == []
    await box.close()


async def test_a_terminals_guard_that_dies_ends_the_terminal_only(high: Box) -> None:
    tool = await Tool.open(high)
    (program,) = high.processes()
    guard = program.parent()
    assert guard is not None
    guard.kill()
    exited = await high.event("pty.exit")
    assert exited["args"]["terminal_id"] == tool.id
    assert exited["result"]["signal"] == "SIGKILL"
    assert exited["result"]["reason"] == "guard_failed"
    assert high.processes() == []
    assert (await high.run(argv=["true"])).exit_code == 0


@attempt("what a killed guard leaves is in the kernel's hands", layer="agent", levels="high")
async def test_a_sandbox_ends_where_a_dead_guards_processes_cannot_be(new_box: BoxFactory) -> None:
    """A process of another user stands in for one that can't be killed."""
    box = await new_box("high")
    command = await box.start(argv=WAITING, background=True)
    await box.printed(command, "up")
    agent = box.agent()
    guard = box.process(WAITING).parent()
    assert guard is not None
    script = "import os, time\nif os.fork() == 0: os.setuid(77); time.sleep(1000)"
    with closing(docker.APIClient(version="auto")) as client:
        made = client.exec_create(box.container_id, ["python3", "-c", script], user="root")
        client.exec_start(made["Id"], detach=True)
    await until(lambda: 77 in {child.uids().real for child in agent.children()})
    guard.kill()
    await ended(agent)
    await box.event("session.terminated")
    gap = await box.event("audit.gap")
    assert gap["args"]["commands"] == [command.id]
    assert box.session.status == "aborted"
    assert box.processes() == []


# Kernels without Landlock scopes


@pytest.mark.parametrize("how", ["", "blind"])
async def test_without_scopes_a_tree_is_searched_for_or_ended_by_the_agent(
    sandbox_image: str, how: str
) -> None:
    source = Path(guard_without_scopes.__file__).read_text()
    client = docker.APIClient(version="auto")
    container = client.create_container(
        sandbox_image,
        entrypoint=["python3", "-c", source, DAEMON, how],
        host_config=client.create_host_config(
            cap_drop=["ALL"], cap_add=["SETUID", "SETGID"], network_mode="none", binds=[AGENT_CODE]
        ),
    )
    try:
        client.start(container)
        assert client.wait(container, timeout=PROGRAM_SECONDS)["StatusCode"] == 0, client.logs(
            container
        )
        report = json.loads(client.logs(container, stderr=False))
    finally:
        client.remove_container(container, v=True, force=True)
        client.close()
    assert report["daemons_before"] == guard_without_scopes.DAEMONS
    assert report["result"]["leftover_killed"] == guard_without_scopes.DAEMONS
    assert report["left"] == []
    assert report["bystander_lives"]
