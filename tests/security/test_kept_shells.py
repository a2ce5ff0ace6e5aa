"""Programs in a kept shell pretend that their command has ended, and reach for its socket."""

import base64
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from orchestrator.ground.errors import PermissionDeniedError
from orchestrator.work.shells.kept_shell import ShellSettings, Why
from orchestrator.work.shells.shell_runs import RunAnswer, Until
from tests.conftest import BoxFactory
from tests.support.box import TESTER, Box

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Long enough for a busy machine.
SECONDS = 60.0
# What the shell would say if its command had ended. The number could be any.
FORGED = [f"ready\\0{number}\\0000\\0/forged\\0" for number in ("0", "1", "$__paddock_run")]

# Writes a forged report to everything that could be the shell's socket, and prints what took it.
REACHES = """
import ctypes, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
shell, forged = os.getppid(), b"ready\\0" + b"1\\0" + b"0\\0/forged\\0"
def attempt(name, reach):
    try:
        fd = reach()
        os.write(fd, forged)
        print("reached", name)
    except OSError:
        pass
own = [int(name) for name in os.listdir("/proc/self/fd")]
print("own", [fd for fd in own if fd > 2 and os.path.exists(f"/proc/self/fd/{fd}")])
for fd in range(3, 1024):
    attempt(f"own {fd}", lambda: fd)
for name in os.listdir(f"/proc/{shell}/fd"):
    if "socket" in os.readlink(f"/proc/{shell}/fd/{name}"):
        print("seen")
        attempt(f"opened {name}", lambda: os.open(f"/proc/{shell}/fd/{name}", os.O_WRONLY))
        pidfd = os.pidfd_open(shell)
        def taken():
            got = libc.syscall(438, pidfd, int(name), 0)
            if got < 0:
                raise OSError(ctypes.get_errno(), "refused")
            return got
        attempt(f"taken {name}", taken)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(new_box: BoxFactory) -> Box:
    return await new_box("high")


@pytest_asyncio.fixture(loop_scope="module")
async def shell(box: Box) -> AsyncIterator[str]:
    name = "attacked"
    shells = box.plane.kept_shells
    await shells.create(TESTER, box.session, ShellSettings(name, "/workspace", {}))
    yield name
    if name in [each.name for each in shells.list(box.session)]:
        await shells.close(box.session, name)


async def run(box: Box, shell: str, command: str, seconds: float = SECONDS) -> RunAnswer:
    return await box.plane.kept_shells.run(TESTER, box.session, shell, command, Until(seconds))


async def test_no_output_ends_a_command(box: Box, shell: str) -> None:
    prints = "; ".join(f"printf '{text}' | tee /dev/stderr" for text in FORGED)
    answer = await run(box, shell, f"{prints}; sleep 0.2; cd /tmp; echo really; (exit 7)")
    assert answer.why is Why.FINISHED
    assert answer.printed.text.endswith("really\n")
    assert (answer.exit_code, answer.shell.cwd) == (7, "/tmp")
    assert (await run(box, shell, "echo on")).printed.text == "on\n"


async def test_no_program_reaches_the_socket(box: Box, shell: str) -> None:
    source = base64.b64encode(REACHES.encode()).decode()
    command = f"echo {source} | base64 -d >reach.py; python3 reach.py; echo really; (exit 7)"
    answer = await run(box, shell, command)
    assert answer.why is Why.FINISHED
    assert answer.printed.text.startswith("own []\n")
    assert "reached" not in answer.printed.text
    assert answer.printed.text.endswith("really\n")
    assert (answer.exit_code, answer.shell.cwd) == (7, "/workspace")


async def test_a_job_does_not_end_later_commands(box: Box, shell: str) -> None:
    """A subshell has what the shell has, but not the numbers of later commands."""
    said = r"'ready\0%s\0000\0/forged\0' $__paddock_run"
    forge = f"for fd in {{3..1023}}; do printf {said} >&$fd; done"
    job = f"({forge}; read x </tmp/go; {forge}) 2>/dev/null &"
    await run(box, shell, f"mkfifo /tmp/go; {job}")
    answer = await run(box, shell, "echo >/tmp/go; wait; echo really; (exit 7)")
    assert (answer.why, answer.exit_code) == (Why.FINISHED, 7)
    assert answer.printed.text.endswith("really\n")
    assert answer.shell.cwd != "/forged"


async def test_a_shell_that_says_nonsense_is_ended(box: Box, shell: str) -> None:
    says = r"for fd in {3..1023}; do printf 'x\0y\0z\0w\0' >&$fd; done 2>/dev/null"
    answer = await run(box, shell, f"{says}; sleep 1000")
    assert (answer.why, answer.ended) == (Why.ENDED, "shell_failed")


async def test_a_fork_bomb_ends_with_its_time(box: Box, shell: str) -> None:
    answer = await run(box, shell, "b() { b | b & }; b; sleep 1000", 1)
    assert answer.running is False
    if answer.ended is None:
        shells = box.plane.kept_shells
        await shells.close(box.session, shell)
    assert (await box.bash("echo well")).stdout == "well\n"


async def test_no_shell_at_a_level_with_listed_commands(new_box: BoxFactory) -> None:
    lower = await new_box("medium")
    with pytest.raises(PermissionDeniedError):
        await lower.plane.kept_shells.create(
            TESTER, lower.session, ShellSettings("no", "/workspace", {})
        )
    # Nor does the agent, whatever its control plane decides.
    with pytest.raises(PermissionDeniedError):
        await lower.ask(
            "pty.open",
            terminal_id="pty-1",
            argv=["/bin/bash"],
            env={},
            needs={"execute": [], "read": [], "write": [], "writable_code": False, "ptrace": False},
            rows=24,
            cols=80,
            terminator="",
            sanitize=[],
            commands=None,
            max_line_bytes=100,
            lifetime_ms=1000,
            idle_ms=1000,
            kept=True,
            cwd="/workspace",
        )
    assert not [each for each in lower.processes() if each.name() == "bash"]
