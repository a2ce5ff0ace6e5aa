"""The manifest of gdb with the real program, at a level that allows ptrace."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PermissionDeniedError
from tests.support.box import Box, inner_pid, status_of
from tests.support.limits import PROGRAM_SECONDS
from tests.support.real_tool import RealTool

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOURCE = Path(__file__).parent / "programs" / "counter.c"
ESCAPES = (
    "shell id",
    "!id",
    "!",
    "make",
    "pipe info files | id",
    "| info files | id",
    "python print(1)",
    "python-interactive",
    "guile",
    "source x",
    "attach 1",
    "target remote | id",
    "target remote example.org:1",
    "target exec /bin/sh",
    "dump memory /workspace/x 0 1",
    "restore x",
    "generate-core-file /workspace/x",
    "set exec-wrapper id",
    "set environment LD_PRELOAD x",
    "set args x",
    "set logging file /workspace/x",
    "set auto-load on",
    "set startup-with-shell on",
    "run > /workspace/x",
    "run `id`",
    "start; id",
    'print system("id")',
    "print $_shell(1)",
    "print total = 1",
    "call add(1)",
    "compile code 1",
    "break add if add(1)",
    "commands",
    "define x",
    "list x | id",
    "info proc mappings",
    "file /bin/sh",
    "file ../x",
    "exec-file /bin/sh",
    "symbol-file /etc/passwd",
    "add-symbol-file x",
    "edit",
    "save breakpoints /workspace/x",
    "tui enable",
    "x/s 0",
)
COMMANDS = ("load", "info", "backtrace", "list", "print", "break", "step", "run", "continue")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The program with its symbols, linked statically, so that it needs nothing in the sandbox."""
    target = tmp_path_factory.mktemp("program") / "counter"
    subprocess.run(
        ["gcc", "-g", "-O0", "-static", "-o", target, SOURCE], check=True, timeout=PROGRAM_SECONDS
    )
    return target.read_bytes()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(plane: ControlPlane, program: bytes) -> Box:
    box = await Box.create(plane, "debug")
    await box.write("counter", program)
    assert (await box.bash("chmod +x counter")).exit_code == 0
    return box


@pytest_asyncio.fixture(loop_scope="module")
async def gdb(box: Box) -> AsyncIterator[RealTool]:
    tool = await RealTool.open(box, "gdb")
    await tool.said("load", "file counter")
    yield tool
    await tool.close()


async def test_a_program_is_debugged(gdb: RealTool) -> None:
    assert "Breakpoint 1" in await gdb.said("break", "break add")
    assert "add (amount=3)" in await gdb.said("run", "run")
    assert "in main ()" in await gdb.said("backtrace", "bt")
    assert await gdb.said("print", "print amount") == "$1 = 3"
    await gdb.said("step", "up")
    assert await gdb.said("print", "print/x corner.y") == "$2 = 0x4"
    assert await gdb.said("info", "info locals") == "corner = {x = 3, y = 4}"
    assert "rip" in await gdb.said("info", "info registers")
    assert "add (amount=4)" in await gdb.said("continue", "continue")
    assert "Value returned is $3 = 7" in await gdb.said("step", "finish")
    assert await gdb.state() == "running"


async def test_changing_the_program_needs_a_person(gdb: RealTool) -> None:
    await gdb.said("break", "break add")
    await gdb.said("run", "run")
    line = "set variable total = 10"
    assert (await gdb.do("set", line)).status == "pending"
    assert await gdb.said("print", "print total") == "$1 = 0"
    assert await gdb.decide("approve") == line
    await gdb.do("set", line)
    assert await gdb.said("print", "print total") == "$2 = 10"


async def test_the_program_ends_with_its_terminal(box: Box) -> None:
    gdb = await RealTool.open(box, "gdb")
    await gdb.said("load", "file counter")
    await gdb.said("break", "break add")
    await gdb.said("run", "run")
    assert "counter" in {process.name() for process in box.processes()}
    await gdb.close()
    assert box.processes() == []


async def test_no_way_out_reaches_gdb(gdb: RealTool) -> None:
    for text in ESCAPES:
        for command in COMMANDS:
            await gdb.refuses(command, text)


async def test_only_what_it_started_can_be_traced(box: Box) -> None:
    other = await box.start("cat", stdin="up", stdin_open=True)
    await box.printed(other, "up")
    waiting = box.process(["cat"])
    guard = waiting.parent()
    assert guard is not None
    gdb = await RealTool.open(box, "loose-gdb")
    for process in (box.agent(), guard, waiting):
        said = await gdb.said("any", f"attach {inner_pid(process)}")
        assert "Operation not permitted" in said
        assert status_of(process)["TracerPid"] == "0"
    for file in ("mem", "environ"):
        said = await gdb.said("any", f"shell head -c1 /proc/{inner_pid(waiting)}/{file}")
        assert "Permission denied" in said
    # Turning off address randomisation is denied, and gdb works without it.
    assert "not permitted" in await gdb.said("any", "shell setarch -R true")
    await gdb.said("any", "set disable-randomization on")
    await gdb.said("any", "file counter")
    await gdb.said("any", "break add")
    assert "Breakpoint 1, add" in await gdb.said("any", "run")
    await gdb.close()
    assert waiting.is_running()
    await box.cancel(other)


@pytest.mark.parametrize("level", ["medium", "high"])
async def test_a_level_without_ptrace_refuses_it(plane: ControlPlane, level: str) -> None:
    box = await Box.create(plane, level)
    with pytest.raises(PermissionDeniedError, match=r"gdb needs a level .* confinement\.ptrace"):
        await RealTool.open(box, "gdb")
    # The system call filter does not depend on the refusal.
    if level == "high":
        traced = await box.python("import ctypes; print(ctypes.CDLL(None).ptrace(0, 0, 0, 0))")
        assert traced.stdout == "-1\n"
    await box.close()
