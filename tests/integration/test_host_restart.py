"""The host restarts in the middle: sessions end as crashes, and their workspaces go on."""

import asyncio
from pathlib import Path

import pytest

from images.builder import build
from tests.support import restarted_host
from tests.support.leaks import NONE_AHEAD, made_ahead, networks
from tests.support.server import serving


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    build(report=lambda _line: None)


@pytest.mark.parametrize("gone", [False, True], ids=["ended", "gone"])
async def test_sessions_crash_and_their_workspaces_go_on(tmp_path: Path, gone: bool) -> None:
    state = tmp_path / "state"
    async with serving(state, PADDOCK_MAX_ACTIVE=restarted_host.MAX_ACTIVE) as server:
        left = await asyncio.to_thread(restarted_host.leave, server.url, server.key, state)
        await server.kill()
        await asyncio.to_thread(restarted_host.restart, state, containers_gone=gone)
        await server.start()
        await asyncio.to_thread(restarted_host.check, server.url, server.key, state, left)
    assert made_ahead(state) == NONE_AHEAD
    assert networks(state) == []
