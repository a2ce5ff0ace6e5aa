"""Watches of directories in real sandboxes: what happens in them is told once, and in order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest

from orchestrator.ground.errors import BusyError, ConflictError, NotFoundError
from orchestrator.work.files.file_trees import FileChange, FileWatch
from tests.support.box import PATIENCE, TESTER, Box, ended

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def watching(box: Box, path: str = ".", **how: Any) -> AsyncIterator[FileWatch]:
    watch = await box.plane.file_trees.watch(TESTER, box.session, path, **how)
    try:
        yield watch
    finally:
        await watch.close()


async def until(watch: FileWatch, path: str) -> list[FileChange]:
    """The changes up to the first one of that path."""
    changes: list[FileChange] = []
    async with asyncio.timeout(PATIENCE):
        while not any(each.path == path for each in changes):
            changes += await watch.next(10)
    return changes


async def until_mark(box: Box, watch: FileWatch) -> list[FileChange]:
    """The changes up to now: those before a file that is written to mark the end."""
    await box.write("mark", b"x")
    changes = await until(watch, "mark")
    assert changes[-1].path == "mark"
    await box.delete("mark")
    await until(watch, "mark")
    return changes[:-1]


def told(changes: list[FileChange]) -> list[tuple[str, str]]:
    return [(each.kind, each.path) for each in changes]


async def clear(box: Box) -> None:
    for entry in (await box.listing()).entries:
        await box.plane.files.delete(TESTER, box.session, entry.path, recursive=True)


async def test_our_own_writes_are_one_change(low: Box) -> None:
    """A file that is written as a whole is never seen under the name under which it waits."""
    await clear(low)
    async with watching(low) as watch:
        await low.write("a.txt", b"one")
        # Two writes of a file that nobody has read about yet are one change.
        await low.write("a.txt", b"1")
        await low.write("a.txt", b"two")
        await low.plane.file_trees.copy(TESTER, low.session, "a.txt", "b.txt")
        await low.plane.file_trees.patch(
            TESTER, low.session, ".", "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-two\n\\ No newline\n+3\n"
        )
        await low.plane.files.symlink(TESTER, low.session, "link", "a.txt")
        await low.move("b.txt", "c.txt")
        await low.delete("c.txt")
        changes = await until_mark(low, watch)
    assert told(changes) == [
        ("create", "a.txt"),
        ("write", "a.txt"),
        ("create", "b.txt"),
        ("write", "link"),
        ("move", "c.txt"),
        ("delete", "c.txt"),
    ]
    assert changes[-2].source == "b.txt"
    (event,) = await low.events("file.watch")
    assert event["args"] == {"path": ".", "recursive": True, "asked_by": TESTER.name}


async def test_new_directories_are_followed(high: Box) -> None:
    await clear(high)
    await high.mkdir("elsewhere")
    async with watching(high) as watch:
        await high.bash("mkdir -p a/b/c && echo x > a/b/c/f")
        created = [path for kind, path in told(await until(watch, "a/b/c/f")) if kind == "create"]
        assert created == ["a", "a/b", "a/b/c", "a/b/c/f"]
        await high.bash("mv a/b z && echo y >> z/c/f && rm -r z")
        changes = await until_mark(high, watch)
    changes = changes[[each.path for each in changes].index("z") :]
    assert told(changes) == [
        ("move", "z"),
        ("write", "z/c/f"),
        ("delete", "z/c/f"),
        ("delete", "z/c"),
        ("delete", "z"),
    ]
    assert changes[0].source == "a/b"


async def test_a_tree_that_was_renamed_before_it_was_read_about_is_told(high: Box) -> None:
    await clear(high)
    async with watching(high) as watch:
        await high.bash("mkdir -p a/b && mv a z && echo x > z/b/f")
        changes = await until(watch, "z/b/f")
    assert {("create", "a"), ("move", "z"), ("create", "z/b"), ("create", "z/b/f")} <= {
        *told(changes)
    }


async def test_an_editors_atomic_rename(high: Box) -> None:
    await clear(high)
    await high.write("src/main.py", b"old", parents=True)
    async with watching(high, "src") as watch:
        await high.bash("cd src && echo new > .main.py.swp && mv .main.py.swp main.py")
        changes = await until(watch, "src/main.py")
    assert told(changes)[0] == ("create", "src/.main.py.swp")
    assert changes[-1] == FileChange("move", "src/main.py", False, "src/.main.py.swp")


async def test_what_leaves_and_what_arrives(high: Box) -> None:
    await clear(high)
    await high.write("in/tree/deep/f", b"x", parents=True)
    await high.write("out/other/g", b"x", parents=True)
    async with watching(high, "in") as watch:
        await high.bash("mv in/tree out/tree && echo x >> out/tree/deep/f && mv out/other in/other")
        await high.write("in/other/g", b"y")
        await high.write("in/mark", b"x")
        changes = await until(watch, "in/mark")
    assert told(changes) == [
        ("delete", "in/tree"),
        ("create", "in/other"),
        ("create", "in/other/g"),
        ("create", "in/mark"),
    ]


async def test_one_directory_alone(low: Box) -> None:
    await clear(low)
    await low.mkdir("sub")
    async with watching(low, recursive=False) as watch:
        await low.write("sub/a", b"x")
        await low.write("new/b", b"x", parents=True)
        changes = await until_mark(low, watch)
    assert told(changes) == [("create", "new")]


async def test_a_reader_that_is_slow_is_told_that_changes_are_missing(high: Box) -> None:
    """The kernel's queue is the bound; after it, the watch still sees what comes."""
    await clear(high)
    async with watching(high) as watch:
        await high.python(
            "import os\n"
            "for n in range(20000):\n"
            "    open('f%d' % n, 'w').close(); os.unlink('f%d' % n)"
        )
        await high.mkdir("later")
        changes = await until(watch, ".")
        assert changes[-1].kind == "overflow" or "overflow" in [each.kind for each in changes]
        await high.write("later/a", b"x")
        assert ("create", "later/a") in told(await until(watch, "later/a"))


