"""Control planes with the real engine, checked for leftovers."""

import functools
import itertools
import os
import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.check import Check
from orchestrator.host.workspace import slots
from orchestrator.host.workspace.mounts import mounts_under
from orchestrator.host.workspace.uid_range import is_free
from orchestrator.record.audit.verification import verify
from orchestrator.sandbox.egress.resolver import Resolver
from orchestrator.sandbox.sandboxes.warm_pool import WarmPool
from orchestrator.settings.groups.capacity import FIRST_UID
from orchestrator.settings.settings import Settings
from tests.support.box import TESTER
from tests.support.leaks import (
    NO_WORKSPACES,
    NONE_AHEAD,
    NOTHING,
    left_behind,
    links,
    made_ahead,
    networks,
    unmount_all,
    workspaces_left,
)
from tests.support.until import until


@contextmanager
def state(**settings: Any) -> Iterator[Settings]:
    """Settings with a separate state directory, for consecutive control planes.

    At the end they must have left nothing on the host.
    """
    with tempfile.TemporaryDirectory(prefix="paddock-") as directory:
        state_dir = Path(directory) / "state"
        members = {"min_free_memory_bytes": 0, "min_free_disk_bytes": 0, **settings}
        try:
            yield Settings(state_dir=state_dir, **members)
        finally:
            left, mounts = workspaces_left(state_dir), mounts_under(directory)
            ahead = made_ahead(state_dir)
            unmount_all(Path(directory))
        assert (left, ahead, mounts) == (NO_WORKSPACES, NONE_AHEAD, [])
        assert networks(state_dir) == []


@asynccontextmanager
async def running(
    settings: Settings, resolver: Resolver | None = None
) -> AsyncIterator[ControlPlane]:
    """A control plane with those settings; kept workspaces stay."""
    plane = await ControlPlane.open(settings, resolver=resolver)
    try:
        yield plane
    finally:
        await plane.close()


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[ControlPlane]:
    """A control plane with a separate state directory.

    At its end, every session is closed, every chain is verified, every workspace and volume is
    removed, and nothing is left on the host. `resolver` among the settings finds the addresses of
    the way out.
    """
    resolver = settings.pop("resolver", None)
    with state(**settings) as checked:
        async with running(checked, resolver) as plane:
            yield plane
            await clear(plane)


async def clear(plane: ControlPlane) -> None:
    """Closes every session and purges every workspace; checks that nothing of a session is left."""
    for session in plane.sessions.registry.all:
        await plane.sessions.close(TESTER, session, purge=False)
    await until(lambda: _rests(plane.pool))
    await plane.pool.close()
    await _assert_whole(plane)
    assert left_behind(plane.settings.state_dir) == NOTHING
    assert links(plane.settings.state_dir) == []
    for shown in await plane.volumes.page(None, ("", ""), 1000):
        await plane.volumes.remove(TESTER, shown.volume.owner, shown.volume.name)
    for kept in await plane.named_snapshots.page(None, None, ("", ""), 1000):
        await plane.named_snapshots.remove(TESTER, kept.snapshot.owner, kept.snapshot.id)
    assert not any(plane.settings.snapshots_path.glob("*"))
    for workspace in await plane.database.read(slots.kept):
        await plane.sessions.purge(TESTER, workspace.id)


def _rests(pool: WarmPool) -> bool:
    """Whether the pool starts nothing: the container of a cancelled start is removed later."""
    return not pool.runs or not (pool._rounds._under_way or pool._changed.is_set())


async def readiness(plane: ControlPlane) -> dict[str, Check]:
    """The checks whether sessions can be created and recorded, by name."""
    return {check.name: check for check in await plane.ready.checks()}


def uid_base() -> int:
    """A separate uid range, as processes of other control planes must not be counted.

    It is not one of the first 1,000, of which control planes choose, nor another worker's.
    """
    while True:
        base = FIRST_UID + next(_ranges()) * 65_536
        if is_free(base, 65_536):
            return base


@functools.cache
def _ranges() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4
    first = 1000 + worker * 600
    return itertools.cycle(random.sample(range(first, first + 600), 600))


async def _assert_whole(plane: ControlPlane) -> None:
    keys = await plane.database.read(
        lambda connection: connection.execute("SELECT DISTINCT session_key FROM events").fetchall()
    )
    for (key,) in keys:
        verdict = await verify(plane.database, key)
        assert verdict.ok, (key, verdict)
