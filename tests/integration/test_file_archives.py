"""Directories as tar and zip archives, unpacked and packed in a real sandbox."""

import asyncio
import hashlib
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchestrator.ground.errors import ConflictError, NotFoundError, PaddockError, TooLargeError
from tests.support.archives import Entry, tar_of, zip_of
from tests.support.box import TESTER, Box
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TREE = [
    Entry("src", kind="directory", mode=0o750),
    Entry("src/main.py", b"print('main')\n"),
    Entry("src/run", b"#!/bin/sh\necho ran\n", mode=0o755),
    Entry("src/empty", b""),
    Entry("deep/er/than/this", b"x" * 700_000, mode=0o600),
    Entry("src/again", target="main.py", kind="symlink"),
    Entry("latest", target="src", kind="symlink"),
    Entry("ünïcödé " + "n" * 200, b"name"),
]


def shape(root: Path) -> dict[str, tuple[int, bytes | str]]:
    """Everything beneath a directory: mode, and content or target."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        name = path.relative_to(root).as_posix()
        if stat.S_ISLNK(status.st_mode):
            found[name] = (0, os.readlink(path))
        elif stat.S_ISDIR(status.st_mode):
            found[name] = (status.st_mode, b"")
        else:
            found[name] = (status.st_mode, path.read_bytes())
    return found


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize("level", ["low", "high"])
async def test_there_and_back(low: Box, high: Box, kind: str, level: str) -> None:
    box = low if level == "low" else high
    data = tar_of(TREE) if kind == "tar" else zip_of(TREE)
    written = await box.unpack(data, f"there-{kind}", kind)
    assert (written.files, written.directories, written.links) == (5, 1, 2)
    assert written.bytes == 700_000 + len(b"print('main')\n#!/bin/sh\necho ran\nname")
    there = shape(box.workspace / f"there-{kind}")
    assert there["src"][0] == 0o40750
    assert there["src/run"] == (0o100755, b"#!/bin/sh\necho ran\n")
    assert there["deep/er/than/this"] == (0o100600, b"x" * 700_000)
    assert there["src/again"] == (0, "main.py")
    owners = {path.lstat().st_uid for path in (box.workspace / f"there-{kind}").rglob("*")}
    assert owners == {box.uid}
    packed, told = await box.pack(f"there-{kind}", kind)
    assert (told.skipped, told.skipped_names) == (0, ())
    assert told.summary.bytes == written.bytes
    again = await box.unpack(packed, f"back-{kind}", kind)
    assert (again.files, again.links, again.bytes) == (5, 2, written.bytes)
    assert shape(box.workspace / f"back-{kind}") == there


async def test_other_programs_read_and_write_the_same(high: Box, tmp_path: Path) -> None:
    await high.unpack(tar_of(TREE), "for-others")
    packed, _ = await high.pack("for-others")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(tmp_path / "tar", filter="tar")
    assert shape(tmp_path / "tar") == shape(high.workspace / "for-others")
    zipped, _ = await high.pack("for-others", "zip")
    with zipfile.ZipFile(io.BytesIO(zipped)) as archive:
        assert archive.testzip() is None
        assert archive.read("src/run") == b"#!/bin/sh\necho ran\n"
    script = "cd for-others && tar cf ../gnu.tar . && tar cf ../pax.tar --format=pax ."
    assert (await high.bash(script)).exit_code == 0
    for name in ("gnu", "pax"):
        await high.unpack(await high.read(f"{name}.tar"), name)
        assert shape(high.workspace / name) == shape(high.workspace / "for-others")


@pytest.mark.parametrize("kind", ["tar", "zip"])
async def test_times_and_long_names(high: Box, kind: str) -> None:
    """A slash is the 100th byte of a file's path, and all of it is old."""
    above = f"{'d' * 49}/{'e' * 49}"
    script = f"mkdir -p old/{above}; cd old; echo 1 > {above}/module.py; : > {above}/empty.py"
    ages = (
        f"ln -s {'d' * 49} link; touch -hd @1000000000 {above}/* link; touch -d @999999999 {above}"
    )
    assert (await high.bash(f"{script}; {ages}")).exit_code == 0
    packed, _ = await high.pack("old", kind)
    await high.unpack(packed, f"old-{kind}", kind)
    look = f"cd old-{kind}; stat -c '%F %Y' {above}/* {above} link"
    assert (await high.bash(look)).stdout.split("\n") == [
        "regular empty file 1000000000",
        "regular file 1000000000",
        "directory 999999999",
        "symbolic link 1000000000",
        "",
    ]


