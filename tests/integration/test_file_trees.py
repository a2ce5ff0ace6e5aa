"""Searches, patches, copies, removals and versions of files, through a real sandbox's agent."""

import asyncio
import difflib
import json
import os
from collections.abc import AsyncIterator

import pytest

from orchestrator.ground.errors import (
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionFailedError,
    RangeNotSatisfiableError,
    ValidationError,
)
from orchestrator.work.files.file_requests import Conditions
from orchestrator.work.files.file_trees import SearchResult
from sandbox_agent.files import journal
from tests.conftest import BoxFactory
from tests.support.box import TESTER, Box

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def clear(box: Box) -> None:
    """Removes everything in the workspace."""
    for name in os.listdir(box.workspace):
        await box.plane.files.delete(TESTER, box.session, name, recursive=True)


async def search(box: Box, text: str, path: str = ".", **how: object) -> SearchResult:
    return await box.plane.file_trees.search(TESTER, box.session, path, text, **how)  # type: ignore[arg-type]


async def put(box: Box, path: str, data: bytes, conditions: Conditions) -> str:
    async def pieces() -> AsyncIterator[bytes]:
        yield data

    written = await box.plane.files.put(
        TESTER, box.session, path, "overwrite", pieces(), conditions=conditions
    )
    return written.version or ""


async def test_a_lost_update_is_refused(low: Box) -> None:
    """Of two writers that have read the same version, one must read it again."""
    await clear(low)
    await low.write("a.txt", b"one")
    version = (await low.stat("a.txt")).version
    assert version is not None
    second = await put(low, "a.txt", b"two", Conditions(match=(version,)))
    assert second == (await low.stat("a.txt")).version != version
    with pytest.raises(PreconditionFailedError):
        await put(low, "a.txt", b"three", Conditions(match=(version,)))
    assert (low.workspace / "a.txt").read_bytes() == b"two"
    with pytest.raises(PreconditionFailedError):
        await put(low, "a.txt", b"three", Conditions(none_match=("*",)))
    with pytest.raises(PreconditionFailedError):
        await low.plane.files.delete(
            TESTER, low.session, "a.txt", conditions=Conditions(match=(version,))
        )
    assert (low.workspace / "a.txt").read_bytes() == b"two"
    await put(low, "new.txt", b"new", Conditions(none_match=("*",)))
    assert (low.workspace / "new.txt").read_bytes() == b"new"


async def test_one_of_many_writers_at_once_wins(low: Box) -> None:
    await clear(low)
    await low.write("count", b"0")
    version = (await low.stat("count")).version or ""
    tries = (put(low, "count", b"%d" % n, Conditions(match=(version,))) for n in range(1, 7))
    done = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(each, str) for each in done) == 1
    assert sum(isinstance(each, PreconditionFailedError) for each in done) == 5


async def test_a_command_changes_the_version(high: Box) -> None:
    await clear(high)
    await high.write("a.txt", b"one")
    before = (await high.stat("a.txt")).version or ""
    await high.bash("echo two >> a.txt")
    with pytest.raises(PreconditionFailedError):
        await put(high, "a.txt", b"three", Conditions(match=(before,)))
    assert (high.workspace / "a.txt").read_bytes() == b"onetwo\n"


@pytest.mark.parametrize(
    ("wanted", "part", "content"),
    [
        ((0, 3), (0, 4), b"0123"),
        ((2, None), (2, 8), b"23456789"),
        ((None, 3), (7, 3), b"789"),
        ((8, 100), (8, 2), b"89"),
        ((None, 100), (0, 10), b"0123456789"),
    ],
)
async def test_ranges(
    low: Box, wanted: tuple[int | None, int | None], part: tuple[int, int], content: bytes
) -> None:
    await low.write("digits", b"0123456789")
    opened = await low.plane.files.read(TESTER, low.session, "digits", wanted=wanted)
    assert (opened.size, opened.part) == (10, part)
    assert b"".join([chunk async for chunk in opened.chunks()]) == content
    await opened.close()


async def test_a_range_that_is_not_there(low: Box) -> None:
    await low.write("digits", b"0123456789")
    with pytest.raises(RangeNotSatisfiableError):
        await low.plane.files.read(TESTER, low.session, "digits", wanted=(10, None))


async def test_a_tree_is_listed_by_a_glob(low: Box) -> None:
    await clear(low)
    for path in ("a.py", "b.txt", "src/c.py", "src/deep/d.py", "src/.hidden/e.py"):
        await low.write(path, b"x", parents=True)
    listed = await low.plane.files.list(TESTER, low.session, ".", 64, "*.py")
    assert [each.path for each in listed.entries] == ["a.py", "src/c.py", "src/deep/d.py"]
    listed = await low.plane.files.list(TESTER, low.session, "src", 64, "*/*.py")
    assert [each.path for each in listed.entries] == ["src/deep/d.py"]


