"""Lines of every length are sent once and answered with exactly their output.

By default, the tests use the lengths around which terminals and programs wrap, scroll or cut, and
a stride between them. With PADDOCK_EVERY_LENGTH=1, they use all lengths from 1 to 4,094.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PermissionDeniedError
from sandbox_agent.pty.device import MOST_COOKED_BYTES
from tests.support.box import Box
from tests.support.real_tool import RealTool

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONGEST = 4094
# Characters of one to four bytes; some of the bytes would be control characters alone.
CHARACTERS = ("a", "é", "世", "🐘")
# Usual widths of terminals and sizes of buffers, in bytes.
_EDGES = (80, 132, 200, 400, 1024, 4096)
_STRIDE = 257
# The record of a terminal has a limit, and contains long lines more than once.
_MOST_LINES = 200


class Program(NamedTuple):
    """A tool, and for a repeated character the line that it reads and its answer.

    `cooked`: the kernel edits the tool's lines, and would cut longer ones.
    """

    tool: str
    line: Callable[[str, int], str]
    answer: Callable[[str, int], str]
    cooked: bool = False


def _redis(character: str, times: int) -> str:
    shown = character
    if not character.isascii():
        shown = "".join(f"\\x{byte:02x}" for byte in character.encode())
    return f'"{shown * times}"'


PROGRAMS = (
    Program(
        "loose-psql",
        lambda char, n: f"INSERT INTO lines VALUES ('{char}', {n}, '{char * n}');",
        lambda _char, _n: "INSERT 0 1",
    ),
    Program("loose-sqlite3", lambda char, n: f"SELECT '{char * n}';", lambda char, n: char * n),
    Program(
        "readline-python3", lambda char, n: f"'{char * n}' == '{char}' * {n}", lambda *_: "True"
    ),
    Program("loose-gdb", lambda char, n: f"echo {char * n}\\n", lambda char, n: char * n),
    Program(
        "loose-python3",
        lambda char, n: f"'{char * n}' == '{char}' * {n}",
        lambda *_: "True",
        cooked=True,
    ),
    Program(
        "loose-node",
        lambda char, n: f"'{char * n}' === '{char}'.repeat({n})",
        lambda *_: "true",
        cooked=True,
    ),
    Program("loose-redis-cli", lambda char, n: f'ECHO "{char * n}"', _redis, cooked=True),
)


def lengths(program: Program, character: str) -> Iterator[int]:
    """Numbers of repetitions that give lines the lengths to be tested."""
    if os.environ.get("PADDOCK_EVERY_LENGTH"):
        yield from range(1, LONGEST + 1)
        return
    size = len(character.encode())
    around = len(program.line(character, 1).encode()) - size
    chosen = {*range(1, LONGEST, _STRIDE), 1, 2, LONGEST}
    for edge in _EDGES:
        for unit, taken in ((size, around), (1, 0)):
            chosen.update((edge - taken) // unit + more for more in (-1, 0, 1))
    yield from sorted(length for length in chosen if 1 <= length <= LONGEST)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(plane: ControlPlane) -> AsyncIterator[Box]:
    box = await Box.create(plane, "debug", mounts=("postgresql", "redis"))
    yield box
    await box.close()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.tool)
async def test_each_line_is_answered_once_and_rightly(box: Box, program: Program) -> None:
    tool = await RealTool.open(box, program.tool)
    if program.tool == "loose-psql":
        await tool.said("any", "CREATE TABLE lines (item text, times integer, body text);")
    sent = tried = 0
    for character in CHARACTERS:
        for times in lengths(program, character):
            line = program.line(character, times)
            tried += 1
            if tried % _MOST_LINES == 0:
                await tool.close()
                tool = await RealTool.open(box, program.tool)
            if program.cooked and len(line.encode()) >= MOST_COOKED_BYTES:
                with pytest.raises(PermissionDeniedError) as refused:
                    await tool.do("any", line)
                assert refused.value.fields["rule"] == "too-long"
                continue
            assert await tool.said("any", line) == program.answer(character, times), times
            sent += 1
    if program.tool == "loose-psql":
        right = "SELECT count(*), count(*) FILTER (WHERE body = repeat(item, times)) FROM lines;"
        said = (await tool.said("any", right)).splitlines()[2]
        assert [int(count) for count in said.split("|")] == [sent, sent]
    await tool.close()


async def test_the_longest_line_of_all(box: Box) -> None:
    tool = await RealTool.open(box, "readline-python3")
    for character, times in (("世", 8150), ("🐘", 7100)):
        line = f"len('{character * times}')"
        assert await tool.said("any", line) == str(times)
    with pytest.raises(PermissionDeniedError, match="28672"):
        await tool.do("any", f"len('{'🐘' * 7200}')")
    await tool.close()
