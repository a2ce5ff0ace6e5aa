"""Named snapshots and forks with the real engine: consistent, isolated, whose they are."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.record.audit import query
from tests.support.box import TESTER, Box
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str) -> AsyncIterator[ControlPlane]:
    async with opened(image=sandbox_image) as plane:
        yield plane


async def said(box: Box, line: str) -> str:
    """What a shell line prints that succeeds."""
    done = await box.bash(line)
    assert done.exit_code == 0, (line, done.stdout, done.stderr)
    return done.stdout


async def test_sessions_begin_as_it_and_are_isolated(plane: ControlPlane) -> None:
    source = await Box.create(plane, "high", id="source")
    await said(
        source, "mkdir -p a/b && echo one > a/b/file && ln -s b a/link && chmod 640 a/b/file"
    )
    taken = (await plane.named_snapshots.take(TESTER, source.session, "base")).snapshot
    assert (taken.name, taken.session_id, taken.ready) == ("base", "source", True)
    await said(source, "echo two > a/b/file")
    one = await Box.create(plane, "high", id="one", from_snapshot="base")
    two = await Box.create(plane, "low", id="two", from_snapshot=taken.id)
    assert one.uid != source.uid != two.uid
    for box in (one, two):
        assert (await box.run(argv=["cat", "a/b/file"])).stdout == "one\n"
        shown = await box.run(argv=["stat", "-c", "%u %g %a", "a/b/file"])
        assert shown.stdout == f"{box.uid} {box.uid} 640\n"
    await said(one, "echo three > a/b/file && echo new > new && rm a/link")
    assert (await two.run(argv=["cat", "a/link/file"])).stdout == "one\n"
    assert await said(source, "cat a/b/file") == "two\n"
    (created,) = await query.events(
        plane.database, one.session.key, operation="session.create", limit=1
    )
    assert created["args"]["snapshot"] == {
        "id": taken.id,
        "name": "base",
        "sha256": taken.sha256,
        "session_id": "source",
        "session_key": source.session.key,
    }
    again = (await plane.named_snapshots.take(TESTER, one.session, "again")).snapshot
    third = await Box.create(plane, "medium", from_snapshot="again")
    assert (await third.run(argv=["cat", "a/b/file"])).stdout == "three\n"
    for name in ("base", again.id):
        await plane.named_snapshots.remove(TESTER, "tester", name)
    for box in (source, one, two, third):
        await box.close()