async def test_hard_links_are_kept(high: Box) -> None:
    entries = [Entry("a", b"one"), Entry("d/b", kind="link", target="a")]
    written = await high.unpack(tar_of(entries), "hard")
    assert (written.files, written.links) == (1, 1)
    await high.bash("echo two > hard/a")
    assert await high.read("hard/d/b") == b"two\n"
    # Once more: the files are replaced, and nothing else is left.
    await high.unpack(tar_of(entries), "hard")
    assert sorted(shape(high.workspace / "hard")) == ["a", "d", "d/b"]


async def test_one_event_tells_what_was_moved(high: Box) -> None:
    names = [f"f{number}" for number in range(1200)]
    before = await high.events("file.unpack")
    written = await high.unpack(tar_of([Entry(name, b"x") for name in names]), "many")
    (event,) = (await high.events("file.unpack"))[len(before) :]
    digest = hashlib.sha256(b"".join(name.encode() + b"\0" for name in names)).hexdigest()
    assert event["args"] == {"path": "many", "format": "tar", "asked_by": TESTER.name}
    assert event["decision"] == "allow"
    result = event["result"]
    assert result["paths"] == names[:1000]
    assert result["paths_words"] == 1200
    assert result["paths_sha256"] == digest == written.paths_sha256
    assert (result["files"], result["bytes"]) == (1200, 1200)
    before = await high.events("file.pack")
    _, told = await high.pack("many")
    (event,) = (await high.events("file.pack"))[len(before) :]
    assert event["result"]["paths_words"] == 1200
    assert event["result"]["paths_sha256"] == told.summary.paths_sha256


async def test_names_that_take_more_room_as_json(high: Box) -> None:
    script = "mkdir control; cd control; head=$(printf '\\001%.0s' $(seq 240))"
    made = await high.bash(f"{script}; for number in $(seq 140); do touch $head$number; done")
    assert made.exit_code == 0
    before = await high.events("file.pack")
    _, told = await high.pack("control")
    (event,) = (await high.events("file.pack"))[len(before) :]
    assert told.summary.files == event["result"]["files"] == event["result"]["paths_words"] == 140
    assert 0 < len(event["result"]["paths"]) < 140
    assert (await high.bash("true")).exit_code == 0
    await high.bash("rm -r control")


async def test_what_can_not_be_packed_is_named(high: Box) -> None:
    script = (
        "mkdir -p odd/d odd/shut && cd odd && echo kept > kept && mkfifo pipe && ln -s /etc out &&"
        " ln -s ../x up && ln -s kept in && touch secret && chmod 0 secret shut &&"
        " touch $(printf 'd/\\377')"
    )
    assert (await high.bash(script)).exit_code == 0
    for kind in ("tar", "zip"):
        packed, told = await high.pack("odd", kind)
        names = {"pipe", "out", "up", "secret", "shut"}
        assert set(told.skipped_names) == (names | {"d/\\xff"} if kind == "zip" else names)
        assert told.skipped == len(told.skipped_names)
        await high.unpack(packed, f"odd-{kind}", kind)
        held = {"tar": ["d", "d/\udcff", "in", "kept"], "zip": ["d", "in", "kept"]}
        assert sorted(shape(high.workspace / f"odd-{kind}")) == held[kind]


async def test_a_file_of_the_image(high: Box) -> None:
    packed, _ = await high.pack("/usr/share/zoneinfo/Etc")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert "UTC" in archive.getnames()
    await high.unpack(tar_of([Entry("x", b"x")]), "/tmp/there")
    assert (await high.bash("cat /tmp/there/x")).stdout == "x"


