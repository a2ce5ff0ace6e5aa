"""Code by a kernel of Jupyter, in the image `python`: pictures, tables and charts."""

import base64
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import docker
import pytest
import pytest_asyncio

from images.builder import build
from images.recipes import find_recipe
from tests.integration.test_code import run
from tests.support.box import Box
from tests.support.plane import opened

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    name = f"paddock/python:test-{secrets.token_hex(4)}"
    build(name, recipe=find_recipe("python"), report=lambda _line: None)
    yield name
    with closing(docker.APIClient(version="auto")) as client:
        client.remove_image(name, noprune=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(image: str) -> AsyncIterator[Box]:
    async with opened(image=image) as plane:
        box = await Box.create(plane, "high")
        yield box
        await box.close()


async def test_a_plot_is_a_picture_and_a_chart(box: Box) -> None:
    code = (
        "import matplotlib.pyplot as plt\nplt.plot([1, 2], label='z')\nplt.title('T')\nplt.show()"
    )
    (shown,) = (await run(box, code)).results
    assert shown.png is not None
    assert base64.b64decode(shown.png).startswith(b"\x89PNG")
    (axes,) = shown.chart["axes"]
    assert (axes["title"], axes["elements"][0]["label"]) == ("T", "z")
    assert axes["elements"][0]["y"] == [1, 2]


async def test_a_data_frame_is_a_table(box: Box) -> None:
    found = await run(box, "import pandas\npandas.DataFrame({'a': [1, 2], 'b': ['x', None]})")
    assert found.main is not None
    assert found.main.html is not None
    assert found.main.data["rows"] == [[1, "x"], [2, None]]
    assert (found.main.data["columns"], found.main.data["total"]) == (["a", "b"], 2)


async def test_an_interrupt_reaches_the_kernel_and_names_stay(box: Box) -> None:
    late = await run(box, "kept = 1\nimport time\ntime.sleep(600)", timeout=3.0)
    assert (late.status, late.lost) == ("timed_out", False)
    assert (await run(box, "kept")).text == "1"


async def test_a_kernel_that_dies_is_told(box: Box) -> None:
    found = await run(box, "import os\nos._exit(3)")
    assert found.error is not None
    assert found.error.name == "KernelEnded"
    assert (await run(box, "1")).restarted
