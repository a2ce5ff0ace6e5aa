"""Output that is no text: its bytes in results, pages, events, downloads, and from the clients."""

import asyncio
import base64
import json
import os
import sys
from typing import Any

import pytest
from aiohttp import ClientPayloadError

from paddock import Output, OutputLostError, Paddock
from tests.api.conftest import ADMIN_KEY, Api
from tests.api.test_exec import SSE, read_events
from tests.support.fake_agent import Play

# All bytes, twice, and characters that are split where it is sent in pieces.
BYTES = bytes(range(256)) * 2 + "é€".encode()
ENCODED = base64.b64encode(BYTES).decode()
PIECES = [("stdout", BYTES[at : at + 7]) for at in range(0, len(BYTES), 7)]


@pytest.fixture
async def path(api: Api) -> str:
    api.agents.plays["cat"] = Play(chunks=PIECES)
    return f"/api/sessions/{(await api.session(id='web-1', permission_level='high'))['id']}"


async def test_results_have_the_bytes_that_their_text_has_not(api: Api, path: str) -> None:
    api.agents.plays["both"] = Play(BYTES, "é\N{REPLACEMENT CHARACTER}".encode())
    result = await api.json("POST", path + "/exec", json={"command": "both"})
    assert result["stdout"] == BYTES.decode(errors="replace")
    assert result["stdout_base64"] == ENCODED
    assert "stderr_base64" not in result  # what is text is only text
    assert result["stderr"] == "é\N{REPLACEMENT CHARACTER}"


async def test_events_and_pages_join_to_the_bytes(api: Api, path: str) -> None:
    response = await api.call("POST", path + "/exec", json={"command": "cat"}, headers=SSE)
    events = await read_events(response)
    printed = [data for name, data, _ in events if name == "stdout"]
    assert b"".join(_data(each) for each in printed) == BYTES
    assert all("data_base64" not in each for each in printed if each["text"].isascii())
    command_id = events[0][1]["command_id"]
    page = await api.json("GET", f"{path}/processes/{command_id}")
    assert b"".join(_data(each) for each in page["output"]) == BYTES
    assert page["next"] == len(BYTES)


def _data(told: dict[str, Any]) -> bytes:
    if "data_base64" in told:
        return base64.b64decode(told["data_base64"])
    return str(told["text"]).encode()


async def test_a_download_has_exactly_the_bytes(api: Api, path: str) -> None:
    api.agents.plays["both"] = Play(
        chunks=[("stdout", b"\xff\n"), ("stderr", b"err\xfe"), ("stdout", b"\xe2\x82")]
    )
    command = await api.json("POST", path + "/exec", json={"command": "both"})
    url = f"{path}/processes/{command['command_id']}/output"
    for query, wanted in (
        ("", b"\xff\nerr\xfe\xe2\x82"),
        ("?stream=stdout", b"\xff\n\xe2\x82"),
        ("?stream=stderr", b"err\xfe"),
        ("?after=4", b"r\xfe\xe2\x82"),
        ("?after=8", b""),
    ):
        response = await api.call("GET", url + query)
        assert (response.status, response.content_type) == (200, "application/octet-stream")
        assert await response.read() == wanted, query


async def test_a_part_of_a_download(api: Api, path: str) -> None:
    command = await api.json("POST", path + "/exec", json={"command": "cat"})
    url = f"{path}/processes/{command['command_id']}/output"
    total = len(BYTES)
    whole = await api.call("GET", url)
    tag = whole.headers["ETag"]
    assert whole.headers["Accept-Ranges"] == "bytes"
    for query, wanted, start, end in (
        ("", "bytes=5-9", 5, 10),
        ("", "bytes=0-0", 0, 1),
        ("", "bytes=500-", 500, total),
        ("", "bytes=-3", total - 3, total),
        ("", "bytes=510-9999", 510, total),
        ("?after=10", "bytes=5-9", 5, 10),
    ):
        response = await api.call("GET", url + query, headers={"Range": wanted})
        skipped = 10 if query else 0
        assert response.status == 206, wanted
        assert await response.read() == BYTES[skipped + start : skipped + end], wanted
        said = f"bytes {start}-{end - 1}/{total - skipped}"
        assert response.headers["Content-Range"] == said
        assert response.content_length == end - start
    for headers in (
        {"Range": "bytes=0-1,4-5"},
        {"Range": "lines=1-2"},
        {"Range": "bytes=0-1", "If-Range": '"another"'},
    ):
        response = await api.call("GET", url, headers=headers)
        assert (response.status, await response.read()) == (200, BYTES)
    response = await api.call("GET", url, headers={"Range": "bytes=0-1", "If-Range": tag})
    assert (response.status, await response.read()) == (206, BYTES[:2])
    response = await api.call("GET", url + "?stream=stdout", headers={"Range": "bytes=0-1"})
    assert (response.status, await response.read()) == (200, BYTES)
    assert response.headers["Accept-Ranges"] == "none"
    beyond = {"Range": f"bytes={total}-"}
    await api.problem(416, "range_not_satisfiable", "GET", url, headers=beyond)


