"""Sessions in proposal mode: nothing reaches the workspace until the host commits it."""

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import BusyError
from orchestrator.host.workspace.staged import commit
from orchestrator.host.workspace.staged.commit import Staged
from orchestrator.host.workspace.staged.commit_steps import CommitSelection
from orchestrator.host.workspace.staging_area import StagingArea
from orchestrator.record.audit import query
from orchestrator.work.proposals.proposals import ProposalConflictError
from tests.support.archives import Entry, tar_of, zip_of
from tests.support.box import TESTER, Box
from tests.support.plane import opened, running, state

pytestmark = pytest.mark.asyncio(loop_scope="module")

POLICY: dict[str, Any] = {
    "world_rules": {
        "read_patterns": ["**/*"],
        "write_patterns": ["**/*", "**/.*"],
        "read_only": False,
        "proposal_mode": True,
    }
}
Tree = dict[str, tuple[str, int, bytes]]


def tree(top: Path) -> Tree:
    """Every entry below: kind, mode, and content or target."""
    found = {}
    for path in sorted(top.rglob("*")):
        mode = path.lstat().st_mode
        content = b""
        if stat.S_ISREG(mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(mode):
            content = os.fsencode(path.readlink())
        found[str(path.relative_to(top))] = (
            oct(stat.S_IFMT(mode)),
            0 if stat.S_ISLNK(mode) else mode & 0o7777,
            content,
        )
    return found


async def seeded(plane: ControlPlane, id: str, script: str, **members: Any) -> Box:
    """A session in proposal mode whose workspace has what the script made before."""
    first = await Box.create(plane, "high", id=id)
    assert (await first.bash(script)).exit_code == 0
    await plane.sessions.close(TESTER, first.session, purge=False)
    return await Box.create(plane, "high", id=id, policy=POLICY, **members)


async def again(box: Box, script: str) -> str:
    """The output of a script, in a session that may be suspended."""
    async with box.plane.sessions.suspensions.using(TESTER, box.session):
        done = await box.bash(script)
        assert done.exit_code == 0, (done.stdout, done.stderr)
        return done.stdout


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str) -> AsyncIterator[ControlPlane]:
    async with opened(image=sandbox_image) as plane:
        yield plane


async def test_what_is_staged_is_seen_by_all_and_reaches_the_workspace_by_a_commit(
    plane: ControlPlane,
) -> None:
    box = await seeded(
        plane,
        "whole",
        "printf 'one\\ntwo\\n' > a; mkdir -p d/e gone; echo x > d/e/x;"
        " echo y > gone/y; ln -s a link; echo old > renamed; chmod 555 d/e",
    )
    before = tree(box.workspace)
    await box.bash(
        "printf 'one\\n2\\n' > a; rm -r gone; mkdir gone; echo new > gone/new; mv renamed d/moved;"
        " chmod 755 d/e; echo z > d/e/z; chmod 555 d/e; echo '#!/bin/sh' > run; chmod 755 run;"
        " ln -sf d/moved link; mkdir -p n/m; touch n/m/empty; ln -s ../../a n/m/up"
    )
    assert tree(box.workspace) == before
    shown = await again(box, "cat a gone/new d/moved; ls gone d/e")
    assert shown == "one\n2\nnew\nold\nd/e:\nx\nz\n\ngone:\nnew\n"
    page = await plane.proposals.show(TESTER, box.session, "", 1000)
    items = {item.ref: item for item in page.items}
    assert sorted(items) == sorted(
        [
            "a",
            "d/e/z",
            "d/moved",
            "gone",
            "gone/new",
            "link",
            "n",
            "n/m",
            "n/m/empty",
            "n/m/up",
            "renamed",
            "run",
        ]
    )
    assert items["a"].diff == "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    assert items["d/moved"].renamed_from == "renamed"
    assert (items["gone"].replaces, items["gone"].removes) == (True, 1)
    assert (items["run"].mode, items["renamed"].type) == (0o755, "delete")
    committed = await plane.proposals.commit(TESTER, box.session, None, None)
    assert committed is not None
    assert len(committed.refs) == 12
    after = tree(box.workspace)
    async with plane.sessions.suspensions.using(TESTER, box.session):
        seen = await box.bash("cat a; ls -R; stat -c %a d/e run")
    assert after["a"][2] == b"one\n2\n"
    assert not {"gone/y", "renamed"} & set(after)
    assert (after["d/e"][1], after["link"][2]) == (0o555, b"d/moved")
    assert seen.stdout.endswith("555\n755\n")
    assert (await plane.proposals.show(TESTER, box.session, "", 1000)).counts.write == 0
    events = await query.events(plane.database, box.session.key, limit=100)
    told = [event["operation"] for event in events if event["operation"].startswith("proposal")]
    assert told == ["proposal.commit", "proposal.end"]
    await box.close()


