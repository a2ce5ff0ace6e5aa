"""Files of a workspace, through the agent of a real sandbox."""

import asyncio
import hashlib
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchestrator.ground.errors import (
    BusyError,
    ConflictError,
    NotFoundError,
    PaddockError,
    PermissionDeniedError,
    TooLargeError,
    ValidationError,
)
from tests.conftest import BoxFactory
from tests.support.box import TESTER, Box

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 2**20


def names(box: Box, directory: str = ".") -> list[str]:
    """All names in a directory of the workspace, as the host sees it."""
    return sorted(os.listdir(box.workspace / directory))


# Reading and writing


async def test_a_file_is_written_read_and_owned_by_the_session(low: Box) -> None:
    assert await low.write("a.txt", b"hello ", b"world") == 11
    assert await low.read("a.txt") == b"hello world"
    assert await low.read("/workspace/a.txt") == b"hello world"
    status = (low.workspace / "a.txt").stat()
    assert (status.st_uid, status.st_gid, status.st_mode) == (low.uid, low.uid, 0o100644)
    assert (await low.run("cat a.txt")).stdout == "hello world"


async def test_an_empty_file(low: Box) -> None:
    assert await low.write("empty") == 0
    assert await low.read("empty") == b""


async def test_overwriting_replaces_all_and_keeps_the_mode(high: Box) -> None:
    await high.write("script", b"#!/bin/sh\necho a long first version\n")
    await high.bash("chmod 750 script")
    await high.write("script", b"#!/bin/sh\necho two\n")
    assert await high.read("script") == b"#!/bin/sh\necho two\n"
    assert (high.workspace / "script").stat().st_mode == 0o100750
    assert (await high.run(argv=["./script"])).stdout == "two\n"


async def test_permissions_that_are_asked_for(high: Box) -> None:
    await high.write("run", b"#!/bin/sh\necho ran\n", permissions=0o755)
    assert (await high.bash("./run")).stdout == "ran\n"
    with pytest.raises(ValidationError, match="permissions"):
        await high.write("run", b"x", permissions=0o4600)
    assert (high.workspace / "run").stat().st_mode == 0o100755
    await high.write("run", b"x", permissions=0o600)
    assert (high.workspace / "run").stat().st_mode == 0o100600


async def test_permissions_of_a_file_that_is_read(high: Box) -> None:
    await high.write("tool", b"x", permissions=0o750)
    await high.plane.files.symlink(TESTER, high.session, "to-tool", "tool")
    for path in ("tool", "to-tool", "/workspace/tool"):
        download = await high.plane.files.read(TESTER, high.session, path)
        assert download.permissions == 0o750
        await download.close()


async def test_links(high: Box) -> None:
    await high.write("lib", b"one")
    await high.plane.files.symlink(TESTER, high.session, "link", "./lib")
    assert await high.read("link") == b"one"
    (entry,) = [e for e in (await high.listing()).entries if e.path == "link"]
    assert (entry.type, entry.target) == ("symlink", "./lib")
    # An existing link is replaced, not followed; a directory stays.
    await high.plane.files.symlink(TESTER, high.session, "link", "other")
    assert (high.workspace / "lib").read_bytes() == b"one"
    assert (high.workspace / "link").readlink() == Path("other")
    await high.mkdir("directory")
    with pytest.raises(ConflictError):
        await high.plane.files.symlink(TESTER, high.session, "directory", "lib")
    with pytest.raises(PermissionDeniedError):
        await high.plane.files.symlink(TESTER, high.session, "out", "../etc/passwd")
    assert not any(name.startswith(".paddock") for name in names(high))


async def test_overwriting_is_no_way_to_a_setuid_file(high: Box) -> None:
    await high.write("suid", b"x")
    await high.bash("chmod 6755 suid")
    await high.write("suid", b"y")
    assert (high.workspace / "suid").stat().st_mode == 0o100755


async def test_appending_adds_at_the_end(low: Box) -> None:
    assert await low.write("log", b"one\n", mode="append") == 4
    assert await low.write("log", b"two\n", mode="append") == 4
    assert await low.read("log") == b"one\ntwo\n"


async def test_a_missing_directory_is_not_made(low: Box) -> None:
    with pytest.raises(NotFoundError):
        await low.write("no/such/dir/file", b"x")
    with pytest.raises(NotFoundError):
        await low.read("missing")


