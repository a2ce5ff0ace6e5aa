"""Names that are not UTF-8, made by commands: every operation lists, takes and records them."""

import pytest

from orchestrator.work.files.file_trees import FileChange
from tests.integration.test_file_watches import until, watching
from tests.support.archives import Entry, tar_of
from tests.support.box import TESTER, Box

pytestmark = pytest.mark.asyncio(loop_scope="module")

# The bytes, as a shell writes them, and the text of lists.
MADE = r"mkdir $'odd\xfe' && printf 'one two\n' > $'odd\xfe/\xff' && ln -s $'\xff' $'odd\xfe/to'"
DIRECTORY, FILE = r"odd\xfe", r"odd\xfe/\xff"


async def test_such_names_are_used_as_they_are_listed(high: Box) -> None:
    files, trees = high.plane.files, high.plane.file_trees
    given = TESTER, high.session
    assert (await high.bash(MADE)).exit_code == 0
    try:
        assert await high.paths(".", depth=2) == [DIRECTORY, FILE, rf"{DIRECTORY}/to"]
        assert (await high.stat(rf"{DIRECTORY}/to")).target == r"\xff"
        assert (await high.stat(FILE)).path == FILE
        assert await high.read(FILE) == await high.read(rf"{DIRECTORY}/to") == b"one two\n"
        globbed = await files.list(*given, ".", 9, "odd?/?")
        assert [each.path for each in globbed.entries] == [FILE]
        found = await trees.search(*given, ".", "two")
        assert [(each.path, each.line) for each in found.matches] == [(FILE, 1)]
        patch = f"--- {FILE}\n+++ {FILE}\n@@ -1 +1 @@\n-one two\n+three\n"
        assert [each.path for each in await trees.patch(*given, ".", patch)] == [FILE]
        await files.chmod(*given, FILE, 0o600)
        await trees.copy(*given, DIRECTORY, r"copy\xfd")
        assert await high.read(r"copy\xfd/\xff") == b"three\n"
        assert (await high.stat(r"copy\xfd/\xff")).mode == "0600"
        await high.move(r"copy\xfd/\xff", r"moved\x80")
        await files.symlink(*given, "link", r"moved\x80")
        assert await high.read("link") == b"three\n"
        assert await files.delete(*given, r"copy\xfd", recursive=True) == 2
        await high.write(r"moved\x80", b"four")
        printed = await high.bash(r"cat $'moved\x80'; ls | od -An -c")
        assert printed.stdout.startswith("four")
        told = [event["args"] for event in await high.events("file.move")][-1]
        moved = {"source": r"copy\xfd/\xff", "destination": r"moved\x80"}
        assert told == {**moved, "asked_by": TESTER.name}
    finally:
        await high.bash("rm -rf odd* copy* moved* link")


async def test_a_name_that_looks_like_an_escape(high: Box) -> None:
    assert (await high.bash(r"printf real > '\xff'; printf raw > $'\xff'")).exit_code == 0
    assert sorted(await high.paths()) == [r"\x5cxff", r"\xff"]
    assert await high.read(r"\x5cxff") == b"real"
    assert await high.read(r"\xff") == b"raw"
    await high.delete(r"\xff")
    assert await high.paths() == [r"\x5cxff"]
    await high.delete(r"\x5cxff")


async def test_a_tar_archive_keeps_them(high: Box) -> None:
    assert (await high.bash(MADE)).exit_code == 0
    packed, told = await high.pack(".")
    assert told.summary.skipped == 0
    await high.bash("rm -rf odd*")
    await high.unpack(packed)
    assert await high.paths(".", depth=2) == [DIRECTORY, FILE, rf"{DIRECTORY}/to"]
    assert (await high.events("file.unpack"))[-1]["result"]["paths"][0] == DIRECTORY
    await high.unpack(tar_of([Entry("from\udcfd", b"x")]), DIRECTORY)
    assert (high.workspace / "odd\udcfe" / "from\udcfd").read_bytes() == b"x"
    await high.bash("rm -rf odd*")


async def test_a_watch_tells_them(high: Box) -> None:
    async with watching(high) as watch:
        await high.bash(r"touch $'\xff' && mv $'\xff' $'\xfe'")
        changes = await until(watch, r"\xfe")
        assert FileChange("create", r"\xff", False, None) in changes
        assert FileChange("move", r"\xfe", False, r"\xff") in changes
    await high.delete(r"\xfe")