async def test_file_operations_are_staged_as_a_whole(plane: ControlPlane) -> None:
    box = await seeded(plane, "files", "echo old > a; mkdir d")
    before = tree(box.workspace)
    async with plane.sessions.suspensions.using(TESTER, box.session):
        await box.write("a", b"new\n")
        await box.write("d/b", b"b" * 300_000)
        await box.unpack(tar_of([Entry("c", b"c\n"), Entry("a2", b"2\n")]))
        await box.unpack(zip_of([Entry("e", b"e\n")]), kind="zip")
        assert await box.read("a") == b"new\n"
        assert await box.read("d/b") == b"b" * 300_000
        assert sorted(await box.paths(depth=2)) == ["a", "a2", "c", "d", "d/b", "e"]
    assert tree(box.workspace) == before
    page = await plane.proposals.show(TESTER, box.session, "", 1000)
    assert [item.ref for item in page.items] == ["a", "a2", "c", "d/b", "e"]
    await box.close()


async def test_hostile_staging_changes_nothing_and_others_can_be_committed(
    plane: ControlPlane,
) -> None:
    box = await seeded(plane, "hostile", "mkdir d; echo 1 > d/a")
    before = tree(box.workspace)
    done = await box.bash(
        "echo good > good; ln -s /etc/passwd out; mkdir d/l; ln -s ../.. d/l/up; mkfifo ff;"
        " mknod wh c 0 0 2>/dev/null && exit 3; printf x > su; chmod 4755 su; ln good hard;"
        " touch $'new\\nline' $'\\xff'; truncate -s 1T giant;"
        " python3 -c \"import os; os.setxattr('d', 'user.overlay.opaque', b'y');"
        " os.setxattr('d', 'user.overlay.redirect', b'/etc')\"; ls d; touch fine"
    )
    assert (done.exit_code, done.stdout) == (0, "a\nl\n"), done.stderr
    page = await plane.proposals.show(TESTER, box.session, "", 1000)
    assert [item.ref for item in page.items] == ["fine"]
    refused = ["\\xff", "d", "ff", "giant", "good", "hard", "new\\x0aline", "out", "su"]
    assert sorted(each.ref for each in page.refused) == refused
    with pytest.raises(ProposalConflictError) as error:
        await plane.proposals.commit(TESTER, box.session, None, None)
    assert sorted(each["ref"] for each in error.value.fields["refused"]) == refused
    assert tree(box.workspace) == before
    # Its upper layer is nowhere in the sandbox, and nothing about it is shown.
    assert "staging" not in await again(box, "cat /proc/self/mountinfo; find / 2>&1; true")
    await plane.proposals.commit(TESTER, box.session, ["fine"], None)
    assert tree(box.workspace) == {**before, "fine": ("0o100000", 0o644, b"")}
    # A host's change is a conflict, and so is what was not reviewed.
    await again(box, "rm -f good hard su; echo more >> d/a; echo two > fine")
    (box.workspace / "fine").write_text("by the host")
    with pytest.raises(ProposalConflictError) as error:
        await plane.proposals.commit(TESTER, box.session, ["fine"], None)
    assert [each["ref"] for each in error.value.fields["conflicts"]] == ["fine"]
    assert (box.workspace / "fine").read_text() == "by the host"
    counts = await plane.proposals.rollback(TESTER, box.session)
    assert counts.write == 1
    assert await again(box, "cat fine d/a; ls") == "by the host1\nd\nfine\n"
    await box.close()


async def test_the_policy_decides_again_at_the_commit(plane: ControlPlane) -> None:
    rules = {**POLICY["world_rules"], "write_patterns": ["src/**/*"]}
    box = await seeded(plane, "narrow", "mkdir -p other/x; echo 1 > other/x/y")
    await plane.sessions.close(TESTER, box.session, purge=False)
    box = await Box.create(plane, "high", id="narrow", policy={"world_rules": rules})
    await box.bash("mkdir -p src/a; echo 1 > src/a/b; echo 2 > top; rm -r other")
    with pytest.raises(ProposalConflictError) as error:
        await plane.proposals.commit(TESTER, box.session, None, None)
    refused = [each["ref"] for each in error.value.fields["refused"]]
    assert refused == ["other", "top", "other/x", "other/x/y"]
    await plane.proposals.commit(TESTER, box.session, ["src"], None)
    assert sorted(tree(box.workspace)) == [
        "other",
        "other/x",
        "other/x/y",
        "src",
        "src/a",
        "src/a/b",
    ]
    await box.close()