async def test_100_megabytes_in_flat_memory(high: Box) -> None:
    agent = high.agent()
    block = os.urandom(MIB)
    digest = hashlib.sha256()
    await high.write("warm-up", block)
    before = agent.memory_info().rss

    async def blocks() -> AsyncIterator[bytes]:
        for _ in range(100):
            digest.update(block)
            yield block

    plane, peak = high.plane, before
    size = await plane.files.write(TESTER, high.session, "big", "overwrite", blocks())
    assert size == 100 * MIB
    peak = max(peak, agent.memory_info().rss)
    read = hashlib.sha256()
    download = await plane.files.read(TESTER, high.session, "big")
    assert download.size == 100 * MIB
    async for chunk in download.chunks():
        read.update(chunk)
        peak = max(peak, agent.memory_info().rss)
    await download.close()
    assert read.digest() == digest.digest()
    assert peak - before < 8 * MIB
    await high.delete("big")


@pytest.mark.parametrize("mode", ["overwrite", "append"])
async def test_an_upload_that_breaks_off_changes_nothing(high: Box, mode: str) -> None:
    await high.write("kept", b"old content")
    before = names(high)

    async def broken() -> AsyncIterator[bytes]:
        yield bytes(3 * MIB)
        raise ConnectionResetError("the client is gone")

    with pytest.raises(ConnectionResetError):
        await high.plane.files.write(TESTER, high.session, "kept", mode, broken())
    # The worker that undid the write sends no answer, but the next request runs after it.
    await high.mkdir("after")
    assert await high.read("kept") == b"old content"
    assert names(high) == sorted({*before, "after"})


async def test_a_new_file_that_breaks_off_is_not_there(low: Box) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError

    for mode in ("overwrite", "append"):
        with pytest.raises(ConnectionResetError):
            await low.plane.files.write(TESTER, low.session, "never", mode, broken())
        with pytest.raises(NotFoundError):
            await low.read("never")


async def test_a_cancelled_upload_changes_nothing(low: Box) -> None:
    await low.write("kept", b"old")
    started = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x"
        started.set()
        await asyncio.Event().wait()

    work = low.plane.files.write(TESTER, low.session, "kept", "overwrite", endless())
    task = asyncio.create_task(work)
    await started.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await low.read("kept") == b"old"
    assert not [name for name in names(low) if name.startswith(".paddock")]


async def test_a_write_over_the_workspace_limit_is_refused(new_box: BoxFactory) -> None:
    box = await new_box("low", limits={"workspace_bytes": 16 * MIB})
    with pytest.raises(TooLargeError):
        await box.write("big", *([bytes(256 * 1024)] * 65))
    assert names(box) == []


async def test_two_writers_one_wins_whole(low: Box) -> None:
    texts = [bytes([65 + number]) * 300_000 for number in range(4)]
    await asyncio.gather(*(low.write("race", text) for text in texts))
    assert await low.read("race") in texts


# Directories


async def test_directories_are_made_listed_and_removed(low: Box) -> None:
    await low.mkdir("d/e/f")
    await low.mkdir("d/e")
    await low.write("d/e/file", b"12345")
    assert await low.paths("d") == ["d/e"]
    assert await low.paths("d", depth=3) == ["d/e", "d/e/f", "d/e/file"]
    listed = {item.path: item for item in (await low.listing("d/e")).entries}
    assert listed["d/e/file"].type == "file"
    assert listed["d/e/file"].size == 5
    assert listed["d/e/file"].mode == "0644"
    assert listed["d/e/f"].type == "directory"
    with pytest.raises(ConflictError, match="not empty"):
        await low.delete("d/e")
    await low.delete("d/e/file")
    await low.delete("d/e/f")
    await low.delete("d/e")
    await low.delete("d")
    with pytest.raises(NotFoundError):
        await low.delete("d")


async def test_mkdir_over_a_file_is_a_conflict(low: Box) -> None:
    await low.write("plain", b"")
    with pytest.raises(ConflictError):
        await low.mkdir("plain")
    with pytest.raises(ConflictError):
        await low.mkdir("plain/below")
    with pytest.raises(ConflictError):
        await low.listing("plain")


async def test_the_workspace_itself_can_be_listed_but_not_touched(new_box: BoxFactory) -> None:
    box = await new_box("low")
    await box.write("x", b"")
    for path in (".", "/workspace", "./", "x/.."):
        assert await box.paths(path) == ["x"]
        for operation in (box.delete, box.mkdir, box.write, box.read):
            with pytest.raises(ValidationError):
                await operation(path)
        with pytest.raises(ValidationError):
            await box.move(path, "elsewhere")
    assert names(box) == ["x"]


async def test_moving(low: Box) -> None:
    await low.mkdir("from/sub")
    await low.write("from/a", b"a")
    await low.write("target", b"old")
    await low.move("from/a", "target")
    assert await low.read("target") == b"a"
    await low.move("from", "renamed")
    assert await low.paths("renamed") == ["renamed/sub"]
    with pytest.raises(NotFoundError):
        await low.move("from", "again")
    with pytest.raises(ConflictError):
        await low.move("target", "renamed")
    with pytest.raises(PaddockError):
        await low.move("renamed", "renamed/sub/inside-itself")
    await low.delete("renamed/sub")


