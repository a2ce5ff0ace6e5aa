"""Every program that a command executes is recorded before it starts."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import AuditUnavailableError
from orchestrator.host.link.messages import AgentEvent
from orchestrator.rules.policy import levels as level_files
from sandbox_agent.decide.protocol import MOST_UNACKNOWLEDGED_EXECS
from tests.conftest import BoxFactory
from tests.support.attempts import attempt
from tests.support.box import PATIENCE, Box, ended
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")
PACKAGED = Path(level_files.__file__).with_name("levels")


async def executed(box: Box, command_id: str) -> list[dict[str, Any]]:
    events = await box.events("command.exec")
    return [event for event in events if event["args"]["command_id"] == command_id]


async def test_the_whole_tree_is_recorded_in_order(high: Box) -> None:
    done = await high.bash(
        "(/bin/echo one; exec python3 -c 'pass') & wait; ln -s /bin/echo mine; ./mine"
    )
    events = await executed(high, done.command.id)
    assert [(event["args"]["argv"][0], event["args"]["real_path"]) for event in events] == [
        ("/bin/echo", "/usr/bin/echo"),
        ("python3", "/usr/bin/python3.11"),
        ("ln", "/usr/bin/ln"),
        ("./mine", "/usr/bin/echo"),
    ]
    assert all(event["decision"] is None for event in events)
    starts, ends = await high.events("command.start"), await high.events("command.exit")
    seqs = [event["seq"] for event in (starts[-1], *events, ends[-1])]
    assert seqs == sorted(seqs)


async def test_the_command_itself_is_not_recorded_twice(high: Box) -> None:
    done = await high.run(argv=["true"])
    assert await executed(high, done.command.id) == []


async def test_what_is_not_there_is_not_recorded(high: Box) -> None:
    done = await high.bash("./nothing; /bin/missing; true")
    assert await executed(high, done.command.id) == []


async def test_odd_words_are_recorded_escaped_and_shortened(high: Box) -> None:
    script = r"/bin/true $'\xff\x80' é \"\" " + "x" * 5000 + " $(seq 100)"
    done = await high.bash(script)
    (event,) = [
        e for e in await executed(high, done.command.id) if e["args"]["path"] == "/bin/true"
    ]
    argv = event["args"]["argv"]
    assert argv[1:4] == ["\\xff\\x80", "é", '""']
    script_words = [*argv[1:4], "x" * 5000, *(str(number) for number in range(1, 101))]
    whole = "".join(f"{word}\0" for word in ("/bin/true", *script_words)).encode()
    assert argv[4].startswith("x" * 900)
    assert argv[4].endswith(" more bytes]")
    assert (len(argv), len(argv[4])) == (64, 1001)
    args = event["args"]
    assert (args["argv_words"], args["argv_bytes"]) == (105, len(whole))
    assert args["argv_sha256"] == hashlib.sha256(whole).hexdigest()


async def test_a_program_by_descriptor_is_recorded_by_its_path(high: Box) -> None:
    done = await high.python("import os; os.execve(os.open('/bin/true', os.O_RDONLY), ['x'], {})")
    (event,) = await executed(high, done.command.id)
    assert event["args"]["real_path"] == "/usr/bin/true"


# Spellings of paths; descriptor 9 is `true`, and `mine` is a link to the shell.
SPELLINGS = {
    "/dev/fd/9": "/usr/bin/true",
    "//proc/self/fd/9": "/usr/bin/true",
    "/proc/../proc/self/fd/9": "/usr/bin/true",
    "/proc/thread-self/fd/9": "/usr/bin/true",
    "nine": "/usr/bin/true",
    "/proc/self/root/bin/true": "/usr/bin/true",
    "/proc/self/cwd/mine": "/usr/bin/bash",
    "mine": "/usr/bin/bash",
    "oneself": "/usr/bin/python3.11",
    "//proc/self/exe": "/usr/bin/python3.11",
}
SPELLED = """
import os, sys
os.mkdir("sub")
os.chdir("sub")
os.symlink("/bin/bash", "mine")
os.symlink("/proc/self/exe", "oneself")
os.symlink("/dev/fd/9", "nine")
os.dup2(os.open("/bin/true", os.O_RDONLY), 9)
for path in sys.argv[1:]:
    if os.fork() == 0:
        os.execve(path, ["x", "-c", ""], {})
    assert os.wait()[1] == 0, path
