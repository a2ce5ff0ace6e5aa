"""Named snapshots and forks with the real engine: consistent, isolated, whose they are."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import (
    ConflictError,
    NotFoundError,
    RateLimitedError,
    SandboxUnavailableError,
    SessionTerminatedError,
    ValidationError,
)
from orchestrator.host.workspace import slots
from orchestrator.record.audit import query
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.state.session import Session
from tests.support.box import TESTER, Box
from tests.support.new_session import new_session
from tests.support.plane import clear, opened, running, state
from tests.support.until import until

POLICY = {
    "world_rules": {
        "read_patterns": ["**/*"],
        "write_patterns": ["**/*"],
        "read_only": False,
        "proposal_mode": True,
    }
}
OTHER = Principal("other", Role.OPERATOR)

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


async def test_one_failure_leaves_no_fork(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await Box.create(plane, "low", id="tree")
    start, started = plane.sandboxes.start, list[Session]()

    async def start_two(session: Session, *others: Any) -> Any:
        started.append(session)
        if len(started) == 3:
            raise SandboxUnavailableError("there is no third one")
        return await start(session, *others)

    monkeypatch.setattr(plane.sandboxes, "start", start_two)
    with pytest.raises(SandboxUnavailableError, match="there is no third one"):
        await plane.forks.fork(TESTER, source.session, 3)
    monkeypatch.undo()
    assert [session.id for session in plane.sessions.registry.live] == ["tree"]
    kept = await plane.database.read(slots.kept)
    assert [workspace.id for workspace in kept] == ["tree"]
    assert os.listdir(plane.settings.snapshots_path) == []
    (ended,) = await query.events(
        plane.database, source.session.key, operation="session.fork_end", limit=9
    )
    assert ended["error"] == "nothing was created: there is no third one"
    assert (await source.run("pwd")).exit_code == 0
    await source.close()


async def test_a_session_that_writes_has_a_snapshot_of_one_moment(plane: ControlPlane) -> None:
    source = await Box.create(plane, "high", id="writer")
    writes = (
        "n=0; while :; do n=$((n+1)); echo $n > first; sync first; echo $n > second; sync second;"
        " done"
    )
    await source.start(argv=["sh", "-c", writes], background=True)
    while await said(source, "test -s second && echo there || true") == "":
        pass
    taken = (await plane.named_snapshots.take(TESTER, source.session, "moment")).snapshot
    assert (taken.method, taken.frozen_us > 0) == ("copy", True)
    copy = await Box.create(plane, "low", from_snapshot="moment")
    first, second = [
        int((await copy.run(argv=["cat", name])).stdout or 0) for name in ("first", "second")
    ]
    assert second in (first, first - 1) or 0 in (first, second)
    await plane.named_snapshots.remove(TESTER, "tester", "moment")
    for box in (source, copy):
        await box.close()


async def test_what_begins_as_a_snapshot_can_be_staged(plane: ControlPlane) -> None:
    source = await Box.create(plane, "low", id="plain")
    await source.write("kept", b"one")
    await plane.named_snapshots.take(TESTER, source.session, "plain")
    box = await Box.create(plane, "low", id="staged", from_snapshot="plain", policy=POLICY)
    await box.write("kept", b"two")
    await plane.proposals.commit(TESTER, box.session, None, None)
    assert (Path(box.session.root_dir) / "kept").read_bytes() == b"two"
    again = (await plane.named_snapshots.take(TESTER, box.session, "staged")).snapshot
    assert again.ready
    for each in (source, box):
        await each.close()


async def test_what_can_not_be_is_refused(plane: ControlPlane) -> None:
    source = await Box.create(plane, "low", id="source")
    await source.write("file", bytes(20 * 1024 * 1024))
    take = plane.named_snapshots.take
    taken = (await take(TESTER, source.session, "base")).snapshot
    with pytest.raises(ConflictError, match="there is a snapshot base already"):
        await take(TESTER, source.session, "base")
    with pytest.raises(ValidationError):
        await take(TESTER, source.session, taken.id)
    assert os.listdir(plane.settings.snapshots_path) == [f"{taken.id}.img"]
    for request, error in (
        (new_session(permission_level="low", id="source", from_snapshot="base"), ConflictError),
        (new_session(permission_level="low", from_snapshot="other"), NotFoundError),
        (
            new_session(
                permission_level="low",
                from_snapshot="base",
                limits={"workspace_bytes": 16 * 1024 * 1024},
            ),
            ValidationError,
        ),
    ):
        with pytest.raises(error):
            await plane.sessions.create(TESTER, request)
    with pytest.raises(NotFoundError):
        await plane.sessions.create(
            OTHER, new_session(permission_level="low", from_snapshot="base")
        )
    kept = await Box.create(plane, "low", id="kept")
    await plane.sessions.close(TESTER, kept.session, purge=False)
    with pytest.raises(ConflictError, match="there is a workspace kept already"):
        await Box.create(plane, "low", id="kept", from_snapshot="base")
    with pytest.raises(SessionTerminatedError):
        await take(TESTER, kept.session, "ended")
    await source.close()
    later = await Box.create(plane, "low", id="source", from_snapshot="base")
    assert len(await later.read("file")) == 20 * 1024 * 1024
    await plane.named_snapshots.remove(TESTER, "tester", "base")
    with pytest.raises(NotFoundError):
        await Box.create(plane, "low", from_snapshot="base")
    assert len(await later.read("file")) == 20 * 1024 * 1024
    await later.close()


async def test_a_key_has_a_quota_and_what_expires_is_removed(sandbox_image: str) -> None:
    with state(image=sandbox_image, key_max_snapshots=2, key_max_snapshot_bytes=60 * 2**20) as told:
        async with running(told) as plane:
            request = new_session(permission_level="low", id="of-other")
            session, *_ = await plane.sessions.create(OTHER, request)
            take = plane.named_snapshots.take
            for name in ("one", "two"):
                await take(OTHER, session, name)
            with pytest.raises(RateLimitedError) as refused:
                await take(OTHER, session, "three")
            assert refused.value.fields["limit"] == "key_max_snapshots"
            await plane.named_snapshots.remove(OTHER, "other", "two")
            await Box(plane, session).write("file", os.urandom(63 * 2**20))
            with pytest.raises(RateLimitedError) as refused:
                await take(OTHER, session, "two")
            assert refused.value.fields["limit"] == "key_max_snapshot_bytes"
        async with running(told.model_copy(update={"snapshot_retention": 1})) as plane:
            await until(lambda: os.listdir(told.snapshots_path) == [])
            assert await plane.named_snapshots.page("other", None, ("", ""), 10) == []
            await clear(plane)


async def test_ten_forks_of_many_files(plane: ControlPlane) -> None:
    source = await Box.create(plane, "high", id="many")
    await said(source, "mkdir d && for n in $(seq 5000); do echo $n > d/$n; done")
    forked = await plane.forks.fork(TESTER, source.session, 10)
    boxes = [Box(plane, registered.session) for registered in forked.made]
    for number, box in enumerate(boxes):
        counted = await said(box, f"echo fork > d/{number + 1}; ls d | wc -l; grep -lr fork d")
        assert counted == f"5000\nd/{number + 1}\n"
    assert await said(source, "grep -lr fork d || true") == ""
    for box in (*boxes, source):
        await box.close()