async def test_a_part_of_a_download_is_cut_where_bytes_are_missing(api: Api, path: str) -> None:
    command = await api.json("POST", path + "/exec", json={"command": "cat"})
    url = f"{path}/processes/{command['command_id']}/output"
    chunks = [["stdout", at, base64.b64encode(b"\xff").decode()] for at in (0, 9)]
    answer = {"ended": True, "next": len(BYTES), "chunks": chunks}
    api.agent.overrides["output"] = lambda _params: answer
    response = await api.call("GET", url, headers={"Range": "bytes=0-3"})
    assert response.status == 206
    with pytest.raises(ClientPayloadError):
        await response.read()


async def test_a_download_follows_to_the_end(api: Api, path: str) -> None:
    api.agents.plays["tail"] = Play(b"\xff", holds=True)
    body = {"command": "tail", "background": True}
    command_id = (await api.json("POST", path + "/exec", json=body, status=202))["command_id"]
    # Until the command has ended, nobody knows how many bytes a range would be of.
    headers = {"Range": "bytes=0-0"}
    response = await api.call("GET", f"{path}/processes/{command_id}/output", headers=headers)
    assert response.status == 200
    assert await response.content.readexactly(1) == b"\xff"
    api.agent.print(command_id, "stdout", b"\xfe")
    api.agent.end(command_id, 0)
    assert await response.read() == b"\xfe"


async def test_a_download_is_cut_where_bytes_are_missing(api: Api, path: str) -> None:
    command = await api.json("POST", path + "/exec", json={"command": "cat"})
    url = f"{path}/processes/{command['command_id']}/output"
    chunks = [["stdout", at, base64.b64encode(b"\xff").decode()] for at in (0, 9)]
    answer = {"ended": True, "next": len(BYTES), "chunks": chunks}
    api.agent.overrides["output"] = lambda _params: answer
    response = await api.call("GET", url)
    assert await response.content.readexactly(1) == b"\xff"
    with pytest.raises(ClientPayloadError):
        await response.read()
    await api.problem(404, "not_found", "GET", f"{path}/processes/{'0' * 16}/output")
    await api.problem(400, "validation_error", "GET", url + "?stream=both")


async def test_the_client_has_bytes(api: Api, path: str) -> None:
    url = f"http://127.0.0.1:{api.server.port}"
    async with Paddock(url, ADMIN_KEY) as paddock:
        session = await paddock.sessions.get("web-1")
        result = await session.exec("cat")
        assert (result.stdout_bytes, result.stderr_bytes) == (BYTES, b"")
        printed = b""
        async for event in session.exec_stream("cat"):
            if isinstance(event, Output):
                printed += event.data
        assert printed == BYTES
        for stream, after in ((None, 0), ("stdout", 9), ("stderr", 0)):
            output = session.processes.output(result.command_id, stream=stream, after=after)  # type: ignore[arg-type]
            written = b"".join([piece async for piece in output])
            assert written == (b"" if stream == "stderr" else BYTES[after:])
        page = await session.processes.get(result.command_id)
        assert b"".join(piece.data for piece in page.output) == BYTES


async def test_the_client_says_where_bytes_are_missing(api: Api, path: str) -> None:
    command = await api.json("POST", path + "/exec", json={"command": "cat"})
    chunks = [["stdout", at, base64.b64encode(b"\xff").decode()] for at in (0, 9)]
    answer = {"ended": True, "next": len(BYTES), "chunks": chunks}
    api.agent.overrides["output"] = lambda _params: answer
    async with Paddock(f"http://127.0.0.1:{api.server.port}", ADMIN_KEY) as paddock:
        processes = (await paddock.sessions.get("web-1")).processes
        output = processes.output(command["command_id"])
        assert await anext(output) == b"\xff"
        with pytest.raises(OutputLostError) as lost:
            await anext(output)
        assert lost.value.offset == 9


@pytest.mark.slow
async def test_the_command_line_writes_what_the_command_wrote(api: Api, path: str) -> None:
    command = await api.json("POST", path + "/exec", json={"command": "cat"})
    for words in (
        ("exec", "web-1", "--", "cat"),
        ("exec", "--raw", "web-1", "--", "cat"),
        ("run", "--level", "high", "--", "cat"),
        ("output", "web-1", command["command_id"]),
    ):
        assert await _ran(api, *words) == BYTES, words
    for stdin in (None, b"input"):
        told = json.loads(await _ran(api, "exec", "--json", "web-1", "--", "cat", stdin=stdin))
        assert told["stdout_base64"] == ENCODED
        assert told["stdout"] == BYTES.decode(errors="replace")


async def _ran(api: Api, *words: str, stdin: bytes | None = None) -> bytes:
    """What a command of ours writes to a pipe."""
    own = {"PADDOCK_URL": f"http://127.0.0.1:{api.server.port}", "PADDOCK_KEY": ADMIN_KEY}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "paddock", *words),
        env={**os.environ, **own},
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(stdin)
    assert (process.returncode, err) == (0, b"")
    return out
