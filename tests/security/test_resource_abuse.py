"""Commands that use all available resources hit only their own limits."""

import asyncio
import signal

import pytest

from orchestrator.ground.errors import BusyError
from tests.conftest import BoxFactory
from tests.support.attempts import attempt
from tests.support.box import Box
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 2**20


async def assert_well(box: Box) -> None:
    """Asserts that commands and files still work, and that no earlier command still runs."""
    assert box.processes() == []
    done = await box.run(argv=["echo", "well"])
    assert (done.exit_code, done.stdout) == (0, "well\n")
    await box.write("well", b"well")
    assert await box.read("well") == b"well"


@attempt("a fork bomb in a shell, beside other sessions", layer="process limit", levels="high")
async def test_a_fork_bomb_is_contained(new_box: BoxFactory) -> None:
    box, other = await asyncio.gather(new_box("high"), new_box("high"))
    # The first one is forked before there are others, or the shell itself could not.
    script = "f() { f | f & }; f & echo bombing; while :; do :; done"
    bomb = await box.start(argv=["bash", "-c", script], background=True)
    await box.printed(bomb, "bombing")
    # The agent and other sessions are not affected.
    assert (await box.ask("stats"))["running"] == [bomb.id]
    assert await box.write("during", b"the bomb") == 8
    assert (await other.run(argv=["echo", "fine"])).stdout == "fine\n"
    done = await box.cancel(bomb)
    assert done.exit_code is not None
    await assert_well(box)
    await assert_well(other)
    await asyncio.gather(box.close(), other.close())


@attempt("a fork bomb that ignores signals, until its time-out", layer="guard", levels="high")
async def test_a_timeout_ends_a_fork_bomb(new_box: BoxFactory) -> None:
    box = await new_box("high", limits={"pids": 128})
    done = await box.bash(
        "f() { setsid bash -c 'trap \"\" TERM; :' & f & f & }; f; f; wait", timeout=1
    )
    assert done.exit_code is not None
    await assert_well(box)
    await box.close()


async def test_processes_run_out_before_the_sandbox_does(high: Box) -> None:
    source = """
import os, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(1000)
        made += 1
except BlockingIOError:
    print(made)
"""
    done = await high.python(source)
    assert done.exit_code == 0
    made = int(done.stdout)
    limit = high.session.limits.pids
    assert limit - 64 < made < limit
    assert done.exit["leftover_killed"] == made
    await assert_well(high)


async def test_a_command_that_fails_says_which_limit_struck(new_box: BoxFactory) -> None:
    box = await new_box("high", limits={"pids": 128})
    source = """
import os, sys, time
made = []
try:
    while True:
        pid = os.fork()
        if pid == 0:
            time.sleep(1000)
        made.append(pid)
except BlockingIOError:
    if sys.argv[1] == "clean":
        for pid in made:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    sys.exit(int(sys.argv[2]))
"""
    assert (await box.bash("exit 3")).exit["reason"] is None
    # The limit is reported even if the processes have already ended: the kernel counts them.
    for how, code, reason in (("clean", 3, "pids"), ("leave", 3, "pids"), ("leave", 0, None)):
        done = await box.python(source, how, str(code))
        assert (done.exit_code, done.exit["reason"]) == (code, reason), how
    assert (await box.bash("exit 3")).exit["reason"] is None
    await box.close()


@pytest.mark.parametrize("directory", ["/workspace", "/tmp"])
async def test_a_full_disk_is_told_of_commands_that_fail(
    new_box: BoxFactory, directory: str
) -> None:
    box = await new_box("high", limits={"workspace_bytes": 32 * MIB, "tmp_bytes": 32 * MIB})
    done = await box.bash(f"head -c 1G /dev/zero > {directory}/big")
    assert (done.exit_code, done.exit["reason"]) == (1, "disk"), done.stderr
    assert (await box.run(argv=["true"])).exit["reason"] is None
    assert (await box.bash(f"rm {directory}/big")).exit_code == 0
    assert (await box.run(argv=["false"])).exit["reason"] is None
    await box.close()


