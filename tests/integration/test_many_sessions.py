"""The benchmark of many sessions, with few of them: all occupy the same, and free it."""

from contextlib import closing

import pytest

from images.builder import build
from tests.bench.floors import Floors
from tests.bench.plane import measured_plane
from tests.bench.sessions import growth, lines


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    build(report=lambda _line: None)


async def test_each_session_occupies_the_same() -> None:
    async with measured_plane() as plane:
        with closing(Floors(await plane.image(), 1)) as floors:
            grown = await growth(plane, floors, (1, 3, 5))
    one, three, five = grown.costs
    assert (one.sessions, three.sessions, five.sessions) == (1, 3, 5)
    assert five.mounts - three.mounts == three.mounts - one.mounts > 0
    # A few descriptors for each, and those of the connections that clients keep.
    assert five.descriptors - one.descriptors < 30
    assert grown.spread.sessions == 5
    assert grown.closing.sessions == 4
    assert len(list(lines(grown))) == 5 + 1 + 3 + 1 + 3