async def test_a_burst_as_of_a_package_manager(high: Box) -> None:
    """Every file of a tree that is made quickly is told, and only as something that is there."""
    await clear(high)
    script = (
        "import os\n"
        "for p in range(40):\n"
        "    os.makedirs('node_modules/p%d/lib/a' % p)\n"
        "    for f in range(10):\n"
        "        open('node_modules/p%d/lib/a/%d.js' % (p, f), 'w').write('x')"
    )
    seen: set[str] = set()
    async with watching(high) as watch:
        command = await high.start(argv=["python3", "-c", script])
        wanted = {f"node_modules/p{p}/lib/a/{f}.js" for p in range(40) for f in range(10)}
        async with asyncio.timeout(PATIENCE):
            while not wanted <= seen:
                changes = await watch.next(10)
                assert "overflow" not in {each.kind for each in changes}
                seen |= {each.path for each in changes}
        await high.finish(command)


async def test_a_watch_that_is_closed_leaves_no_process(high: Box) -> None:
    await clear(high)
    before = {process.pid for process in high.processes()}
    async with watching(high):
        (worker,) = [each for each in high.processes() if each.pid not in before]
        assert isinstance(worker, psutil.Process)
    await ended(worker)


async def test_the_end_of_the_directory_ends_the_watch(low: Box) -> None:
    await clear(low)
    await low.mkdir("dir")
    async with watching(low, "dir") as watch:
        await low.delete("dir")
        changes = await until(watch, "dir")
        assert told(changes) == [("delete", "dir")]
        assert watch.ended


async def test_what_can_not_be_watched(low: Box) -> None:
    await clear(low)
    await low.write("file", b"x")
    with pytest.raises(NotFoundError):
        await low.plane.file_trees.watch(TESTER, low.session, "missing")
    with pytest.raises(ConflictError):
        await low.plane.file_trees.watch(TESTER, low.session, "file")
    open_ = [await low.plane.file_trees.watch(TESTER, low.session, ".") for _ in range(4)]
    with pytest.raises(BusyError, match="4 watches"):
        await low.plane.file_trees.watch(TESTER, low.session, ".")
    # Watches do not take the place of other operations.
    assert await low.read("file") == b"x"
    for watch in open_:
        await watch.close()
