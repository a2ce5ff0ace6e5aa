"""Code in JavaScript, in a real sandbox of an image with Node."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from orchestrator.work.code.cell import CellStatus
from tests.integration.test_code import begin, printed, run
from tests.support.box import Box
from tests.support.plane import opened
from tests.support.programs import programs_image

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box() -> AsyncIterator[Box]:
    with programs_image() as image:
        async with opened(image=image) as plane:
            box = await Box.create(plane, "high")
            yield box
            await box.close()


async def test_names_stay_from_cell_to_cell(box: Box) -> None:
    first = await run(box, "let x = 6; function twice(n) { return 2 * n }", "javascript")
    assert (first.status, first.results) == ("ok", [])
    second = await run(box, "const y = await Promise.resolve(x * 7); y", "javascript")
    assert second.text == "42", second
    third = await run(box, "({found: [twice(y), x]})", "javascript")
    assert third.main is not None
    assert third.main.value == {"found": [84, 6]}
    assert third.execution_count == first.execution_count + 2


async def test_output_comes_in_its_streams(box: Box) -> None:
    code = (
        "console.log('out é'); console.error('bad');\n"
        "require('child_process').execSync('echo from a child', {stdio: 'inherit'}); display(1)"
    )
    found = await run(box, code, "javascript")
    assert (found.stdout, found.stderr) == ("out é\nfrom a child\n", "bad\n")
    assert [value.text for value in found.results] == ["1"]


async def test_an_exception_is_a_result_with_its_lines(box: Box) -> None:
    found = await run(box, "function f() {\n  null.x\n}\nf()", "javascript")
    assert (found.status, found.error is not None) == ("error", True)
    assert found.error is not None
    assert found.error.name == "TypeError"
    assert "at f (<cell " in found.error.traceback
    assert "node:" not in found.error.traceback
    wrong = await run(box, "let = ;", "javascript")
    assert wrong.error is not None
    assert wrong.error.name == "SyntaxError"


async def test_an_interrupted_loop_ends_and_names_stay(box: Box) -> None:
    await run(box, "var kept = 1", "javascript")
    for code in (
        "console.log('begun'); while (true) {}",
        "console.log('begun'); await new Promise((resolve) => setTimeout(resolve, 1e6))",
    ):
        cell = await begin(box, code, "javascript")
        await printed(cell)
        cell.stop(CellStatus.INTERRUPTED)
        end = await cell.done
        assert (end.status, end.lost) == (CellStatus.INTERRUPTED, False), code
    assert (await run(box, "kept", "javascript")).text == "1"


async def test_a_cell_that_takes_too_long_is_interrupted(box: Box) -> None:
    late = await run(box, "while (true) {}", "javascript", timeout=0.5)
    assert (late.status, late.lost) == ("timed_out", False)


async def test_a_node_that_ends_is_told(box: Box) -> None:
    found = await run(box, "process.exit(3)", "javascript")
    assert (found.status, found.lost) == ("died", True)
    after = await run(box, "typeof kept", "javascript")
    assert (after.text, after.restarted) == ("'undefined'", True)