"""


@attempt("programs by paths that mean something else to the agent", layer="agent", levels="high")
async def test_a_path_is_recorded_as_what_it_is_to_its_caller(new_box: BoxFactory) -> None:
    box = await new_box("high")
    done = await box.python(SPELLED, *SPELLINGS)
    assert (done.exit_code, done.stderr) == (0, "")
    events = await executed(box, done.command.id)
    assert {event["args"]["path"]: event["args"]["real_path"] for event in events} == SPELLINGS
    assert {event["args"]["by"] for event in events} == {"/usr/bin/python3.11"}
    assert {event["error"] for event in events} == {None}
    await box.close()


async def test_what_no_path_names_is_unknown(new_box: BoxFactory) -> None:
    box = await new_box("high")
    source = """
import os, shutil
fd = os.memfd_create("/usr/bin/true", 0)
with open("/bin/true", "rb") as source, open(fd, "wb", closefd=False) as target:
    shutil.copyfileobj(source, target)
os.execve(f"/proc/self/fd/{fd}", ["true"], {})
"""
    done = await box.python(source)
    (event,) = await executed(box, done.command.id)
    assert (event["args"]["real_path"], event["decision"]) == ("unknown", None)
    await box.close()


# Another process changes the path in memory continuously, so the kernel may execute another file
# than the supervisor examined. Both files are shells that execute one more program.
CHANGING = r"""
import ctypes, mmap, os, shutil, signal
for name in ("aa", "bb"):
    shutil.copy("/bin/dash", name)
libc = ctypes.CDLL(None)
shared = mmap.mmap(-1, 4096)
shared[:5] = b"./aa\0"
at = ctypes.addressof(ctypes.c_char.from_buffer(shared))
changing = os.fork()
if changing == 0:
    while True:
        ctypes.memset(at + 2, ord("b"), 2)
        ctypes.memset(at + 2, ord("a"), 2)
for number in range(150):
    child = os.fork()
    if child == 0:
        words = [b"sh", b"-c", b"exec /bin/true %d" % number]
        libc.execve(ctypes.c_void_p(at), (ctypes.c_char_p * 4)(*words, None), None)
        os._exit(1)
    os.waitpid(child, 0)
os.kill(changing, signal.SIGKILL)
"""


@attempt("a path that changes while it is looked at", layer="agent", levels="high")
async def test_what_runs_instead_of_what_is_on_record_is_told(new_box: BoxFactory) -> None:
    box = await new_box("high")
    done = await box.python(CHANGING, timeout=60)
    assert done.stderr == ""
    events = await executed(box, done.command.id)
    recorded: dict[str, str] = {}
    differing = followed = 0
    for event in events:
        argv, by = event["args"]["argv"], event["args"]["by"]
        if not argv:
            # On a busy machine, the second look came before the next program.
            assert event["error"] == f"it runs {by}, not the program on record"
            continue
        if argv[0] == "sh":
            recorded[argv[2].split()[-1]] = event["args"]["real_path"]
            continue
        followed += 1
        differs = by != recorded[argv[1]]
        differing += differs
        assert event["error"] == (
            f"its caller runs {by}, not the program on record" if differs else None
        )
    print(f"{differing} of {followed} were exchanged")
    assert followed > 0
    await box.close()


# The same, but the shells execute nothing more and wait for the end of their input.
STAYING = CHANGING.replace("exec /bin/true %d", "read line; : %d").replace(
    "    os.waitpid(child, 0)", "    children.append(child)"
)
STAYING = STAYING.replace("for number in range(150)", "children = []\nfor number in range(30)")
# A path that was read while it changed may name no file, so it is tried again.
STAYING = STAYING.replace("        libc.execve(", "        while True: libc.execve(")
STAYING += """
for number, child in enumerate(children):
    while "python" in (exe := os.readlink(f"/proc/{child}/exe")):
        pass
    print(number, exe, flush=True)