async def test_search(low: Box) -> None:
    await clear(low)
    await low.write("src/a.py", "def run():\n    return 1\r\n# Größe\n".encode(), parents=True)
    await low.write("b.txt", b"run and run\n")
    await low.write("binary", b"\0run\n")
    await low.write(".git/config", b"run\n", parents=True)
    found = await search(low, "run")
    assert [(each.path, each.line) for each in found.matches] == [("b.txt", 1), ("src/a.py", 1)]
    assert (found.files, found.skipped, found.truncated) == (2, 1, False)
    found = await search(low, r"ret\w+ \d$", regex=True)
    assert [each.text for each in found.matches] == ["    return 1"]
    found = await search(low, "GRÖSSE", ignore_case=True)
    assert [each.line for each in found.matches] == [3]
    assert not (await search(low, "run", globs=("*.md",))).matches
    assert (await search(low, "run", limit=1)).truncated
    assert [each.path for each in (await search(low, "run", ".git")).matches] == [".git/config"]
    assert [each.line for each in (await search(low, "run", "src/a.py")).matches] == [1]
    (event,) = (await low.events("file.search"))[-1:]
    assert (event["args"]["text"], event["result"]["matches"]) == ("run", 1)
    with pytest.raises(NotFoundError):
        await search(low, "run", "missing")
    with pytest.raises(ValidationError, match="not supported"):
        await search(low, r"(a)\1", regex=True)


async def test_a_hostile_pattern_ends(low: Box) -> None:
    await clear(low)
    await low.write("a", b"a" * 5000 + b"\n")
    found = await search(low, "(a*)*(a|aa)*b", regex=True)
    assert not found.matches
    assert found.files == 1


