"""An engine that is stopped and started again, as an upgrade does, under live sessions."""

import gc
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import docker
import pytest

from orchestrator.control_plane import ControlPlane
from paddock.contract.words import Status
from tests.chaos.own_engine import OwnEngine, own_engine
from tests.support.box import TESTER, Box
from tests.support.plane import opened
from tests.support.until import until

# Docker's client leaves a socket to the collector when an engine does not answer.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(autouse=True)
def left_sockets_are_collected() -> Iterator[None]:
    """They are collected here, where they are ignored, and not in the midst of a later test."""
    yield
    gc.collect()


@asynccontextmanager
async def house(image: str, *, live_restore: bool) -> AsyncIterator[tuple[OwnEngine, ControlPlane]]:
    """A control plane on an engine of its own; nothing of its sessions may be left at the end."""
    with tempfile.TemporaryDirectory(prefix="pdk") as name:
        async with (
            own_engine(Path(name) / "engine", image, live_restore=live_restore) as engine,
            opened(image=image, docker_host=engine.url) as plane,
        ):
            yield engine, plane


async def test_sandboxes_go_on_without_their_engine(sandbox_image: str) -> None:
    async with house(sandbox_image, live_restore=True) as (engine, plane):
        box = await Box.create(plane, "low")
        await box.write("log.txt")
        command = await box.start("tail -f log.txt")
        await engine.stop()
        assert (await box.run("pwd")).stdout == "/workspace\n"
        await engine.start()
        assert not command.ended
        await plane.sessions.pause(TESTER, box.session)
        await plane.sessions.resume(TESTER, box.session)
        assert (await box.run("pwd")).stdout == "/workspace\n"


async def test_sandboxes_that_end_with_their_engine_leave_workspaces(sandbox_image: str) -> None:
    async with house(sandbox_image, live_restore=False) as (engine, plane):
        box = await Box.create(plane, "low")
        await box.write("notes.txt", b"kept")
        await engine.stop()
        await engine.start()
        await until(lambda: box.session.status is Status.ABORTED)
        with closing(docker.APIClient(engine.url, version="auto")) as client:
            await until(lambda: client.containers(all=True) == [])
        kept = Path(box.session.root_dir) / "notes.txt"
        assert kept.read_text() == "kept"
