"""Named snapshots and forks with the real engine: consistent, isolated, whose they are."""

import os
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


async def test_forks_begin_with_one_state_and_are_isolated(plane: ControlPlane) -> None:
    terms = {"env": {"DEPTH": "1"}, "labels": {"of": "search"}, "budget": {"commands": 9}}
    source = await Box.create(plane, "high", id="tree", **terms)
    await said(source, "mkdir d && for n in $(seq 200); do echo $n > d/$n; done")
    forked = await plane.forks.fork(TESTER, source.session, 3)
    boxes = [Box(plane, registered.session) for registered in forked.made]
    assert len({box.session.id for box in boxes}) == len({box.uid for box in boxes}) == 3
    for number, box in enumerate(boxes):
        assert (box.session.terms.env, box.session.terms.labels) == (
            source.session.terms.env,
            source.session.terms.labels,
        )
        assert box.session.budget.limits == source.session.budget.limits
        await said(box, f"echo fork-{number} > d/1 && echo {number} > only-{number}")
    for number, box in enumerate(boxes):
        assert await said(box, "cat d/1 d/200; ls only-*") == f"fork-{number}\n200\nonly-{number}\n"
    assert await said(source, "cat d/1; ls") == "1\nd\n"
    assert await plane.named_snapshots.page(None, None, ("", ""), 10) == []
    assert os.listdir(plane.settings.snapshots_path) == []
    ended = await query.events(plane.database, source.session.key, operation="session.fork_end")
    assert ended[0]["result"] == {"sessions": [box.session.id for box in boxes]}
    for box in boxes:
        (created,) = await query.events(
            plane.database, box.session.key, operation="session.create", limit=1
        )
        assert created["seq"] == 1
        assert created["args"]["snapshot"]["sha256"] == forked.snapshot.sha256
        assert created["args"]["snapshot"]["session_key"] == source.session.key
        await box.close()
    await source.close()
