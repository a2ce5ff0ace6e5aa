"""A control plane over the real engine, shared by the tests of a module."""

import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from images.builder import build
from orchestrator.audit.verify import verify
from orchestrator.config import Settings
from orchestrator.control_plane import ControlPlane
from orchestrator.workspace import mounts
from tests.support.box import TESTER, Box
from tests.support.leaks import NOTHING, left_behind, networks

BoxFactory = Callable[..., Awaitable[Box]]


@pytest.fixture(scope="session")
def sandbox_image() -> str:
    """The sandbox image, built where something of it changed."""
    return build(report=lambda _line: None).name


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control_plane(sandbox_image: str) -> AsyncIterator[ControlPlane]:
    """It ends with every session closed, every chain whole, and nothing left on the host."""
    with tempfile.TemporaryDirectory(prefix="paddock-") as directory:
        settings = Settings(
            state_dir=Path(directory) / "state",
            image=sandbox_image,
            uid_base=_uid_base(),
            min_free_memory_bytes=0,
            min_free_disk_bytes=0,
        )
        plane = await ControlPlane.open(settings)
        try:
            yield plane
            for session in plane.sessions.list(TESTER):
                await plane.sessions.close(TESTER, session, purge=False)
            await _assert_whole(plane)
            assert left_behind(settings.state_dir) == NOTHING
        finally:
            await plane.close()
            left = mounts.mounts_under(directory)
            for point in left:
                mounts.unmount(point)
        assert left == []
        assert networks(settings.state_dir) == []


def _uid_base() -> int:
    """A range of its own: processes of other control planes on this host are not counted here."""
    return 1_900_000_000 + secrets.randbelow(1000) * 65_536


async def _assert_whole(plane: ControlPlane) -> None:
    keys = await plane.database.read(
        lambda connection: connection.execute("SELECT DISTINCT session_key FROM events").fetchall()
    )
    for (key,) in keys:
        verdict = await verify(plane.database, key)
        assert verdict.ok, (key, verdict)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def new_box(control_plane: ControlPlane) -> AsyncIterator[BoxFactory]:
    """Makes sessions: `await new_box("low", …)`; they are closed at the end of the module."""

    async def create(level: str, **members: object) -> Box:
        return await Box.create(control_plane, level, **members)

    yield create


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def low(new_box: BoxFactory) -> Box:
    """A session at low, shared by the module."""
    return await new_box("low")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def medium(new_box: BoxFactory) -> Box:
    """A session at medium, shared by the module."""
    return await new_box("medium")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def high(new_box: BoxFactory) -> Box:
    """A session at high, shared by the module."""
    return await new_box("high")