async def test_stat_tells_what_something_is(high: Box) -> None:
    await high.mkdir("s")
    await high.write("s/file", b"abc")
    await high.bash("ln -sfn /etc/passwd s/link; mkfifo s/pipe")
    kinds = [(await high.stat(f"s/{name}")).type for name in ("file", "link", "pipe", "")]
    assert kinds == ["file", "symlink", "other", "directory"]
    assert (await high.stat("s/file")).size == 3


async def test_a_listing_is_cut_at_ten_thousand(high: Box) -> None:
    await high.bash("mkdir many && cd many && seq -w 1 10001 | xargs touch")
    listed = await high.listing("many")
    assert (len(listed.entries), listed.truncated) == (10_000, True)
    await high.bash("rm many/00001")
    listed = await high.listing("many")
    assert (len(listed.entries), listed.truncated) == (10_000, False)
    paths = [item.path for item in listed.entries]
    assert paths == sorted(paths)


async def test_a_listing_of_long_names_is_cut_where_it_is_full(high: Box) -> None:
    script = "import os\nfor n in range(4000): open(f'{n:05d}' + chr(1) * 250, 'w').close()"
    await high.mkdir("long")
    assert (await high.python(script, cwd="long")).exit_code == 0
    listed = await high.listing("long")
    assert listed.truncated
    assert 1000 < len(listed.entries) < 4000
    await high.bash("rm -r long")


async def test_a_deep_tree_is_listed_as_deep_as_asked(high: Box) -> None:
    source = """
import os
os.mkdir("deep")
os.chdir("deep")
for _ in range(1500):
    os.mkdir("d")
    os.chdir("d")
"""
    assert (await high.python(source)).exit_code == 0
    assert len(await high.paths("deep", depth=40)) == 40
    assert len(await high.paths("deep", depth=1000)) == 64
    await high.bash("rm -r deep")


async def test_what_cannot_be_read_is_listed_by_name(high: Box) -> None:
    await high.bash("mkdir -p locked/inner open; touch locked/inner/x; chmod 0 locked/inner")
    assert await high.paths("locked", depth=2) == ["locked/inner"]
    with pytest.raises(PermissionDeniedError) as refused:
        await high.listing("locked/inner")
    assert refused.value.fields["rule"] == "file-permissions"
    await high.bash("chmod 700 locked/inner")


# Names

NAMES = ["with space", "new\nline", "tab\t", "-rf", "ünï", "quote'\"", "back\\slash", "\x01", "~"]


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_is_a_name(low: Box, name: str) -> None:
    await low.mkdir("names")
    await low.write(f"names/{name}", name.encode())
    assert await low.read(f"names/{name}") == name.encode()
    assert f"names/{name}" in await low.paths("names")
    await low.move(f"names/{name}", "names/moved")
    await low.move("names/moved", f"names/{name}")
    await low.delete(f"names/{name}")
    assert await low.paths("names") == []


async def test_names_that_are_not_text_are_shown_escaped(new_box: BoxFactory) -> None:
    box = await new_box("high")
    await box.python(r"open(b'bad\xff\nname', 'w').close(); import os; os.mkdir(b'\xfe')")
    await box.python(r"open(b'\xfe/inside', 'w').close()")
    assert await box.paths(".", depth=2) == [r"\xfe", r"\xfe/inside", "bad\\xff\nname"]


async def test_long_names(low: Box) -> None:
    await low.write("n" * 255, b"x")
    assert await low.read("n" * 255) == b"x"
    with pytest.raises(ValidationError, match="too long"):
        await low.write("n" * 256, b"x")
    deep = "/".join(["d" * 200] * 20)
    await low.mkdir(deep)
    await low.write(f"{deep}/f", b"deep")
    assert await low.read(f"{deep}/f") == b"deep"
    with pytest.raises(ValidationError, match="longer than 4096"):
        await low.read("x/" * 2100)
    await low.delete("n" * 255)


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800"])
async def test_what_is_no_path_is_refused(low: Box, path: str) -> None:
    with pytest.raises(ValidationError):
        await low.read(path)


# Entries that are not files