print("all", flush=True)
for child in children:
    os.waitpid(child, 0)
"""


@attempt("a program exchanged for one that executes no other", layer="agent", levels="high")
async def test_what_runs_on_instead_of_what_is_on_record_is_told(new_box: BoxFactory) -> None:
    box = await new_box("high")
    command = await box.start(argv=["python3", "-c", STAYING], stdin_open=True, timeout=60)
    said = await box.printed(command, "all")
    ran = dict(line.split() for line in said.splitlines()[:-1])
    recorded: dict[str, str] = {}
    different, told = [""], list[str]()
    position = 0
    async with asyncio.timeout(PATIENCE):
        while len(recorded) < len(ran) or len(told) < len(different):
            position = await box.plane.ledger.wait(box.session.key, position)
            events = [event["args"] for event in await executed(box, command.id)]
            recorded = {
                args["argv"][2].split()[-1]: args["real_path"] for args in events if args["argv"]
            }
            different = [exe for number, exe in ran.items() if recorded.get(number) != exe]
            told = [args["real_path"] for args in events if not args["argv"]]
    print(f"{len(different)} of {len(ran)} were exchanged")
    await box.feed(command, b"", close=True)
    assert (await box.finish(command)).exit_code == 0
    assert sorted(told) == sorted(different)
    assert len(ran) == 30
    await box.close()


async def test_many_processes_at_once_are_all_recorded(high: Box) -> None:
    script = "for i in $(seq 300); do /bin/true $i & done; wait"
    done = await high.bash(script, timeout=60)
    numbers = {
        event["args"]["argv"][1]
        for event in await executed(high, done.command.id)
        if event["args"]["path"] == "/bin/true"
    }
    assert numbers == {str(number) for number in range(1, 301)}


async def test_a_background_command_that_is_killed_takes_its_waiting_calls_along(high: Box) -> None:
    command = await high.start(argv=["bash", "-c", "while :; do /bin/true; done"], background=True)
    await high.event("command.exec")
    ended = await high.cancel(command)
    assert ended.exit["reason"] == "client_gone"
    assert (await high.bash("echo alive")).stdout == "alive\n"


# Executions that are not durable yet

# Each program creates a file, so its runs can be counted without the record.
MANY = "for i in $(seq 100); do /usr/bin/touch made-$i; done; echo all"


def made(box: Box) -> int:
    return len(list(box.workspace.glob("made-*")))


async def stalled(
    box: Box, monkeypatch: pytest.MonkeyPatch, *, lost: bool = False
) -> asyncio.Event:
    """Nothing of the sandbox is recorded before the returned event is set, or ever if `lost`."""
    assert box.session.sandbox is not None
    link, go_on = box.session.sandbox.link, asyncio.Event()
    record = link._on_event

    async def wait(event: AgentEvent) -> None:
        await go_on.wait()
        if lost:
            raise AuditUnavailableError("no room on the disk")
        await record(event)

    monkeypatch.setattr(link, "_on_event", wait)
    return go_on


async def buffered(box: Box, number: int) -> None:
    """Waits until that number of the agent's events is not durable yet."""
    async with asyncio.timeout(PATIENCE):
        while (await box.ask("stats"))["buffered_events"] != number:
            pass


