"""A command attacks other commands, its guard, the agent, and other sessions."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.host.node import kernel
from orchestrator.state.command import Command
from tests.conftest import BoxFactory
from tests.support.attempts import attempt
from tests.support.box import TESTER, Box, inner_pid

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Has a secret in its environment and memory, and serves an abstract socket.
VICTIM = """
import os, socket, sys
secret = os.environ["SECRET"]
server = socket.socket(socket.AF_UNIX)
server.bind("\\0victim")
server.listen()
print(os.getpid(), flush=True)
sys.stdin.readline()
print("alive", secret == os.environ["SECRET"], flush=True)
"""
SECRET = "canary-6d1f0c"

# Tries everything that a process may do to another, and prints what worked.
ATTACK = """
import ctypes, json, os, re, socket, struct, sys
pid = int(sys.argv[1])
worked = {}
libc = ctypes.CDLL(None, use_errno=True)
def check(value):
    if value < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return value
def read(name):
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read(65536).decode(errors="replace")
def memory():
    for line in open(f"/proc/{pid}/maps"):
        if "[heap]" in line:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            with open(f"/proc/{pid}/mem", "rb") as file:
                file.seek(start)
                return len(file.read(end - start))
    raise OSError("no heap is shown")
def vm_read():
    buffer = ctypes.create_string_buffer(64)
    local = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 64)
    remote = (ctypes.c_void_p * 2)(0x400000, 64)  # where Debian's interpreter is loaded
    return check(libc.process_vm_readv(pid, local, 1, remote, 1, 0))
def abstract():
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\\0victim")
        return "connected"
def pidfd_signal():
    fd = os.pidfd_open(pid)
    return check(libc.syscall(424, fd, 9, None, 0))
def pidfd_take():
    return check(libc.syscall(438, os.pidfd_open(pid), 1, 0))
ATTEMPTS = {
    "environ": lambda: read("environ"),
    "maps": lambda: read("maps"),
    "memory": memory,
    "write memory": lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR)),
    "vm_read": vm_read,
    "root": lambda: os.listdir(f"/proc/{pid}/root"),
    "directory": lambda: os.listdir(f"/proc/{pid}/cwd"),
    "program": lambda: os.readlink(f"/proc/{pid}/exe"),
    "descriptors": lambda: [os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)],
    "stack": lambda: read("stack"),
    "system call": lambda: read("syscall"),
    "attach": lambda: check(libc.ptrace(16, pid, None, None)),
    "seize": lambda: check(libc.ptrace(0x4206, pid, None, None)),
    "take a descriptor": pidfd_take,
    "abstract socket": abstract,
    "signal 0": lambda: os.kill(pid, 0),
    "terminate": lambda: os.kill(pid, 15),
    "kill": lambda: os.kill(pid, 9),
    "stop": lambda: os.kill(pid, 19),
    "kill the group": lambda: os.kill(-max(2, os.getpgid(pid)), 9),
    "kill by descriptor": pidfd_signal,
}
for name, attempt in ATTEMPTS.items():
    try:
        worked[name] = repr(attempt())[:500]
    except OSError:
        pass
print(json.dumps(worked))
# Last, because it would end this too if nothing were in the way.
try:
    os.kill(-1, 9)
except OSError:
    pass
"""


async def attack(box: Box, pid: int) -> dict[str, Any]:
    """The attacks that worked on a process; `pid` is its number inside the sandbox."""
    worked: dict[str, Any] = (await box.python(ATTACK, str(pid))).value
    return worked


async def start_victim(box: Box) -> tuple[Command, int]:
    command = await box.start(
        argv=["python3", "-c", VICTIM], env={"SECRET": SECRET}, background=True, stdin_open=True
    )
    return command, int(await box.printed(command, "\n"))


async def assert_unharmed(box: Box, command: Command) -> None:
    await box.feed(command, b"\n")
    done = await box.finish(command)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "alive True")


async def inner_parent(box: Box, pid: int) -> int:
    """The pid of a command's guard inside the sandbox."""
    done = await box.bash(f"cut -d' ' -f4 /proc/{pid}/stat")
    return int(done.stdout)


@attempt(
    "another command: its memory, environment, sockets, signals, from Python",
    layer="Landlock scopes",
    levels="high",
)
async def test_a_command_is_out_of_reach_of_another(high: Box) -> None:
    command, pid = await start_victim(high)
    worked = await attack(high, pid)
    if not kernel.kernel_facts().kernel.scopes:
        worked.pop("abstract socket")  # the one difference that has no substitute
    assert worked == {}
    await assert_unharmed(high, command)


async def test_the_attack_works_on_relatives(high: Box) -> None:
    """Proves that the other tests can fail: within one command, all attacks work."""
    script = f"""
import json, os, signal, subprocess, sys
attack = {ATTACK!r}.replace("os.kill(-1, 9)", "pass")
victim = subprocess.Popen([sys.executable, "-c", {VICTIM!r}], env={{"SECRET": {SECRET!r}}},
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
pid = victim.stdout.readline().decode().strip()
sys.stdout.write(subprocess.run([sys.executable, "-c", attack, pid],
                                capture_output=True, text=True).stdout)
"""
    worked = (await high.python(script)).value
    assert SECRET in worked["environ"]
    assert {"memory", "abstract socket", "kill", "program", "descriptors"} <= set(worked)