@attempt("16 commands that all fork until they can't", layer="process limit", levels="high")
async def test_many_commands_together_leave_room_for_the_agent(high: Box) -> None:
    """While sixteen commands fork as often as they can, commands can still start and end."""
    source = """
import os, sys, time
print("up", flush=True)
sys.stdin.readline()
try:
    while True:
        if os.fork() == 0:
            time.sleep(1000)
except BlockingIOError:
    print("full", flush=True)
    time.sleep(1000)
"""
    argv = ["python3", "-c", source]
    commands = await asyncio.gather(
        *(high.start(argv=argv, background=True, stdin_open=True) for _ in range(16))
    )
    await asyncio.gather(*(high.printed(command, "up") for command in commands))
    await asyncio.gather(*(high.feed(command, b"\n") for command in commands))
    await asyncio.gather(*(high.printed(command, "full") for command in commands))
    await high.write("during", b"x")
    await high.plane.executions.cancel_all(high.session, "over")
    for command in commands:
        assert (await high.finish(command)).exit["reason"] == "over"
    await assert_well(high)


async def test_a_memory_hog_ends_and_its_session_goes_on(new_box: BoxFactory) -> None:
    box = await new_box("high", limits={"memory_bytes": 128 * MIB})
    bystander = await box.start(argv=["cat"], background=True, stdin_open=True)
    done = await box.python("print('start', flush=True); x = bytearray(1 << 30); print('got it')")
    assert (done.exit["signal"], done.stdout) == ("SIGKILL", "start\n")
    assert done.exit["reason"] == "oom"
    # A shell whose child ran out of memory also gets `oom`; a command that kills itself does not.
    done = await box.bash("python3 -c 'bytearray(1 << 30)'; exit $?")
    assert (done.exit_code, done.exit["signal"], done.exit["reason"]) == (137, None, "oom")
    assert (await box.bash("kill -9 $$")).exit["reason"] is None
    # A command that fails because its child was killed gets it too; one that succeeds does not.
    for code, reason in ((3, "oom"), (0, None)):
        done = await box.bash(f"python3 -c 'bytearray(1 << 30)' || exit {code}")
        assert (done.exit_code, done.exit["reason"]) == (code, reason)
    event = await box.event("command.oom")
    assert event["source"] == "engine"
    assert bystander.id in event["args"]["commands"]
    await box.feed(bystander, b"still here", close=True)
    assert (await box.finish(bystander)).stdout == "still here"
    assert box.session.live
    await assert_well(box)
    await box.close()


@attempt("many processes that take all memory", layer="memory limit, OOM scores", levels="high")
async def test_a_tree_of_memory_hogs_does_not_take_the_agent_along(new_box: BoxFactory) -> None:
    box = await new_box("high", limits={"memory_bytes": 128 * MIB})
    source = """
import os
for _ in range(20):
    if os.fork() == 0:
        held = []
        while True:
            held.append(bytearray(1 << 20))
os.wait()
"""
    done = await box.python(source, timeout=WAIT_SECONDS)
    assert done.exit_code is not None
    assert box.session.live
    await assert_well(box)
    await box.close()


@attempt("memory taken by files in /tmp", layer="memory limit, sized mount", levels="high")
async def test_files_in_tmp_count_as_memory_and_end_no_sandbox(new_box: BoxFactory) -> None:
    box = await new_box("high", limits={"memory_bytes": 128 * MIB})
    script = "head -c 400M /dev/zero > /tmp/fill; echo $?; rm -f /tmp/fill"
    done = await box.bash(script, timeout=WAIT_SECONDS)
    assert done.exit_code is not None
    await box.bash("rm -f /tmp/*")
    assert box.session.live
    await assert_well(box)
    await box.close()