async def test_next_to_nothing_is_executed_before_it_is_durable(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("high")
    go_on = await stalled(box, monkeypatch)
    commands = [await box.start(argv=["bash", "-c", f"mkdir {n}; cd {n}; {MANY}"]) for n in "ab"]
    await buffered(box, 2 * MOST_UNACKNOWLEDGED_EXECS)
    for _ in range(20):
        assert (await box.ask("stats"))["buffered_events"] == 2 * MOST_UNACKNOWLEDGED_EXECS
    # Of each command, one execution was `mkdir` and one was `seq`.
    for name in "ab":
        directory = box.workspace / name
        assert len(list(directory.iterdir())) <= MOST_UNACKNOWLEDGED_EXECS - 2
    go_on.set()
    for command in commands:
        assert (await box.finish(command)).stdout == "all\n"
        assert len(await executed(box, command.id)) == 102
    await box.close()


@attempt("programs that run while the agent is made to crash", layer="agent", levels="high")
async def test_after_a_crash_the_record_says_what_it_may_miss(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("high")
    go_on = await stalled(box, monkeypatch, lost=True)
    command = await box.start(argv=["bash", "-c", MANY], background=True)
    await buffered(box, MOST_UNACKNOWLEDGED_EXECS)
    # One execution was `seq`.
    assert made(box) < MOST_UNACKNOWLEDGED_EXECS
    agent = box.agent()
    agent.kill()
    await ended(agent)
    go_on.set()
    gap = await box.event("audit.gap")
    assert gap["args"]["commands"] == [command.id]
    assert f"up to {MOST_UNACKNOWLEDGED_EXECS} programs" in gap["error"]
    assert "may be missing" in gap["error"]
    assert await executed(box, command.id) == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shells(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    """The string rules of low and medium allow a shell; medium records no executions."""
    directory = tmp_path_factory.mktemp("levels")
    for name in ("low", "medium"):
        text = (PACKAGED / f"{name}.toml").read_text().replace('"pwd",', '"pwd", "bash",', 1)
        if name == "medium":
            text = text.replace("paths = true", "record_execs = false\npaths = true")
        (directory / f"{name}.toml").write_text(text)
    async with opened(image=sandbox_image, levels_dir=directory) as plane:
        yield plane


async def test_what_the_kernel_refuses_is_a_refusal_on_record(shells: ControlPlane) -> None:
    low = await Box.create(shells, "low")
    done = await low.bash("/bin/true; echo $?; /bin/pwd; cp /bin/bash mine; chmod +x mine; ./mine")
    assert done.stdout == "126\n/workspace\n"
    assert "Permission denied" in done.stderr
    events = await executed(low, done.command.id)
    decisions = {event["args"]["real_path"]: event["decision"] for event in events}
    assert decisions["/usr/bin/true"] == "deny"
    assert decisions["/usr/bin/pwd"] is None
    assert decisions["/usr/bin/chmod"] == "deny"  # so `mine` never became executable
    (refused,) = [event for event in events if event["args"]["real_path"] == "/usr/bin/true"]
    assert refused["rule"] == "exec-allowlist"
    assert "/bin/true" in str(refused["error"])


async def test_it_can_be_switched_off(shells: ControlPlane) -> None:
    medium = await Box.create(shells, "medium")
    done = await medium.bash("/bin/pwd; /bin/true")
    assert done.stdout == "/workspace\n"
    assert "Permission denied" in done.stderr
    assert await medium.events("command.exec") == []


async def test_the_same_program_again_and_again_is_counted(high: Box) -> None:
    done = await high.bash("for i in $(seq 1500); do /bin/true; done; /bin/true last", timeout=60)
    events = [
        event
        for event in await executed(high, done.command.id)
        if event["args"]["path"] == "/bin/true"
    ]
    assert sum(event["args"].get("repeats", 1) for event in events) == 1501
    # Below 50 per second, executions are recorded one by one, which happens on a busy machine.
    seconds = done.exit["duration_ms"] / 1000
    print(f"{len(events)} events for 1501 programs in {seconds:.0f} s")
    assert len(events) <= 200 + 60 * (seconds + 1)
    assert events[-1]["args"]["argv"] == ["/bin/true", "last"] or "repeats" in events[-1]["args"]
