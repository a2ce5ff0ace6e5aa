"""Malformed or extreme command words affect only their own command; the agent keeps running."""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from orchestrator.ground.errors import PaddockError, PermissionDeniedError, ValidationError
from orchestrator.host.link.connection import Connection
from sandbox_agent.decide.frames import encode, notification, result
from tests.conftest import BoxFactory
from tests.support import guard_at_start
from tests.support.agent_code import AGENT_CODE
from tests.support.attempts import attempt
from tests.support.box import PATIENCE, Box, Outcome
from tests.support.limits import PROGRAM_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def assert_lives(box: Box, boot_id: str) -> None:
    """The agent was not restarted, runs nothing, and still runs commands."""
    link = box.session.sandbox and box.session.sandbox.link
    assert link
    assert link.hello
    assert link.hello.boot_id == boot_id
    assert (await box.ask("stats"))["running"] == []
    assert (await box.run(argv=["ls", "-d", "."])).stdout == ".\n"
    assert box.processes() == []


def boot_of(box: Box) -> str:
    assert box.session.sandbox
    assert box.session.sandbox.link.hello
    return box.session.sandbox.link.hello.boot_id


@attempt("a working directory of 3,800 bytes that does not exist", layer="agent", levels="low")
async def test_a_long_directory(low: Box) -> None:
    boot = boot_of(low)
    done = await low.run(argv=["ls"], cwd="é" * 1900)
    assert done.exit_code in (126, 127)
    assert done.stderr.startswith("cannot enter directory 'éé")
    assert len(done.stderr) < 1000
    await assert_lives(low, boot)


@attempt("a program's name of 30,000 emoji", layer="agent", levels="high")
@pytest.mark.parametrize("name", ["x" * 5000, "🐎" * 30_000, "/" * 5000, "'\"\\" * 2000])
async def test_a_long_name(high: Box, name: str) -> None:
    boot = boot_of(high)
    done = await high.run(argv=[name])
    assert done.exit_code in (126, 127)
    assert done.stderr.startswith("cannot run ")
    assert len(done.stderr) < 2000
    await assert_lives(high, boot)


async def test_a_long_operand_that_leads_out_is_a_refusal_on_record(new_box: BoxFactory) -> None:
    box = await new_box("low")
    boot = boot_of(box)
    (box.workspace / "out").symlink_to("/etc")
    path = "./" * 1900 + "out/passwd"
    with pytest.raises(PermissionDeniedError) as refusal:
        await box.run(argv=["cat", path])
    assert refusal.value.fields["rule"] == "path-outside-workspace"
    assert len(refusal.value.detail) < 1000
    (event,) = await box.events("command.exit")
    assert event["decision"] == "deny"
    await assert_lives(box, boot)
    await box.close()


# Words that once broke some program.
WORDS = ["", " ", ".", "-", "--", "/", "\n", "\x7f", "é" * 1900, "🐎" * 900, "../" * 500, "a" * 255]
WORDS += ["a" * 256, "x/" * 2047, "%s%n", "$(id)", "*", "\\", "'", '"', "‮", "NaN", "1e999", "-1"]


async def test_commands_of_any_words(new_box: BoxFactory) -> None:
    chance = random.Random(9)
    for level in ("low", "medium", "high"):
        box = await new_box(level)
        boot = boot_of(box)
        for _ in range(60):
            first = chance.choice([*WORDS, "ls", "cat", "cat"])
            argv = [first, *chance.choices(WORDS, k=chance.randint(0, 5))]
            more = {} if chance.random() < 0.5 else {"cwd": chance.choice(WORDS)}
            try:
                outcome = await box.run(argv=argv, timeout=10, **more)
            except (PermissionDeniedError, ValidationError):
                continue
            assert isinstance(outcome, Outcome)
        await assert_lives(box, boot)
        await box.close()


@attempt("arguments of execve that are not addresses", layer="agent", levels="high")
async def test_calls_with_any_addresses(high: Box) -> None:
    """Each call fails by itself; the calling process and the agent continue."""
    boot = boot_of(high)
    done = await high.python(EXECS)
    failed = done.value
    assert failed.pop("kernel") == 14  # EFAULT
    assert set(failed) == {"strings", "tables", "ends"}
    # EFAULT, ENOENT, ENAMETOOLONG, E2BIG, ENOEXEC, EACCES or ENOTDIR: no call succeeded
    assert set().union(*failed.values()) <= {14, 2, 36, 7, 8, 13, 20}
    await assert_lives(high, boot)