async def test_descriptors_run_out_for_the_command_only(high: Box) -> None:
    source = """
import os
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    print(error.strerror)
    import sys
    sys.stdout.flush()
    sys.stdin.read()
"""
    hog = await high.start(argv=["python3", "-c", source], background=True, stdin_open=True)
    await high.printed(hog, "Too many open files")
    await high.write("during", b"x")
    assert (await high.run(argv=["true"])).exit_code == 0
    await high.feed(hog, b"", close=True)
    await high.finish(hog)
    await assert_well(high)


async def test_a_full_tmp_is_the_commands_own_trouble(high: Box) -> None:
    done = await high.bash("head -c 2G /dev/zero > /tmp/fill; echo $?", timeout=60)
    assert "No space left" in done.stderr
    await high.write("during", b"x" * MIB)
    assert (await high.run(argv=["true"])).exit_code == 0
    await high.bash("rm /tmp/fill")
    await assert_well(high)


async def test_processors_are_shared_fairly_enough(new_box: BoxFactory) -> None:
    """Sixteen loops at low, which has half a core, do not stop other work."""
    box, other = await asyncio.gather(new_box("high", limits={"cpus": 0.2}), new_box("low"))
    loops = [
        await box.start(argv=["bash", "-c", "while :; do :; done"], background=True)
        for _ in range(8)
    ]
    await other.write("x", b"y")
    assert (await other.run("cat x")).stdout == "y"
    for loop in loops:
        await box.plane.executions.client_gone(box.session, loop)
    for loop in loops:
        assert (await box.finish(loop)).exit["signal"] in ("SIGTERM", "SIGKILL")
    await asyncio.gather(box.close(), other.close())


async def test_huge_arguments_and_environments(high: Box) -> None:
    done = await high.run(argv=["echo", "x" * 100_000], env={"BIG": "y" * 30_000})
    assert len(done.stdout) == 100_001
    refused = await high.run(argv=["echo", "x" * 200_000])
    assert refused.exit_code == 126
    assert "Argument list too long" in refused.stderr
    many = await high.run(argv=["true", *(["x" * 1000] * 1000)])
    assert many.exit_code == 0


@attempt("outputs that nobody reads", layer="agent", levels="high")
async def test_outputs_that_nobody_reads_do_not_fill_the_sandbox(high: Box) -> None:
    """Clients leave at once; each command prints as much as is kept."""
    agent = high.agent()
    before = agent.memory_info().rss
    most = high.session.level.output_bytes
    for _ in range(12):
        commands = await asyncio.gather(
            *(high.start(argv=["head", "-c", str(most), "/dev/zero"]) for _ in range(8))
        )
        for command in commands:
            await command.done
    # The outputs of all commands that may run at once, kept outputs, and room for grown buffers.
    assert agent.memory_info().rss - before < 32 * most
    await assert_well(high)


@attempt("a command whose name and words fill the ledger", layer="control plane", levels="high")
async def test_a_command_cannot_drown_the_ledger(high: Box) -> None:
    """The record stays small, whatever the command's name and words."""
    name = "n" * 250
    done = await high.run(argv=["./" + name, "x" * 60_000])
    assert done.exit_code == 127
    events = [e for e in await high.events() if e["args"].get("command_id") == done.command.id]
    assert len(str(events)) < 80_000


@attempt("a flood of signals by a client", layer="agent", levels="high")
async def test_a_flood_of_signals_stalls_and_ends_nothing(new_box: BoxFactory) -> None:
    box = await new_box("high", limits={"cpus": 0.1})
    command = await box.start(argv=["sleep", "1000"], background=True)
    results = await asyncio.gather(
        *(box.signal(command, signal.SIGCONT) for _ in range(3000)), return_exceptions=True
    )
    assert {type(result) for result in results} <= {type(None), BusyError}
    assert (await box.cancel(command)).exit["reason"] == "client_gone"
    await assert_well(box)
    await box.close()