async def test_only_regular_files_are_opened(high: Box) -> None:
    await high.mkdir("kinds")
    await high.python(
        "import os, socket; os.chdir('kinds'); os.mkfifo('fifo');"
        "s = socket.socket(socket.AF_UNIX); s.bind('socket'); os.mkdir('directory')"
    )
    for name in ("fifo", "directory"):
        with pytest.raises(ConflictError):
            await high.read(f"kinds/{name}")
    for name in ("fifo", "socket", "directory"):
        for mode in ("overwrite", "append"):
            with pytest.raises(PaddockError):
                await high.write(f"kinds/{name}", b"x", mode=mode)
    with pytest.raises(PaddockError):
        await high.read("kinds/socket")
    device = high.workspace / "kinds/device"
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    for device_work in (high.read("kinds/device"), high.write("kinds/device", b"x")):
        with pytest.raises(PaddockError):
            await device_work
    for name in ("fifo", "socket", "directory", "device"):
        await high.delete(f"kinds/{name}")
    assert names(high, "kinds") == []


async def test_a_hard_link_is_replaced_not_written_through(high: Box) -> None:
    await high.write("one", b"shared")
    await high.bash("ln one two")
    await high.write("two", b"new")
    assert await high.read("one") == b"shared"
    await high.bash("ln -f one two")
    await high.write("two", b"+", mode="append")
    assert await high.read("one") == b"shared+"


# Many at once


async def test_eight_operations_run_at_once_and_no_more(low: Box) -> None:
    await low.write("held", b"x")
    held = [await low.plane.files.read(TESTER, low.session, "held") for _ in range(8)]
    with pytest.raises(BusyError):
        await low.read("held")
    # Commands do not wait for files.
    assert (await low.run("ls held")).exit_code == 0
    for download in held:
        await download.close()
    assert await low.read("held") == b"x"


async def test_a_transfer_that_is_stuck_holds_up_nobody(high: Box) -> None:
    """A stopped worker answers nothing, and the agent serves all other requests."""
    await high.write("stuck", bytes(4 * MIB))
    download = await high.plane.files.read(TESTER, high.session, "stuck")
    (worker,) = high.processes()
    worker.suspend()
    reading = asyncio.ensure_future(anext(download.chunks()))
    assert (await high.run(argv=["echo", "served"])).stdout == "served\n"
    assert await high.read("stuck") == bytes(4 * MIB)
    assert not reading.done()
    worker.resume()
    assert len(await reading) > 0
    await download.close()


async def test_a_worker_that_is_killed_fails_its_request_only(high: Box) -> None:
    await high.write("kept", b"before")
    started = asyncio.Event()
    killed = asyncio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        yield bytes(MIB)
        started.set()
        await killed.wait()
        yield bytes(MIB)

    work = high.plane.files.write(TESTER, high.session, "kept", "overwrite", chunks())
    task = asyncio.create_task(work)
    await started.wait()
    (worker,) = high.processes()
    worker.kill()
    killed.set()
    with pytest.raises(PaddockError):
        await task
    assert await high.read("kept") == b"before"


# Records


async def test_every_operation_is_on_record_before_its_answer(new_box: BoxFactory) -> None:
    box = await new_box("low")
    await box.mkdir("d")
    await box.write("d/f", b"12345")
    await box.write("d/f", b"6", mode="append")
    await box.read("d/f")
    await box.listing("d")
    await box.move("d/f", "d/g")
    await box.delete("d/g")
    events = (await box.events())[1:]
    assert {event["args"].pop("asked_by") for event in events} == {TESTER.name}
    recorded = [(e["operation"], e["args"], e["result"]) for e in events]
    assert recorded == [
        ("file.mkdir", {"path": "d"}, {}),
        ("file.write", {"path": "d/f", "mode": "write"}, {"bytes": 5}),
        ("file.write", {"path": "d/f", "mode": "append"}, {"bytes": 1}),
        ("file.read", {"path": "d/f", "mode": "read"}, {"bytes": 6}),
        ("file.list", {"path": "d", "depth": 1, "limit": 10_000}, {"entries": 1}),
        ("file.move", {"source": "d/f", "destination": "d/g"}, {}),
        ("file.delete", {"path": "d/g"}, {}),
    ]


async def test_failures_and_denials_are_on_record(new_box: BoxFactory) -> None:
    box = await new_box("low")
    with pytest.raises(NotFoundError):
        await box.read("missing")
    with pytest.raises(PermissionDeniedError):
        await box.read("../etc/passwd")
    (box.workspace / "out").symlink_to("/etc")
    with pytest.raises(PermissionDeniedError):
        await box.read("out/passwd")
    missing, traversal, link = (await box.events("file.read"))[:3]
    assert (missing["decision"], missing["error"]) == (
        "allow",
        "No such file or directory: missing",
    )
    for event in (traversal, link):
        assert (event["decision"], event["rule"]) == ("deny", "path-outside-workspace")
    assert (traversal["source"], link["source"]) == ("control-plane", "agent")
