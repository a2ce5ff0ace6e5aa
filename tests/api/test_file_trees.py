"""Versions, ranges, searches, patches, copies and watches over HTTP, SDK and command line."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from paddock import (
    ConflictError,
    Paddock,
    PaddockSync,
    PreconditionFailedError,
    RangeNotSatisfiableError,
    Session,
)
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cli import run_beside
from tests.support.limits import WAIT_SECONDS

PATCH = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"


@pytest.fixture
async def session(api: Api) -> AsyncIterator[Session]:
    async with Paddock(str(api.server.make_url("/")), ADMIN_KEY) as paddock:
        yield await paddock.sessions.create(permission_level="high")


@pytest.fixture
def path(session: Session) -> str:
    return f"/api/sessions/{session.id}/files"


async def test_versions_over_http(api: Api, path: str) -> None:
    api.agent.files["a.txt"] = b"one"
    first = await api.call("GET", f"{path}?path=a.txt")
    etag = first.headers["ETag"]
    same = await api.call("GET", f"{path}?path=a.txt", headers={"If-None-Match": etag})
    assert (same.status, same.headers["ETag"], await same.read()) == (304, etag, b"")
    one, two = {"If-Match": etag}, {"If-Match": '"other"'}
    other = {"headers": two}
    await api.problem(412, "precondition_failed", "GET", f"{path}?path=a.txt", **other)
    await api.problem(412, "precondition_failed", "DELETE", f"{path}?path=a.txt", **other)
    lost = {"headers": two, "data": b"x"}
    await api.problem(412, "precondition_failed", "PUT", f"{path}?path=a.txt", **lost)
    created = {"headers": {"If-None-Match": "*"}, "data": b"x"}
    await api.problem(412, "precondition_failed", "PUT", f"{path}?path=a.txt", **created)
    assert api.agent.files["a.txt"] == b"one"
    done = await api.json("PUT", f"{path}?path=a.txt", headers=one, data=b"two")
    assert f'"{done["etag"]}"' != etag
    wrong = {"headers": {"If-Match": "other"}, "data": b"x"}
    problem = await api.problem(400, "validation_error", "PUT", f"{path}?path=a.txt", **wrong)
    assert problem["field"] == "If-Match"
    appended = {"headers": one, "data": b"x"}
    await api.problem(400, "validation_error", "PUT", f"{path}?path=a.txt&mode=append", **appended)


async def test_ranges_over_http(api: Api, path: str) -> None:
    api.agent.files["a.txt"] = b"0123456789"
    part = await api.call("GET", f"{path}?path=a.txt", headers={"Range": "bytes=2-4"})
    assert (part.status, await part.read()) == (206, b"234")
    assert part.headers["Content-Range"] == "bytes 2-4/10"
    assert part.headers["Content-Length"] == "3"
    whole = await api.call("GET", f"{path}?path=a.txt", headers={"Range": "bytes=0-1,3-4"})
    assert (whole.status, await whole.read()) == (200, b"0123456789")
    gone = {"headers": {"Range": "bytes=10-"}}
    await api.problem(416, "range_not_satisfiable", "GET", f"{path}?path=a.txt", **gone)


async def test_head(api: Api, path: str) -> None:
    api.agent.files["a.txt"] = b"0123456789"
    head = await api.call("HEAD", f"{path}?path=a.txt")
    found = await api.call("GET", f"{path}?path=a.txt")
    for name in ("ETag", "Content-Length", "X-Paddock-Permissions", "Accept-Ranges"):
        assert head.headers[name] == found.headers[name], name
    assert (await api.call("HEAD", f"{path}?path=absent")).status == 404
    assert (await api.call("HEAD", path)).status == 400


async def test_bad_input_names_the_field(api: Api, path: str) -> None:
    asked = len(api.agent.requests)
    for query, field in (
        ("search?text=", "text"),
        ("search?text=(&regex=true", "text"),
        ("search?text=a&glob={a}", "glob"),
        ("search?text=a&limit=1001", "limit"),
        ("list?glob=[", "glob"),
        ("events?recursive=1", "recursive"),
    ):
        problem = await api.problem(400, "validation_error", "GET", f"{path}/{query}")
        assert problem["field"] == field, query
    for name, body, field in (
        ("patch", {"patch": "hello"}, "patch"),
        ("chmod", {"path": "a", "permissions": "4755"}, "permissions"),
        ("copy", {"source": "a", "destination": "."}, "destination"),
    ):
        problem = await api.problem(400, "validation_error", "POST", f"{path}/{name}", json=body)
        assert problem["field"] == field, name
    assert len(api.agent.requests) == asked


async def test_paths_of_a_patch_are_decided_and_recorded(api: Api, path: str) -> None:
    body = {"patch": PATCH.replace("a/a.txt", "a/../../etc/x").replace("b/a.txt", "b/../../etc/x")}
    problem = await api.problem(403, "permission_denied", "POST", f"{path}/patch", json=body)
    assert problem["rule"] == "path-outside-workspace"
    found = await api.json("GET", path.removesuffix("/files") + "/audit?operation=file.patch")
    assert [each["decision"] for each in found["items"]] == ["deny"]


async def test_the_client(api: Api, session: Session) -> None:
    files = session.files
    await files.write("a.txt", "one\n")
    etag = (await files.stat("a.txt")).etag
    assert await files.exists("a.txt")
    assert not await files.exists("b.txt")
    assert await files.read_text("a.txt") == "one\n"
    assert await files.read("a.txt", offset=1, length=2) == b"ne"
    assert await files.read("a.txt", offset=-2) == b"e\n"
    with pytest.raises(RangeNotSatisfiableError):
        await files.read("a.txt", offset=9)
    with pytest.raises(ValueError, match="length"):
        await files.read("a.txt", offset=-2, length=1)
    done = await files.patch(PATCH)
    assert [(each.path, each.action) for each in done.files] == [("a.txt", "write")]
    with pytest.raises(ConflictError) as refused:
        await files.patch(PATCH)
    assert refused.value.fields["rejects"][0]["header"] == "@@ -1 +1 @@"
    with pytest.raises(PreconditionFailedError):
        await files.write("a.txt", "three\n", if_match=etag)
    with pytest.raises(PreconditionFailedError):
        await files.write("a.txt", "three\n", create=True)
    found = await files.search("two")
    assert [(each.path, each.line, each.text) for each in found.items] == [("a.txt", 1, "two")]
    assert (await files.copy("a.txt", "b.txt")).files == 1
    await files.chmod("b.txt", 0o755)
    assert (await files.stat("b.txt")).permissions == 0o755
    assert await files.delete("b.txt", recursive=True) == 1
    assert set(api.agent.files) == {"a.txt"}


async def test_a_watch(api: Api, session: Session) -> None:
    begun = asyncio.Event()
    seen: list[tuple[str, str, str | None]] = []

    async def watch() -> None:
        async for change in session.files.watch("src", on_ready=begun.set):
            seen.append((change.kind, change.path, change.source))

    watching = asyncio.create_task(watch())
    async with asyncio.timeout(WAIT_SECONDS):
        await begun.wait()
        api.agent.change({"kind": "create", "path": "src/a"})
        await api.agent.asked("file.changes")
        api.agent.change({"kind": "move", "path": "src/b", "source": "src/a"}, ends=True)
        await watching
    assert seen == [("create", "src/a", None), ("move", "src/b", "src/a")]


async def test_a_watch_without_a_client(api: Api, path: str) -> None:
    """What a session's sandbox keeps for a client ends with its connection."""
    following = await api.call("GET", f"{path}/events?path=src")
    assert (await following.content.readuntil(b"\n\n")).startswith(b"event: ready\n")
    api.agent.change({"kind": "write", "path": "src/a"})
    assert b"event: change\n" in await following.content.readuntil(b"\n\n")
    following.close()
    closed = await asyncio.wait_for(api.agent.asked("file.close"), WAIT_SECONDS)
    assert closed["commit"] is False