def diff(path: str, old: str, new: str) -> str:
    """A unified diff of a file."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}"))


async def test_patch(high: Box) -> None:
    await clear(high)
    old = "".join(f"line {number}\n" for number in range(50))
    new = old.replace("line 3\n", "line three\n").replace("line 40\n", "")
    await high.write("src/a.txt", b"first\n" + old.encode(), permissions=0o750, parents=True)
    await high.write("gone.txt", b"bye\n")
    await high.write("script", b"#!/bin/sh\n")
    text = diff("src/a.txt", old, new) + (
        "--- /dev/null\n+++ b/new/b.txt\n@@ -0,0 +1 @@\n+hello\n"
        "diff --git a/gone.txt b/gone.txt\ndeleted file mode 100644\n"
        "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n"
        "diff --git a/script b/bin/script\nold mode 100644\nnew mode 100755\n"
        "rename from script\nrename to bin/script\n"
    )
    dry = await high.plane.file_trees.patch(TESTER, high.session, ".", text, dry_run=True)
    assert (high.workspace / "gone.txt").exists()
    done = await high.plane.file_trees.patch(TESTER, high.session, ".", text)
    assert dry == done
    assert [(each.path, each.action) for each in done] == [
        ("src/a.txt", "write"),
        ("new/b.txt", "create"),
        ("gone.txt", "delete"),
        ("bin/script", "rename"),
    ]
    assert (high.workspace / "src/a.txt").read_text() == "first\n" + new
    assert (high.workspace / "src/a.txt").stat().st_mode == 0o100750
    assert (high.workspace / "new/b.txt").read_text() == "hello\n"
    assert sorted(os.listdir(high.workspace)) == ["bin", "new", "src"]
    assert (high.workspace / "bin/script").stat().st_mode == 0o100755
    (event,) = (await high.events("file.patch"))[-1:]
    assert event["args"]["paths"] == ["bin/script", "gone.txt", "new/b.txt", "script", "src/a.txt"]
    assert event["result"] == {"files": 4, "rejects": 0}


async def test_a_patch_that_does_not_apply_changes_nothing(low: Box) -> None:
    await clear(low)
    await low.write("a.txt", b"one\ntwo\n")
    await low.write("b.txt", b"one\ntwo\n")
    text = diff("a.txt", "one\ntwo\n", "one\n2\n") + diff("b.txt", "one\nother\n", "one\n2\n")
    with pytest.raises(ConflictError, match=r"b\.txt, hunk 1") as refused:
        await low.plane.file_trees.patch(TESTER, low.session, ".", text)
    assert refused.value.fields["rejects"] == [
        {
            "path": "b.txt",
            "hunk": 1,
            "header": "@@ -1,2 +1,2 @@",
            "reason": "its old lines are not in the file",
        }
    ]
    assert (low.workspace / "a.txt").read_bytes() == b"one\ntwo\n"
    assert (low.workspace / "b.txt").read_bytes() == b"one\ntwo\n"
    with pytest.raises(PermissionDeniedError):
        await low.plane.file_trees.patch(
            TESTER, low.session, ".", diff("../out.txt", "", "x\n").replace("a/../", "../")
        )


async def test_a_patch_whose_last_file_is_protected_changes_nothing(high: Box) -> None:
    await clear(high)
    await high.write("a.txt", b"one\n")
    await high.write("z/b.txt", b"one\n", parents=True)
    await high.bash("chmod 500 z")
    text = diff("a.txt", "one\n", "two\n") + diff("z/b.txt", "one\n", "two\n")
    with pytest.raises(PermissionDeniedError):
        await high.plane.file_trees.patch(TESTER, high.session, ".", text)
    assert (high.workspace / "a.txt").read_bytes() == b"one\n"
    await high.bash("chmod 700 z")


async def test_copy(high: Box) -> None:
    await clear(high)
    await high.write("src/deep/a.txt", b"hello", permissions=0o750, parents=True)
    await high.bash("ln -s deep/a.txt src/link; mkfifo src/pipe; touch -d @1000000000 src/deep")
    copied = await high.plane.file_trees.copy(TESTER, high.session, "src", "x/y", parents=True)
    assert copied == (1, 2, 1, 5, 1)
    there = high.workspace / "x/y"
    assert (there / "deep/a.txt").read_bytes() == b"hello"
    assert (there / "deep/a.txt").stat().st_mode == 0o100750
    assert (there / "deep").stat().st_mtime == 1000000000
    assert str((there / "link").readlink()) == "deep/a.txt"
    with pytest.raises(ConflictError):
        await high.plane.file_trees.copy(TESTER, high.session, "src", "x/y")
    with pytest.raises(ConflictError, match="in what is copied"):
        await high.plane.file_trees.copy(TESTER, high.session, "src", "src/deep/again")
    assert os.listdir(high.workspace / "src/deep") == ["a.txt"]
    await high.plane.file_trees.copy(TESTER, high.session, "/etc/hostname", "name")
    await high.plane.file_trees.copy(TESTER, high.session, "name", "/tmp/name")
    assert (await high.bash("cat /tmp/name")).stdout == (await high.bash("cat name")).stdout


async def test_chmod(high: Box) -> None:
    await clear(high)
    await high.write("run.sh", b"#!/bin/sh\necho ran\n")
    await high.plane.files.chmod(TESTER, high.session, "run.sh", 0o700)
    assert (await high.bash("./run.sh")).stdout == "ran\n"
    (event,) = (await high.events("file.chmod"))[-1:]
    assert event["args"] == {"path": "run.sh", "permissions": "0700", "asked_by": TESTER.name}


async def test_a_tree_is_removed_however_deep(high: Box) -> None:
    await clear(high)
    await high.write("kept", b"x")
    await high.python(
        "import os\n"
        "os.mkdir('tree'); os.symlink('../kept', 'tree/link'); os.chdir('tree')\n"
        "for n in range(700): os.mkdir('d'); open('f', 'w').close(); os.chdir('d')"
    )
    with pytest.raises(ConflictError):
        await high.delete("tree")
    removed = await high.plane.files.delete(TESTER, high.session, "tree", recursive=True)
    assert removed == 1402
    assert os.listdir(high.workspace) == ["kept"]


def unfinished() -> str:
    """Makes what is left of a patch whose sandbox was killed after it had been decided."""
    steps = [["one.txt", f".paddock-{'a' * 16}", None], ["two.txt", f".paddock-{'b' * 16}", None]]
    said = json.dumps({"decided": True, "steps": steps})
    contents = f"echo new > .paddock-{'a' * 16}; echo new > .paddock-{'b' * 16}"
    return f"echo old > one.txt; echo old > two.txt; {contents}; echo '{said}' > {journal.NAME}"


async def test_a_patch_is_completed_by_the_next_operation(high: Box) -> None:
    await clear(high)
    assert (await high.bash(unfinished())).exit_code == 0
    assert await high.paths() == ["one.txt", "two.txt"]
    assert await high.read("one.txt") == await high.read("two.txt") == b"new\n"


async def test_a_patch_is_completed_when_a_sandbox_starts(new_box: BoxFactory) -> None:
    box = await new_box("high")
    assert (await box.bash(unfinished())).exit_code == 0
    before = len(await box.events("file.patch"))
    await box.plane.sessions.changes.set_level(TESTER, box.session, "medium", {})
    shown = await box.run("cat one.txt two.txt")
    assert shown.stdout == "new\nnew\n"
    (event,) = (await box.events("file.patch"))[before:]
    assert (event["decision"], event["result"]["files"]) == ("allow", 2)
    assert sorted(os.listdir(box.workspace)) == ["one.txt", "two.txt"]
