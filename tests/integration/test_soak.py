"""The soak, for a few sessions: nothing fails, nothing stays behind."""

from pathlib import Path

import pytest

from images.builder import build
from tests.soak.run import ACTORS, soak


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    build(report=lambda _line: None)


async def test_a_short_soak_is_flat(tmp_path: Path) -> None:
    done = await soak(tmp_path / "state", 11, print, lives=2 * ACTORS)
    assert done.complaints == []
    end = done.end
    assert (end.containers, end.mounts, end.loop_devices, end.directories) == (0, 0, 0, 0)
