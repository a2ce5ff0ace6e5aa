"""Code in a real sandbox: cells, what comes of them, and what stops them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from api.views import code as views
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ValidationError
from orchestrator.work.code.cell import Cell, CellStatus
from orchestrator.work.code.cells import CodeRequest
from paddock.contract.code import CodeResult
from tests.support.box import PATIENCE, TESTER, Box

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(control_plane: ControlPlane) -> AsyncIterator[Box]:
    box = await Box.create(control_plane, "high")
    yield box
    await box.close()


async def begin(
    box: Box, code: str, language: str | None = None, timeout: float | None = None
) -> Cell:
    """Begins a cell in the language's own context."""
    plane = box.plane
    async with plane.contexts.turn(TESTER, box.session, None, language) as turn:
        return await plane.cells.begin(TESTER, box.session, turn, CodeRequest(code, timeout))


async def run(box: Box, code: str, language: str | None = None, **more: Any) -> CodeResult:
    """Runs a cell to its end."""
    cell = await begin(box, code, language, **more)
    async with asyncio.timeout(PATIENCE):
        return views.result(cell, await cell.done)


async def printed(cell: Cell) -> None:
    """Waits until the cell has printed something."""
    async with asyncio.timeout(PATIENCE):
        async for event in cell.follow(PATIENCE):
            if event is not None:
                return


async def test_python_keeps_names_and_shows_the_last_value(box: Box) -> None:
    first = await run(box, "import os\nx = 6\nprint('hello')\nos.system('echo from a child >&2')\n")
    assert (first.stdout, first.stderr, first.status) == ("hello\n", "from a child\n", "ok")
    second = await run(box, "await __import__('asyncio').sleep(0)\nx * 7")
    assert second.text == "42", second
    assert second.execution_count == first.execution_count + 1


async def test_an_exception_is_a_result(box: Box) -> None:
    found = await run(box, "def f():\n    1/0\nf()")
    assert found.status == "error"
    assert found.error is not None
    assert found.error.name == "ZeroDivisionError"
    assert "in f" in found.error.traceback
    assert "sandbox_agent" not in found.error.traceback


async def test_a_cell_that_takes_too_long_is_interrupted_and_names_stay(box: Box) -> None:
    await run(box, "kept = 1")
    late = await run(box, "import time\ntime.sleep(600)", timeout=0.5)
    assert (late.status, late.lost) == ("timed_out", False)
    assert (await run(box, "kept")).text == "1"


async def test_a_cell_that_ignores_interrupts_is_ended_with_its_context(box: Box) -> None:
    code = (
        "import signal, time\nsignal.signal(2, signal.SIG_IGN)\nkept = 1\nprint(1)\ntime.sleep(600)"
    )
    cell = await begin(box, code)
    await printed(cell)
    cell.stop(CellStatus.INTERRUPTED)
    end = await cell.done
    assert (end.status, end.lost) == (CellStatus.INTERRUPTED, True)
    after = await run(box, "kept")
    assert after.restarted
    assert after.error is not None
    assert after.error.name == "NameError"


async def test_a_program_that_ends_is_told(box: Box) -> None:
    found = await run(box, "import os\nos._exit(3)")
    assert (found.status, found.lost) == ("died", True)


async def test_values_have_their_forms(box: Box) -> None:
    code = (
        "class Shown:\n"
        "    def _repr_html_(self): return '<b>x</b>'\n"
        "    def _repr_json_(self): return {'a': [1, None]}\n"
        "    def _repr_png_(self): return b'\\x89PNG'\n"
        "display(1)\nShown()"
    )
    found = await run(box, code)
    assert [value.main for value in found.results] == [False, True]
    main = found.main
    assert main is not None
    assert (main.html, main.value, main.png_bytes) == ("<b>x</b>", {"a": [1, None]}, b"\x89PNG")


async def test_much_output_is_cut(box: Box) -> None:
    found = await run(box, "print('x' * 3_000_000)\n'after'")
    assert len(found.stdout) == 1024 * 1024
    assert found.cut_bytes == 3_000_001 - 1024 * 1024
    assert found.text == "'after'"


async def test_an_unknown_language_is_refused_with_those_that_there_are(box: Box) -> None:
    with pytest.raises(ValidationError, match="python") as refused:
        await run(box, "1", "cobol")
    assert refused.value.fields["field"] == "language"


async def test_bash_keeps_its_directory_and_its_variables(box: Box) -> None:
    first = await run(box, "mkdir -p d && cd d && x=5; cat <<E\nhere $x\nE", "bash")
    assert (first.stdout, first.status) == ("here 5\n", "ok")
    second = await run(box, "echo $x ${PWD##*/}; false", "bash")
    assert second.stdout == "5 d\n"
    assert second.error is not None
    assert second.error.name == "ExitCode"
    late = await run(box, "f() { sleep 600; echo inner; }; f; echo after", "bash", timeout=0.5)
    assert (late.status, late.lost, late.stdout) == ("timed_out", False, "")
    assert (await run(box, "echo $x", "bash")).stdout == "5\n"
    over = await run(box, "exit 3", "bash")
    assert (over.status, over.lost) == ("died", True)
    assert over.error is not None
    assert over.error.name == "ShellEnded"
    assert (await run(box, "echo again", "bash")).restarted