async def test_a_directory_that_is_none(low: Box) -> None:
    await low.write("plain", b"x")
    with pytest.raises(NotFoundError):
        await low.pack("missing")
    with pytest.raises(ConflictError):
        await low.pack("plain")
    with pytest.raises(ConflictError):
        await low.unpack(tar_of(TREE), "plain")
    assert await low.read("plain") == b"x"


async def test_a_read_only_file_is_kept(low: Box) -> None:
    await low.write("kept/fixed", b"old", permissions=0o444, parents=True)
    with pytest.raises(PaddockError, match="fixed"):
        await low.unpack(tar_of([Entry("fixed", b"new")]), "kept")
    assert await low.read("kept/fixed") == b"old"


async def test_an_upload_that_breaks_off_leaves_whole_files_and_no_helper(high: Box) -> None:
    data = tar_of([Entry("first", b"1" * 5000), Entry("second", b"2" * 2_000_000)])

    async def broken() -> AsyncIterator[bytes]:
        yield data[:300_000]
        await until((high.workspace / "half" / "first").exists)
        raise ConnectionResetError("the client has gone")

    before = await high.events("file.unpack")
    with pytest.raises(ConnectionResetError):
        await high.plane.file_archives.unpack(TESTER, high.session, "half", "tar", broken())
    assert sorted(shape(high.workspace / "half")) == ["first"]
    (event,) = (await high.events("file.unpack"))[len(before) :]
    assert event["result"]["paths"] == ["first"]
    assert "completely" in event["error"]
    await until(lambda: not high.processes())


async def test_a_caller_that_gives_up_leaves_no_helper(high: Box) -> None:
    """Ten times, because only eight file operations may be under way."""
    data, arrived = tar_of([Entry("big", b"x" * 3_000_000)]), asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield data[:1_000_000]
        arrived.set()
        await asyncio.Event().wait()

    for _ in range(10):
        arrived.clear()
        unpacking = asyncio.create_task(
            high.plane.file_archives.unpack(TESTER, high.session, "given-up", "tar", stuck())
        )
        await arrived.wait()
        unpacking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await unpacking
        download = await high.plane.file_archives.pack(TESTER, high.session, ".", "tar")
        async for _chunk in download.chunks():
            break
        await download.close()
    await until(lambda: not high.processes())
    assert not (high.workspace / "given-up" / "big").exists()


async def test_a_helper_that_is_killed(high: Box) -> None:
    data = tar_of([Entry("a", b"a"), Entry("big", b"x" * 3_000_000)])

    async def pieces() -> AsyncIterator[bytes]:
        yield data[:1_000_000]
        # Only four pushes may be under way: after six, the first is answered.
        yield data[1_000_000:1_500_000]
        for helper in high.processes():
            helper.kill()
        await asyncio.Event().wait()

    before = await high.events("file.unpack")
    with pytest.raises(ConflictError, match="did not finish"):
        await high.plane.file_archives.unpack(TESTER, high.session, "killed", "tar", pieces())
    events = (await high.events("file.unpack"))[len(before) :]
    assert len(events) == 1
    assert events[0]["error"]
    assert (events[0]["result"]["files"], events[0]["result"]["paths"]) == (1, ["a"])
    assert (await high.bash("true")).exit_code == 0


async def test_a_zip_that_needs_more_than_one_step(
    high: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [Entry(f"{number // 500}/{number}", b"x") for number in range(20_000)]
    written = await high.unpack(zip_of(entries), "steps", "zip")
    assert written.files == 20_000
    await high.bash("rm -r steps")


async def test_more_than_the_workspace_may_hold(low: Box) -> None:
    bomb = zip_of([Entry(f"{number}", bytes(64 * 2**20)) for number in range(5)])
    assert len(bomb) < 2**20
    with pytest.raises(TooLargeError, match="written before"):
        await low.unpack(bomb, "bomb", "zip")
    sizes = [path.stat().st_size for path in (low.workspace / "bomb").iterdir()]
    assert sum(sizes) <= 256 * 2**20
    for path in (low.workspace / "bomb").iterdir():
        await low.delete(f"bomb/{path.name}")
