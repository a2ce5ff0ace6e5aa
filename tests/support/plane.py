"""Control planes over the real engine, checked for what they leave behind."""

import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from orchestrator.audit.verify import verify
from orchestrator.config import Settings
from orchestrator.control_plane import ControlPlane
from orchestrator.workspace import mounts
from tests.support.box import TESTER
from tests.support.leaks import NOTHING, left_behind, networks


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[ControlPlane]:
    """A control plane on a state directory of its own.

    It ends with every session closed, every chain whole, and nothing left on the host.
    """
    with tempfile.TemporaryDirectory(prefix="paddock-") as directory:
        state_dir = Path(directory) / "state"
        members = {"min_free_memory_bytes": 0, "min_free_disk_bytes": 0, **settings}
        plane = await ControlPlane.open(
            Settings(state_dir=state_dir, uid_base=uid_base(), **members)
        )
        try:
            yield plane
            for session in plane.sessions.list(TESTER):
                await plane.sessions.close(TESTER, session, purge=False)
            await _assert_whole(plane)
            assert left_behind(state_dir) == NOTHING
        finally:
            await plane.close()
            left = mounts.mounts_under(directory)
            for point in left:
                mounts.unmount(point)
        assert left == []
        assert networks(state_dir) == []


def uid_base() -> int:
    """A range of its own: processes of other control planes on this host are not counted here."""
    return 1_900_000_000 + secrets.randbelow(1000) * 65_536


async def _assert_whole(plane: ControlPlane) -> None:
    keys = await plane.database.read(
        lambda connection: connection.execute("SELECT DISTINCT session_key FROM events").fetchall()
    )
    for (key,) in keys:
        verdict = await verify(plane.database, key)
        assert verdict.ok, (key, verdict)