EXECS = r"""
import ctypes, json, mmap, random
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.argtypes = [ctypes.c_long] + [ctypes.c_uint64] * 3
def execve(path, argv, env=0):
    ctypes.set_errno(0)
    assert libc.syscall(NUMBER, path, argv, env) == -1
    return ctypes.get_errno()
import os
NUMBER = {"x86_64": 59, "aarch64": 221}[os.uname().machine]
# A mapping with nothing behind it: its end is the end of what can be read.
size = 8192
pages = mmap.mmap(-1, size + 4096)
start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
assert libc.munmap(ctypes.c_void_p(start + size), 4096) == 0
end = start + size
chance = random.Random(3)
missing = ctypes.create_string_buffer(b"/nothing/here")
wild = [0, 1, 8, 4095, 4096, 2**31, 2**32, 2**47 - 1, 2**47, 2**63 - 1, 2**63, 2**64 - 4096,
        2**64 - 1, 0xFFFFFFFFFFFF0000, end - 1, end, end - 7, start, ctypes.addressof(missing)]
report = {"kernel": execve(0xFFFFFFFFFFFF0000, 0)}
report["strings"] = sorted({execve(path, 0) for path in wild})
tables = set()
for _ in range(300):
    table = (ctypes.c_uint64 * 80)(*chance.choices(wild, k=80))
    where = chance.choice([ctypes.addressof(table), *wild])
    tables.add(execve(chance.choice([ctypes.addressof(missing), *wild]), where))
report["tables"] = sorted(tables)
ctypes.memset(start, ord("a"), size)
ends = set()
for left in [1, 2, 7, 8, 9, 100, 4095, 4096, 4097, 8192]:
    ends.add(execve(end - left, end - left))
report["ends"] = sorted(ends)
print(json.dumps(report), flush=True)
os._exit(0)
"""


async def test_calls_whose_words_change_meanwhile(high: Box) -> None:
    """Another thread unmaps and remaps every address while it is read."""
    boot = boot_of(high)
    done = await high.python(CHANGING, timeout=60)
    assert json.loads(done.stdout) == {"made": 300}
    await assert_lives(high, boot)


CHANGING = r"""
import ctypes, json, os, threading
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.syscall.argtypes = [ctypes.c_long] + [ctypes.c_uint64] * 3
NUMBER = {"x86_64": 59, "aarch64": 221}[os.uname().machine]
at = libc.mmap(None, 4096, 3, 0x22, -1, 0)
over = False
def change():
    while not over:
        libc.mmap(at, 4096, 3, 0x32, -1, 0)
        ctypes.memset(at, ord("x"), 4000)
        libc.mmap(at, 4096, 0, 0x32, -1, 0)
        libc.mmap(at, 4096, 3, 0x32, -1, 0)
changing = threading.Thread(target=change)
changing.start()
made = 0
for _ in range(300):
    made += libc.syscall(NUMBER, at, at, 0) == -1
over = True
changing.join()
print(json.dumps({"made": made}))
"""


@pytest.mark.parametrize("number", [0, 65, 200, -1, 2**31, 10**30, "9", None])
async def test_a_signal_that_is_none_is_refused(high: Box, number: object) -> None:
    boot = boot_of(high)
    command = await high.start(argv=["sleep", "1000"], background=True)
    with pytest.raises(PaddockError):
        await high.ask("signal", command_id=command.id, signal=number)
    assert not command.ended
    await high.cancel(command)
    await assert_lives(high, boot)


async def test_commands_that_are_ended_at_once_end(sandbox_image: str) -> None:
    """They can be killed even while they switch to the session's user."""
    source = Path(guard_at_start.__file__).read_text()
    client = docker.APIClient(version="auto")
    container = client.create_container(
        sandbox_image,
        entrypoint=["timeout", "-s", "KILL", "60", "python3", "-c", source],
        host_config=client.create_host_config(
            cap_drop=["ALL"],
            cap_add=["SETUID", "SETGID"],
            network_mode="none",
            security_opt=["no-new-privileges"],
            binds=[AGENT_CODE],
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
    assert report == {"TERM": ["SIGTERM"], "KILL": ["SIGKILL"], "group": ["SIGUSR1"]}


def told(lost: Callable[[Connection], None], event: asyncio.Event) -> Callable[[Connection], None]:
    def tell(connection: Connection) -> None:
        lost(connection)
        event.set()

    return tell


async def test_what_a_control_plane_never_says_ends_its_connection_only(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("high")
    boot = boot_of(box)
    assert box.session.sandbox
    link = box.session.sandbox.link
    for data in (
        b"\xff" * 16,
        encode(notification("ack", {"seq": None})),
        encode(notification("ack", {})),
        encode(notification("exec", {})),
        encode(result(0, {})),
        encode({"jsonrpc": "2.0", "id": "x", "method": "stats"}),
        encode({"jsonrpc": "2.0", "id": 1, "method": ["stats"], "params": []}),
    ):
        connection = link._current
        assert connection is not None
        assert connection._transport is not None
        lost = asyncio.Event()
        with monkeypatch.context() as patch:
            patch.setattr(link, "lost", told(link.lost, lost))
            connection._transport.write(data)
            async with asyncio.timeout(PATIENCE):
                await lost.wait()
        await assert_lives(box, boot)
    await box.close()
