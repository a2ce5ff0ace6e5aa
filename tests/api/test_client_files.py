"""The client's file operations, and directories from malicious workspaces."""

import os
from collections.abc import AsyncIterator
from contextlib import suppress
from io import BytesIO
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
from paddock.client.local import leads_inside
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.fake_agent import AgentRefusalError

_LINKS = ("a", "b", "d/a", "d/b", "d/e/a", "d/e/b")
_STEPS = ("..", ".", "", "a", "b", "d", "e")


@pytest.fixture
async def session(api: Api) -> AsyncIterator[Session]:
    async with Paddock(str(api.server.make_url("/")), ADMIN_KEY) as paddock:
        yield await paddock.sessions.create(permission_level="high")


def entry(path: str, kind: str = "file", size: int = 1) -> dict[str, Any]:
    return {"path": path, "type": kind, "size": size, "mode": 0o644, "modified": 1.5}


def holds(api: Api, *entries: dict[str, Any]) -> None:
    """Every listing of the workspace returns these entries."""
    listing = {"entries": list(entries), "truncated": False}
    api.agent.overrides["file.list"] = lambda _params: listing


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
    made = {params["path"] for method, params in api.agent.requests if method == "file.mkdir"}
    assert made == {"in/deep/er", "in/empty"}
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
    holds(api, entry("plain") | {"mode": 0o7777})
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
    assert sent == Transfer(files=1, bytes=5, skipped=("fifo", "link", "linked", "\udcff"), links=1)
    assert api.agents.files == {"plain": b"plain"}
    with pytest.raises(FileNotFoundError):
        await session.files.upload_dir(tmp_path / "nothing")
    with pytest.raises(NotADirectoryError):
        await session.files.upload_dir(source / "plain")


async def test_nothing_is_written_outside(api: Api, session: Session, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    for name in ("good", "../evil", "/evil", "a/../../evil", "a//b", "./a", "", "x\0y"):
        api.agents.files[name] = b"x"
    holds(
        api,
        entry("good"),
        *(entry(name) for name in ("../evil", "/evil", "a/../../evil", "a//b", "./a", "", "x\0y")),
        entry("link", "symlink"),
        entry("socket", "other"),
        entry("..", "directory"),
        entry("gone"),
    )
    got = await session.files.download_dir(".", target)
    assert got.files == 1
    assert len(got.skipped) == 11
    assert tree(tmp_path) == {"target/good": b"x"}


async def test_entries_beside_what_was_asked_for(
    api: Api, session: Session, tmp_path: Path
) -> None:
    for name in ("in/a", "inside", "other/b"):
        api.agents.files[name] = b"x"
    holds(api, entry("in", "directory"), entry("in/a"), entry("inside"), entry("other/b"))
    got = await session.files.download_dir("/workspace/in/", tmp_path)
    assert tree(tmp_path) == {"a": b"x"}
    assert got.skipped == ("in", "inside", "other/b")


async def test_links_in_the_target_are_not_followed(
    api: Api, session: Session, tmp_path: Path
) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (outside / "file").write_text("kept")
    (target / "file").symlink_to(outside / "file")
    (target / "directory").symlink_to(outside)
    api.agents.files |= {"file": b"new", "directory/file": b"new"}
    holds(api, entry("file"))
    await session.files.download_dir(".", target)
    assert (target / "file").read_bytes() == b"new"
    assert not (target / "file").is_symlink()
    holds(api, entry("directory/file"))
    with pytest.raises(OSError, match="directory"):
        await session.files.download_dir(".", target)
    holds(api, entry("directory/sub", "directory"))
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


async def test_more_entries_than_one_listing_tells(
    api: Api, session: Session, tmp_path: Path
) -> None:
    directories = {
        ".": [entry("a", "directory"), entry("b", "directory")],
        "a": [entry("a/1"), entry("a/c", "directory")],
        "a/c": [entry("a/c/2")],
    }
    api.agents.files |= {"a/1": b"1", "a/c/2": b"2"}

    def listing(params: Any) -> Any:
        path, depth = params["path"], params["depth"]
        if path == "b":
            raise AgentRefusalError("not_found", "gone meanwhile")
        return {"entries": directories[path], "truncated": depth > 1 and path != "a/c"}

    api.agent.overrides["file.list"] = listing
    got = await session.files.download_dir(".", tmp_path)
    assert tree(tmp_path) == {"a/1": b"1", "a/c/2": b"2"}
    assert got.skipped == ("b",)
    api.agent.overrides["file.list"] = lambda _params: {"entries": [], "truncated": True}
    with pytest.raises(LimitError):
        await session.files.download_dir(".", tmp_path)
