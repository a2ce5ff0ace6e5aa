"""The client's file operations, and directories from malicious workspaces."""

import os
import tarfile
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from io import BytesIO
from itertools import islice, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock import (
    ConflictError,
    LimitError,
    NotFoundError,
    Paddock,
    PermissionDeniedError,
    Session,
    Transfer,
)
from paddock.client.errors import ConnectionLostError, PaddockError
from paddock.client.local_directory import Directory, leads_inside
from paddock.client.tar_stream import Receiving
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.archives import Entry, is_loop, tar_of
from tests.support.fake_agent import AgentRefusalError
from tests.support.fake_archives import summary

_LINKS = ("a", "b", "d/a", "d/b", "d/e/a", "d/e/b")
_STEPS = ("..", ".", "", "a", "b", "d", "e")


@pytest.fixture
async def session(api: Api) -> AsyncIterator[Session]:
    async with Paddock(str(api.server.make_url("/")), ADMIN_KEY) as paddock:
        yield await paddock.sessions.create(permission_level="high")


def sends(api: Api, data: bytes, *skipped: str, more: int = 0) -> None:
    """Every archive of the workspace is this."""
    told = {
        **summary([]),
        **{"skipped": len(skipped) + more, "skipped_names": list(skipped)},
    }
    parts = [data[start : start + 1000] for start in range(0, len(data), 1000)]

    def opened(_params: Any) -> Any:
        left[:] = parts
        return {"stream": 9, "size": 0, "summary": told}

    left: list[bytes] = []
    api.agent.overrides["file.open"] = opened
    api.agent.overrides["file.pull"] = lambda _params: {"data": left.pop(0) if left else b""}


