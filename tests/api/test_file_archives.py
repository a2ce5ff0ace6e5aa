"""The archive routes: parameters, refusals, streams, and agents that lie."""

import asyncio
import hashlib
import io
import json
import tarfile
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientPayloadError

from sandbox_agent.decide.protocol import Message
from tests.api.conftest import Api
from tests.support.archives import Entry, tar_of
from tests.support.cases import each
from tests.support.fake_agent import AgentRefusalError


@pytest.fixture
async def path(api: Api) -> str:
    return f"/api/sessions/{(await api.session())['id']}/files/archive"


async def test_there_and_back(api: Api, path: str) -> None:
    entries = [Entry("a.txt", b"alpha", mode=0o600), Entry("b", kind="symlink", target="a.txt")]
    written = await api.json("PUT", path + "?path=src", data=tar_of(entries))
    digest = hashlib.sha256(b"src/a.txt\0src/b\0").hexdigest()
    assert written == {
        **{"path": "src", "format": "tar", "files": 1, "directories": 0, "links": 1, "bytes": 5},
        **{"paths_sha256": digest, "skipped": 0, "skipped_names": []},
    }
    assert api.agents.files == {"src/a.txt": b"alpha"}
    response = await api.call("GET", path + "?path=src")
    assert response.status == 200
    assert response.headers["X-Paddock-Skipped"] == "0"
    assert json.loads(response.headers["X-Paddock-Skipped-Names"]) == []
    with tarfile.open(fileobj=io.BytesIO(await response.read())) as archive:
        assert archive.getnames() == ["a.txt", "b"]
    opened = [params for method, params in api.agent.requests if method == "file.open"]
    assert [(each["op"], each["path"], each["format"]) for each in opened] == [
        ("unpack", "src", "tar"),
        ("pack", "src", "tar"),
    ]


@pytest.mark.parametrize(
    "query", ["?path=", "?format=rar", "?path=a%00b", "?depth=1", "?path=a&path=b"]
)
@each("method", ["GET", "PUT"])
async def test_bad_parameters(api: Api, path: str, method: str, query: str) -> None:
    await api.problem(400, "validation_error", method, path + query)
    assert api.agents.files == {}


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_paths_that_leave_the_workspace(api: Api, path: str, method: str) -> None:
    problem = await api.problem(403, "permission_denied", method, path + "?path=../x")
    assert problem["rule"] == "path-outside-workspace"


async def test_a_refused_entry(api: Api, path: str) -> None:
    def refuse(_params: Message) -> Message:
        raise AgentRefusalError("permission_denied", "entry '../x' has …", "path-outside-workspace")

    api.agent.overrides["file.push"] = refuse
    problem = await api.problem(403, "permission_denied", "PUT", path, data=b"x")
    assert "'../x'" in problem["detail"]
    assert (await api.agent.asked("file.close"))["commit"] is False


async def test_an_upload_that_breaks_off(api: Api, path: str) -> None:
    sent = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield tar_of([Entry("a", b"x" * 100_000)])[:50_000]
        sent.set()
        await asyncio.Event().wait()

    upload = asyncio.create_task(api.call("PUT", path, data=body()))
    await sent.wait()
    await api.agent.asked("file.push")
    upload.cancel()
    await asyncio.gather(upload, return_exceptions=True)
    assert (await api.agent.asked("file.close"))["commit"] is False
    assert api.agents.files == {}


async def test_unpacking_in_steps(api: Api, path: str) -> None:
    """The agent is asked again until everything is unpacked."""
    done = {
        **{"files": 1, "directories": 0, "links": 0, "bytes": 5},
        **{"paths": ["a"], "paths_words": 1, "paths_sha256": "0" * 64},
    }
    answers: list[Message] = [
        {"bytes": 0, "more": True},
        {"bytes": 0, "more": True},
        {"bytes": 0, "more": False, "summary": done},
    ]
    api.agent.overrides["file.close"] = lambda _params: answers.pop(0)
    assert (await api.json("PUT", path + "?format=zip", data=b"x"))["files"] == 1
    assert answers == []


@each(
    "summary",
    [
        None,
        [],
        {},
        {"files": -1, "directories": 0, "links": 0, "bytes": 0, "paths_sha256": "0" * 64},
        {"files": 1, "directories": 0, "links": 0, "bytes": 0, "paths_sha256": "x"},
        {"files": "1", "directories": 0, "links": 0, "bytes": 0, "paths_sha256": "0" * 64},
    ],
)
async def test_summaries_that_can_not_be(api: Api, path: str, summary: Any) -> None:
    api.agent.overrides["file.close"] = lambda _params: {"bytes": 0, "summary": summary}
    await api.problem(502, "sandbox_unavailable", "PUT", path, data=b"")


@pytest.mark.slow
@each(
    "members",
    [
        *({"skipped_names": value} for value in ("x", [5], ["x"] * 1000, None)),
        *({"skipped": value} for value in (None, -1, True)),
    ],
)
async def test_what_can_not_be_skipped(api: Api, path: str, members: Message) -> None:
    told = {
        **{"files": 0, "directories": 0, "links": 0, "bytes": 0, "paths_sha256": "0" * 64},
        **{"skipped": 0, "skipped_names": [], **members},
    }
    api.agent.overrides["file.open"] = lambda _params: {"stream": 9, "size": 0, "summary": told}
    await api.problem(502, "sandbox_unavailable", "GET", path)
    assert (await api.agent.asked("file.close"))["stream"] == 9


async def test_names_that_a_header_could_not_hold(api: Api, path: str) -> None:
    names = ["line\r\nX-Evil: 1", "ünï", '"']
    told = {
        **{"files": 0, "directories": 0, "links": 0, "bytes": 0, "paths_sha256": "0" * 64},
        **{"skipped": 3, "skipped_names": names},
    }
    api.agent.overrides["file.open"] = lambda _params: {"stream": 9, "size": 0, "summary": told}
    api.agent.overrides["file.pull"] = lambda _params: {"data": b""}
    response = await api.call("GET", path)
    assert "X-Evil" not in response.headers
    assert json.loads(response.headers["X-Paddock-Skipped-Names"]) == names


async def test_an_archive_that_fails_in_the_middle_is_not_taken_for_whole(
    api: Api, path: str
) -> None:
    answers: list[Message] = [{"data": b"x" * 256 * 1024}, {"data": 5}]
    api.agent.overrides["file.pull"] = lambda _params: answers.pop(0) if answers else {}
    response = await api.call("GET", path)
    with pytest.raises(ClientPayloadError):
        await response.read()


async def test_an_archive_that_does_not_end_is_cut(
    api: Api, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.work.files.file_archives._MOST_HEADERS", 1024 * 1024)
    sent = 0

    def pull(_params: Message) -> Message:
        nonlocal sent
        sent += 256 * 1024
        return {"data": bytes(256 * 1024)}

    api.agent.overrides["file.pull"] = pull
    response = await api.call("GET", path)
    with pytest.raises(ClientPayloadError):
        await response.read()
    assert sent < 4 * 1024 * 1024
    await api.agent.asked("file.close")
