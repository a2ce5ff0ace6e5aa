"""A cell that writes to its runner's own pipe: what it sends is bounded, and ends only itself."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from orchestrator.work.code.cell import CellText
from sandbox_agent.decide import code_frames
from tests.conftest import BoxFactory
from tests.integration.test_code import begin, run
from tests.support.box import Box

pytestmark = pytest.mark.asyncio(loop_scope="module")

# The runner of this image executes Python in its own process, so that a cell finds its pipe.
PIPE = """
import gc, os
pipe = next(each for each in gc.get_objects() if type(each).__name__ == "Channel")._writes
def send(data):
    while data:
        data = data[os.write(pipe, data):]
"""
MOST_EVENTS = 10_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(new_box: BoxFactory) -> Box:
    return await new_box("high")


@pytest_asyncio.fixture(loop_scope="module")
async def box(shared: Box) -> AsyncIterator[Box]:
    """Whatever a cell did, other contexts keep their names, and its own runs cells again."""
    await run(shared, "kept=1", "bash")
    yield shared
    assert (await run(shared, "echo $kept", "bash")).stdout == "1\n"
    assert (await run(shared, "6 * 7")).text == "42"
    assert shared.session.live


@pytest.mark.parametrize("size", [0, 1, 60_000])
async def test_endless_frames_are_cut_and_stopped(box: Box, size: int) -> None:
    frames = f"b'out - {size}\\n' + b'x' * {size}"
    cell = await begin(box, f"{PIPE}frames = ({frames}) * 100\nwhile True: send(frames)", None, 2.0)
    end = await cell.done
    assert end.status in ("timed_out", "died")
    printed = [event for event in cell.events if isinstance(event, CellText)]
    assert sum(len(event.text) for event in printed) <= code_frames.MOST_PRINTED_BYTES
    assert len(cell.events) <= MOST_EVENTS + 1  # and how it ended
    assert end.lost


@pytest.mark.parametrize(
    "sent",
    [
        "b'x' * 20_000_000",
        "b'\\n'",
        "b'out - 99999999\\n' + b'x' * 1_000_000",
        "b'out - -1\\n'",
        "b'part text/plain 1\\nx' * 1000",
        "b'part text/plain 4000000\\n' + b'x' * 4_000_000",
    ],
    ids=["long line", "empty line", "long frame", "negative", "many parts", "large parts"],
)
async def test_what_is_no_frame_ends_the_context(box: Box, sent: str) -> None:
    found = await run(box, f"{PIPE}for _ in range(3): send({sent})\nimport time; time.sleep(600)")
    assert (found.status, found.lost) == ("died", True)
    assert found.error is not None
    assert found.error.name == "RunnerError"
    after = await run(box, "pipe")
    assert after.restarted
    assert after.error is not None
    assert after.error.name == "NameError"


@pytest.mark.parametrize("json", ["b'[' * 200_000", 'b\'{"a":1,"a":2}\'', "b'NaN'", "b'\\xff'"])
async def test_wrong_json_is_left_out(box: Box, json: str) -> None:
    for kind in ("application/json", code_frames.TABLE_TYPE):
        code = f"{PIPE}data = {json}\nsend(b'part {kind} %d\\n' % len(data) + data)\n"
        found = await run(box, code + "send(b'display - 0\\n')\n'after'")
        assert (found.status, found.text) == ("ok", "'after'")
        shown = found.results[0]
        assert (shown.main, shown.value, shown.data, shown.other) == (False, None, None, None)


async def test_the_end_of_another_cell_ends_none(box: Box) -> None:
    found = await run(box, f"{PIPE}send(b'end 0123456789abcdef 1\\n7')\nprint('on')\n'after'")
    assert (found.status, found.stdout, found.text) == ("ok", "on\n", "'after'")