@pytest.mark.parametrize(
    "answer",
    [
        {"changes": [{"kind": "eaten", "path": "a", "directory": False, "source": None}]},
        {"changes": [{"kind": "write", "path": 1, "directory": False, "source": None}]},
        {"changes": [{"kind": "write", "path": "a"}]},
        {"changes": [1]},
        {"changes": None},
    ],
)
async def test_an_agent_that_lies_ends_the_watch(api: Api, path: str, answer: Any) -> None:
    api.agent.overrides["file.changes"] = lambda _: {"ended": False, **answer}
    following = await api.call("GET", f"{path}/events")
    events = (await following.read()).decode().split("\n\n")
    assert [each.partition("\n")[0] for each in events if each] == ["event: ready", "event: end"]


async def test_the_command_line(
    api: Api, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_URL", str(api.server.make_url("/")))
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    api.agent.files |= {"a.txt": b"one\n", "src/b.py": b"one = 1\n"}
    patch = tmp_path / "fix.diff"
    patch.write_text(PATCH)
    said = await run_beside("files", "search", session.id, "one", "--json")
    assert [each["path"] for each in json.loads(said.out)["items"]] == ["a.txt", "src/b.py"]
    assert "src/b.py:1:one = 1" in (await run_beside("files", "search", session.id, "one")).out
    tried = await run_beside("files", "patch", session.id, str(patch), "--dry-run")
    assert tried.out.split() == ["ACTION", "PATH", "write", "a.txt"]
    assert api.agent.files["a.txt"] == b"one\n"
    assert (await run_beside("files", "patch", session.id, "-", stdin=PATCH.encode())).status == 0
    assert api.agent.files["a.txt"] == b"two\n"
    again = await run_beside("files", "patch", session.id, str(patch))
    assert again.status != 0
    assert "a.txt: @@ -1 +1 @@ its old lines are not in the file" in again.err
    shown = json.loads((await run_beside("files", "stat", session.id, "a.txt", "--json")).out)
    assert shown["etag"] == (await session.files.stat("a.txt")).etag
    assert "etag" in (await run_beside("files", "stat", session.id, "a.txt")).out
    assert (await run_beside("files", "cp", session.id, "a.txt", "c.txt")).status == 0
    assert (await run_beside("files", "chmod", session.id, "755", "c.txt")).status == 0
    assert api.agent.permissions["c.txt"] == 0o755
    assert (await run_beside("files", "chmod", session.id, "u+x", "c.txt")).status == 2
    assert (await run_beside("files", "rm", session.id, "c.txt", "-r")).status == 0
    assert "c.txt" not in api.agent.files
    watching = asyncio.create_task(run_beside("files", "watch", session.id, "src", "--json"))
    await asyncio.wait_for(api.agent.asked("file.changes"), WAIT_SECONDS)
    api.agent.change({"kind": "write", "path": "src/b.py"}, ends=True)
    watched = await watching
    assert watched.status == 0, watched.err
    assert json.loads(watched.out)["path"] == "src/b.py"


async def test_the_client_without_asyncio(api: Api, session: Session) -> None:
    url = str(api.server.make_url("/"))

    def use() -> list[str]:
        with PaddockSync(url, ADMIN_KEY) as paddock:
            files = paddock.sessions.get(session.id).files
            files.write("a.txt", "one\n")
            files.patch(PATCH)
            kinds = [change.kind for change in files.watch(on_ready=ready.set)]
            return [files.read_text("a.txt"), *kinds]

    class Ready:
        def set(self) -> None:
            loop.call_soon_threadsafe(api.agent.change, {"kind": "write", "path": "a.txt"})
            loop.call_soon_threadsafe(lambda: setattr(api.agent, "watch_ends", True))

    loop, ready = asyncio.get_running_loop(), Ready()
    assert await asyncio.to_thread(use) == ["two\n", "write"]