@attempt("another command's guard", layer="uid, Landlock scopes", levels="high")
async def test_a_guard_is_out_of_reach_of_every_command(high: Box) -> None:
    command, pid = await start_victim(high)
    guard = await inner_parent(high, pid)
    assert guard > 1
    assert await attack(high, guard) == {}
    await assert_unharmed(high, command)


@attempt("its own guard", layer="uid, Landlock scopes", levels="high")
async def test_a_command_cannot_reach_its_own_guard(high: Box) -> None:
    script = ATTACK.replace("int(sys.argv[1])", "os.getppid()")
    assert (await high.python(script)).value == {}


@attempt("the agent", layer="uid, Landlock scopes", levels="high")
async def test_the_agent_is_out_of_reach(high: Box) -> None:
    assert await attack(high, 1) == {}
    assert (await high.run(argv=["true"])).exit_code == 0


@attempt(
    "the files API's workers, which have the session's uid", layer="Landlock scopes", levels="high"
)
async def test_file_workers_are_out_of_reach(high: Box) -> None:
    """A worker has the session's uid, so only the commands' Landlock domain protects it."""
    await high.write("read-me", b"x" * 100_000)
    download = await high.plane.files.read(TESTER, high.session, "read-me")
    (worker,) = high.processes()
    assert await attack(high, inner_pid(worker)) == {}
    assert b"".join([chunk async for chunk in download.chunks()]) == b"x" * 100_000
    await download.close()


@attempt(
    "the agent's run directory: listed, read, connected to, renamed",
    layer="uid, read-only mount",
    levels="high",
)
async def test_the_control_socket_is_out_of_reach(high: Box) -> None:
    script = """
import json, os, socket
worked = []
def attempt(name, call):
    try:
        call()
        worked.append(name)
    except OSError:
        pass
def connect(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
for root in ("", "/proc/1/root", "/proc/self/root"):
    attempt("list", lambda: os.listdir(root + "/run/paddock"))
    attempt("look", lambda: os.stat(root + "/run/paddock/control.sock"))
    attempt("connect", lambda: connect(root + "/run/paddock/control.sock"))
    attempt("rename", lambda: os.rename(root + "/run/paddock", root + "/run/other"))
    attempt("unlink", lambda: os.unlink(root + "/run/paddock/control.sock"))
print(json.dumps(worked))
"""
    assert (await high.python(script)).value == []


@attempt(
    "a command in its first moments, by another that waits for it",
    layer="guard's domain",
    levels="high",
)
async def test_a_new_process_is_never_in_reach(high: Box) -> None:
    """Commands are attacked continuously from their first moment."""
    hunter = await high.start(
        argv=[
            "python3",
            "-c",
            """
import os, sys
print("hunting", flush=True)
own = {os.getpid(), os.getppid(), 1}
hits = 0
while not os.path.exists("stop"):
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in own:
            for attempt in (
                lambda: os.kill(int(name), 9),
                lambda: open(f"/proc/{name}/environ").read(),
                lambda: os.close(os.open(f"/proc/{name}/mem", os.O_RDWR)),
            ):
                try:
                    attempt()
                    hits += 1
                except OSError:
                    pass
print("hits:", hits)
""",
        ],
        background=True,
    )
    await high.printed(hunter, "hunting")
    for number in range(60):
        done = await high.run(argv=["echo", str(number)], env={"SECRET": SECRET})
        assert (done.exit_code, done.stdout) == (0, f"{number}\n")
        await high.write("written", str(number).encode())
    await high.write("stop", b"")
    assert (await high.finish(hunter)).stdout.endswith("hits: 0\n")


@attempt(
    "another session's processes, files and abstract sockets",
    layer="namespaces, mounts",
    levels="high",
)
async def test_sessions_do_not_see_each_other(high: Box, new_box: BoxFactory) -> None:
    other = await new_box("high")
    assert other.uid != high.uid
    command, _ = await start_victim(other)
    await other.write("private", SECRET.encode())
    await other.bash("echo private > /tmp/private; chmod -R 777 /tmp/private .")
    seen = await high.bash("cat /proc/*/cmdline | tr '\\0' ' '; ls /workspace /tmp; ls -la /")
    assert "victim" not in seen.stdout
    assert "private" not in seen.stdout
    found = await high.bash(f"grep -rs {SECRET} /tmp /workspace /dev/shm /run; true")
    assert SECRET not in found.stdout
    script = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0victim')"
    refused = await high.python(script)
    assert "ConnectionRefusedError" in refused.stderr
    await assert_unharmed(other, command)
    await other.close()


@attempt(
    "paths, sizes and transfers of other sessions' workspaces, as the kernel tells them",
    layer="masked paths",
    levels="high",
)
async def test_the_kernel_does_not_tell_of_other_workspaces(high: Box, new_box: BoxFactory) -> None:
    other = await new_box("high")
    host = Path("/sys/block")
    assert any((device / "loop" / "backing_file").exists() for device in host.iterdir())
    script = "find /sys -name 'loop[0-9]*' -o -name backing_file; ls /sys/fs/ext4 /proc/fs"
    found = await high.bash(script)
    assert not [line for line in found.stdout.splitlines() if line and not line.endswith(":")]
    told = "/proc/cmdline /proc/diskstats /proc/partitions /proc/swaps /proc/locks"
    assert (await high.bash(f"cat {told}")).stdout == ""
    mounts = (await high.bash("cat /proc/[0-9]*/mountinfo")).stdout
    assert other.session.sandbox is not None
    for own in (other.session.workspace.slot, other.session.sandbox.name, other.container_id):
        assert own not in mounts
    await other.close()