async def test_a_commit_waits_for_nothing_and_an_end_discards(plane: ControlPlane) -> None:
    box = await seeded(plane, "ends", "echo 1 > a")
    command = await box.start("sleep 100")
    await box.bash("echo 2 > a")
    for change in (
        plane.proposals.commit(TESTER, box.session, None, None),
        plane.proposals.rollback(TESTER, box.session),
    ):
        with pytest.raises(BusyError):
            await change
    await box.cancel(command)
    # What is staged stays through a level change and a suspension.
    await plane.sessions.changes.set_level(TESTER, box.session, "low", {})
    assert (await box.run("cat a")).stdout == "2\n"
    assert await plane.sessions.suspensions.suspend(box.session, "room")
    page = await plane.proposals.show(TESTER, box.session, "", 10)
    # Nor does a smaller size of the workspace count as a change of its files.
    assert [(item.ref, item.base_changed) for item in page.items] == [("a", False)]
    async with plane.sessions.suspensions.using(TESTER, box.session):
        assert (await box.run("cat a")).stdout == "2\n"
    staging = box.workspace.resolve().parent / "staging"
    assert staging.is_dir()
    await plane.sessions.abort(TESTER, box.session)
    assert list(staging.iterdir()) == []
    assert (box.workspace / "a").read_text() == "1\n"
    again = await Box.create(plane, "low", id="ends", policy=POLICY)
    assert (await again.run("cat a")).stdout == "1\n"
    await again.write("a", b"3\n")
    await plane.proposals.commit(TESTER, again.session, None, None)
    assert (again.workspace / "a").read_text() == "3\n"
    await again.close()


@pytest.mark.parametrize("quota", ["auto", pytest.param("none", marks=pytest.mark.slow)])
async def test_what_is_staged_survives_a_restart_and_a_kill(sandbox_image: str, quota: str) -> None:
    with state(image=sandbox_image, workspace_quota=quota) as settings:
        async with running(settings) as plane:
            box = await seeded(plane, "kept", "echo 1 > a; echo 1 > b")
            await box.bash("echo 2 > a; rm b; mkdir c; echo c > c/d")
        async with running(settings) as plane:
            session = plane.sessions.finder.find(TESTER, "kept")
            box = Box(plane, session)
            assert await again(box, "cat a c/d; ls") == "2\nc\na\nc\n"
            workspace, area = box.workspace, plane.node.storage.area(session.workspace, session.key)
            # As if it had been killed when the commit was decided.
            assert await plane.sessions.suspensions.suspend(session, "room")
            _decide(workspace.resolve(), area)
            assert (workspace / "a").read_text() == "1\n"
        async with running(settings) as plane:
            box = Box(plane, plane.sessions.finder.find(TESTER, "kept"))
            assert sorted(tree(workspace)) == ["a", "c", "c/d"]
            assert (workspace / "a").read_text() == "2\n"
            assert (await plane.proposals.show(TESTER, box.session, "", 10)).items == []
            end = await box.event("proposal.end")
            assert end["result"] == {"outcome": "committed", "count": 4}
            assert await again(box, "cat a; ls") == "2\na\nc\n"
            await box.close()


class _KilledError(BaseException):
    """The helper's death."""


def _decide(data: Path, area: StagingArea) -> None:
    """Begins a commit, and dies once it is decided."""
    staged = Staged(*(os.open(path, os.O_RDONLY) for path in (area.upper, data, area.commit)))
    steps = 2

    def reached() -> None:
        nonlocal steps
        steps -= 1
        if not steps:
            raise _KilledError

    selection = CommitSelection(None, None)
    try:
        digest = commit.prepare(staged, selection).digest
        with pytest.raises(_KilledError):
            commit.commit(staged, selection, digest, reached)
    finally:
        for handle in staged:
            os.close(handle)
    # This process is root, the helper is not.
    for path in area.commit.rglob("*"):
        os.chown(path, *_owner(area.commit), follow_symlinks=False)


def _owner(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_uid, facts.st_gid


@pytest.mark.slow
async def test_a_tree_of_5000_files_is_committed_byte_for_byte(plane: ControlPlane) -> None:
    box = await seeded(
        plane,
        "large",
        "for d in $(seq 100); do mkdir d$d; for f in $(seq 50); do"
        " echo $d $f > d$d/f$f; done; done",
    )
    await box.bash(
        "find . -name 'f*[0-4]' -delete; find . -name 'f*[5-9]' -exec sh -c 'echo x >> {}' ';';"
        " cp -r d1 copy; cp -r d2 copy/more; for f in $(seq 5000); do echo $f > n$f; done",
        timeout=300,
    )
    async with plane.sessions.suspensions.using(TESTER, box.session):
        overlay = box.session.sandbox
        assert overlay is not None
        staged = tree(overlay.directory.workspace)
    await plane.proposals.commit(TESTER, box.session, None, None)
    assert tree(box.workspace) == staged
    await box.close()