def tree(root: Path) -> dict[str, bytes | str]:
    """Everything beneath a directory; symlinks as their targets."""
    return {
        path.relative_to(root).as_posix(): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


async def test_one_file(api: Api, session: Session) -> None:
    files = session.files
    assert await files.write("a/ä b", "tëxt") == 5
    assert await files.append("/workspace/a/ä b", b"!") == 1
    assert await files.read("a/ä b") == "tëxt!".encode()
    assert await files.write("b", BytesIO(b"from a file")) == 11

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    assert await files.write("c", pieces()) == 7
    await files.move("c", "d")
    assert api.agents.files["d"] == b"one two"
    await files.delete("d")
    with pytest.raises(NotFoundError):
        await files.read("d")
    with pytest.raises(PermissionDeniedError) as caught:
        await files.read("../proc/x")
    assert caught.value.rule == "path-outside-workspace"
    await files.mkdir("e/f")
    listing = await files.list(depth=3)
    assert [(item.path, item.size, item.mode) for item in listing.items] == [
        ("a/ä b", 6, "0644"),
        ("b", 11, "0644"),
    ]


async def test_one_file_with_its_permissions(api: Api, session: Session, tmp_path: Path) -> None:
    await session.files.write("run", b"#!/bin/sh", permissions=0o700)
    assert await session.files.download("run", tmp_path / "copy") == 9
    assert (tmp_path / "copy").read_bytes() == b"#!/bin/sh"
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700
    await session.files.write("run", b"", permissions=0o644)
    assert await session.files.download("run", tmp_path / "copy") == 0
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o644
    # Older agents do not report a mode; a reported one is reduced to nine bits.
    for told, mode in ((None, 0o644), (0o4755, 0o755)):
        api.agent.permissions["run"] = told  # type: ignore[assignment]
        await session.files.download("run", tmp_path / "copy")
        assert (tmp_path / "copy").stat().st_mode & 0o7777 == mode
    with pytest.raises(NotFoundError):
        await session.files.download("absent", tmp_path / "absent")
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


async def test_large_files(api: Api, session: Session) -> None:
    content = os.urandom(700_000)
    await session.files.write("big", content)
    assert await session.files.read("big") == content
    assert b"".join([piece async for piece in session.files.read_stream("big")]) == content
    with pytest.raises(LimitError, match="more than 1000 bytes"):
        await session.files.read("big", max_bytes=1000)


async def test_there_and_back(api: Api, session: Session, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "empty").mkdir()
    for number in range(20):
        (source / "deep" / f"{number}.txt").write_text(str(number))
    (source / "deep" / "er" / "x").write_bytes(os.urandom(300_000))
    sent = await session.files.upload_dir(source, "in")
    assert (sent.files, sent.skipped) == (21, ())
    assert api.agent.directories == {"in/empty"}
    assert set(api.agents.files) == {f"in/{name}" for name in tree(source)}
    back = await session.files.download_dir("in", target)
    assert back == sent
    assert tree(target) == tree(source)


async def test_permissions_travel(api: Api, session: Session, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    modes = {"run": 0o755, "own": 0o700, "plain": 0o644, "fixed": 0o444}
    for name, mode in modes.items():
        (source / name).write_text(name)
        (source / name).chmod(mode)
    (source / "run").chmod(0o4755)
    await session.files.upload_dir(source)
    assert api.agent.permissions == modes
    for _ in range(2):  # read-only files are replaced, too
        await session.files.download_dir(".", target)
        assert {path.name: path.stat().st_mode & 0o7777 for path in target.iterdir()} == modes
    await session.files.write("plain", "x", permissions=0o600)
    assert api.agent.permissions["plain"] == 0o600
    # Modes from a workspace never make a file writable for other users of this machine.
    api.agent.permissions["plain"] = 0o7777
    before = os.umask(0o022)
    try:
        await session.files.download_dir(".", target)
    finally:
        os.umask(before)
    assert (target / "plain").stat().st_mode & 0o7777 == 0o755


async def test_links_that_stay_inside_travel(api: Api, session: Session, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "bin").mkdir(parents=True)
    (source / "lib").mkdir()
    (source / "lib" / "tool").write_text("tool")
    inside = {"bin/tool": "../lib/tool", "latest": "lib", "bin/dangling": "./nothing"}
    outside = {"up": "..", "bin/out": "../../x", "abs": "/etc", "bin/odd": "../latest/../../x"}
    for name, leads_to in (inside | outside).items():
        (source / name).symlink_to(leads_to)
    sent = await session.files.upload_dir(source)
    assert (sent.files, sent.links, set(sent.skipped)) == (1, 3, set(outside))
    assert api.agent.links == inside
    api.agent.links |= outside
    target.mkdir()
    (target / "latest").symlink_to("/etc")
    got = await session.files.download_dir(".", target)
    assert (got.links, set(got.skipped)) == (3, set(outside))
    assert {path: text for path, text in tree(target).items() if isinstance(text, str)} == inside


@given(st.lists(st.tuples(st.sampled_from(_LINKS), st.lists(st.sampled_from(_STEPS))), max_size=6))
def test_links_that_seem_to_stay_inside_do(links: list[tuple[str, list[str]]]) -> None:
    """Links never lead out, whatever their combination."""
    with TemporaryDirectory() as name:
        root = Path(name).resolve() / "root"
        (root / "d" / "e").mkdir(parents=True)
        for link, steps in links:
            place, target = root / link, "/".join(steps)
            if leads_inside(link, target) and not os.path.lexists(place):
                place.symlink_to(target)
                with suppress(OSError):  # links in a loop or to missing files lead nowhere
                    assert Path(os.path.realpath(place, strict=True)).is_relative_to(root)


async def test_what_is_no_file_stays(api: Api, session: Session, tmp_path: Path) -> None:
    source, secret = tmp_path / "source", tmp_path / "secret"
    source.mkdir()
    secret.mkdir()
    (secret / "key").write_text("secret")
    (source / "plain").write_text("plain")
    (source / "link").symlink_to(secret / "key")
    (source / "linked").symlink_to(secret)
    (source / "dangling").symlink_to("nowhere")
    os.mkfifo(source / "fifo")
    os.mkdir(os.fsencode(source) + b"/\xff")
    (source / "\udcff" / "unseen").write_text("")
    sent = await session.files.upload_dir(source)
    assert sent == Transfer(files=2, bytes=5, skipped=("fifo", "link", "linked"), links=1)
    assert api.agents.files == {"plain": b"plain", "\udcff/unseen": b""}
    with pytest.raises(FileNotFoundError):
        await session.files.upload_dir(tmp_path / "nothing")
    with pytest.raises(NotADirectoryError):
        await session.files.upload_dir(source / "plain")


async def test_nothing_is_written_outside(api: Api, session: Session, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    names = ("../evil", "/evil", "a/../../evil", "a//b", "./a")
    evil = [Entry(name, b"x") for name in names]
    links = [Entry("up", kind="symlink", target=".."), Entry("abs", kind="symlink", target="/etc")]
    others = [Entry("hard", kind="link", target="../x"), Entry("pipe", kind="fifo")]
    odd = [Entry("..", kind="directory"), Entry("device", kind="device")]
    sends(api, tar_of([Entry("good", b"x"), *evil, *links, *others, *odd]), "socket", more=2)
    got = await session.files.download_dir(".", target)
    assert got.files == 1
    assert {"socket", "pipe", "up", "abs", "hard"} <= set(got.skipped)
    assert len(got.skipped) == len(evil) + len(links) + len(others) + len(odd) + 1
    assert got.more_skipped == 2
    assert tree(tmp_path) == {"target/good": b"x"}


async def test_archives_that_are_damaged(api: Api, session: Session, tmp_path: Path) -> None:
    data = tar_of([Entry("first", b"1"), Entry("n" * 300, b"x" * 5000)])
    damaged = bytearray(data)
    damaged[1024 + 3] ^= 1
    for sent in (b"", data[:100], data[:3000], bytes(damaged), b"x" * 1000, data[512:]):
        sends(api, bytes(sent))
        with pytest.raises(ConnectionLostError, match="damaged"):
            await session.files.download_dir(".", tmp_path)
    assert set(tree(tmp_path)) <= {"first"}


def receive(target: Path, pieces: Iterable[bytes]) -> Receiving:
    receiving = Receiving(Directory(target, make=True), 10_000, "it", None)
    try:
        for piece in pieces:
            receiving.feed(piece)
        receiving.finish()
    finally:
        receiving.close()
    return receiving


_END = 2 * 512


def headers_only(entry: Entry) -> bytes:
    """The headers of an entry, without the end of the archive."""
    info = tarfile.TarInfo(entry.name)
    info.type, info.linkname = tarfile.SYMTYPE, entry.target
    return info.tobuf(tarfile.PAX_FORMAT)


def extended() -> bytes:
    """An extended header without the entry that it belongs to."""
    return headers_only(Entry("l", target="t" * 200))[:-512]


@pytest.mark.slow
@pytest.mark.parametrize(
    "endless",
    [
        pytest.param(headers_only(Entry("l", target="t" * 60_000)), id="long target"),
        pytest.param(headers_only(Entry("n" * 60_000)), id="long name"),
        pytest.param(headers_only(Entry("l", target="t" * 4095)), id="links"),
        pytest.param(extended(), id="extended headers"),
    ],
)
def test_endless_headers_end(tmp_path: Path, endless: bytes) -> None:
    pieces = islice(repeat(endless * 10), 1000)
    with pytest.raises((LimitError, ConnectionLostError)):
        receive(tmp_path / "in", pieces)
    assert next(pieces, None) is not None
    assert tree(tmp_path) == {}


def test_an_extended_header_belongs_to_an_entry(tmp_path: Path) -> None:
    empty = tarfile.TarInfo("empty")
    empty.type = tarfile.XHDTYPE
    for data in (extended() + bytes(_END), empty.tobuf() * 2 + bytes(_END)):
        with pytest.raises(ConnectionLostError, match="damaged"):
            receive(tmp_path / "in", [data])


def test_little_may_follow_the_end(tmp_path: Path) -> None:
    data = tar_of([Entry("a", b"x")])
    assert receive(tmp_path / "in", [data, bytes(1024 * 512)]).files == 1
    for after in ([b"x"], [bytes(1024 * 256)] * 5):
        with pytest.raises(ConnectionLostError, match="damaged"):
            receive(tmp_path / "in", [data, *after])


def test_few_skipped_names_are_kept(tmp_path: Path) -> None:
    pipes = tar_of([Entry(f"pipe{number}", kind="fifo") for number in range(1200)])
    received = receive(tmp_path / "in", [pipes])
    assert (len(received.skipped), received.more_skipped) == (1000, 200)


def test_nothing_is_linked_after_the_close(tmp_path: Path) -> None:
    receiving = Receiving(Directory(tmp_path / "in", make=True), 10_000, "it", None)
    receiving.feed(tar_of([Entry("link", kind="symlink", target="x")]))
    receiving.close()
    receiving.finish()  # a thread that was abandoned
    assert receiving.links == 0
    assert tree(tmp_path) == {}


async def test_directories_are_closed_in_threads(
    api: Api, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    close = Directory.close

    def noted(directory: Directory) -> None:
        closed.append(threading.get_ident())
        close(directory)

    monkeypatch.setattr(Directory, "close", noted)
    await session.files.upload_dir(tmp_path)
    await session.files.download_dir(".", tmp_path)
    assert len(closed) == 2
    assert threading.get_ident() not in closed


_PARTS = st.sampled_from(["..", ".", "", "a", "b", "\xff"])
_PATHS = st.lists(_PARTS, min_size=1, max_size=3).map("/".join)


@given(
    st.lists(
        st.builds(
            Entry,
            _PATHS,
            st.binary(max_size=600),
            st.sampled_from(["file", "directory", "symlink", "link", "fifo"]),
            st.integers(0, 0o7777),
            _PATHS,
        ),
        max_size=6,
    ),
    st.integers(0, 4000),
    st.integers(0, 255),
)
def test_any_archive_stays_inside(entries: list[Entry], at: int, value: int) -> None:
    data = bytearray(tar_of(entries))
    data[at % len(data)] = value
    with TemporaryDirectory() as name:
        root = Path(name).resolve()
        (root / "beside").write_bytes(b"kept")
        receiving = Receiving(Directory(root / "in", make=True), 10_000, "it", None)
        try:
            for start in range(0, len(data), 700):
                receiving.feed(bytes(data[start : start + 700]))
            receiving.finish()
        except (PaddockError, OSError):
            pass
        finally:
            receiving.close()
        assert sorted(os.listdir(root)) == ["beside", "in"]
        assert (root / "beside").read_bytes() == b"kept"
        for path in (root / "in").rglob("*"):
            assert not path.name.startswith(".paddock")
            # The library takes some links to themselves for links to the root.
            assert is_loop(path) or Path(os.path.realpath(path)).is_relative_to(root / "in")


async def test_progress(api: Api, session: Session, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(3):
        (source / str(number)).write_bytes(bytes(300_000))
    seen: list[tuple[int, int]] = []
    await session.files.upload_dir(source, progress=lambda *so_far: seen.append(so_far))
    assert seen == sorted(seen)
    assert seen[-1] == (3, 900_000)
    seen.clear()
    got = tmp_path / "target"
    await session.files.download_dir(".", got, progress=lambda *so_far: seen.append(so_far))
    assert seen[-1] == (3, 900_000)


async def test_a_local_file_that_can_not_be_read(
    api: Api, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"a")

    def broken(_self: Directory, _name: str) -> Any:
        raise PermissionError(13, "Permission denied", "a")

    monkeypatch.setattr(Directory, "open_file", broken)
    with pytest.raises(PermissionError):
        await session.files.upload_dir(tmp_path)
    assert api.agents.files == {}


async def test_links_in_the_target_are_not_followed(
    api: Api, session: Session, tmp_path: Path
) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (outside / "file").write_text("kept")
    (target / "file").symlink_to(outside / "file")
    (target / "directory").symlink_to(outside)
    sends(api, tar_of([Entry("file", b"new")]))
    await session.files.download_dir(".", target)
    assert (target / "file").read_bytes() == b"new"
    assert not (target / "file").is_symlink()
    sends(api, tar_of([Entry("directory/file", b"new")]))
    with pytest.raises(OSError, match="directory"):
        await session.files.download_dir(".", target)
    sends(api, tar_of([Entry("directory/sub", kind="directory")]))
    with pytest.raises(OSError, match="directory"):
        await session.files.download_dir(".", target)
    assert tree(outside) == {"file": b"kept"}


async def test_a_download_that_fails_leaves_no_parts(
    api: Api, session: Session, tmp_path: Path
) -> None:
    (tmp_path / "big").write_text("before")
    api.agents.files["big"] = b"x" * 600_000
    with pytest.raises(LimitError):
        await session.files.download_dir(".", tmp_path, max_bytes=300_000)

    def broken(_params: Any) -> Any:
        raise AgentRefusalError("conflict", "not a regular file")

    api.agent.overrides["file.open"] = broken
    with pytest.raises(ConflictError):
        await session.files.download_dir(".", tmp_path)
    assert tree(tmp_path) == {"big": b"before"}
