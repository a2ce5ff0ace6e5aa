"""Requests over kept connections, to nodes that answer anything."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientError
from hypothesis import given
from hypothesis import strategies as st

from gateway import upstream as module
from gateway.call import NodeRequest
from gateway.upstream import UnreachableError, Upstream
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until

_HOST = (("Host", "a"),)
_GET = NodeRequest("GET", "/x", _HOST)
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class _Node:
    """What reached a server that says what the test wants; `arrivals` are its connections."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.arrivals = 0

    async def ask(self, request: NodeRequest = _GET) -> bytes:
        """The whole body of the answer. Raises: ClientError."""
        async with asyncio.timeout(WAIT_SECONDS), self.upstream.asked(request) as answer:
            return await answer.content.read()


@asynccontextmanager
async def _node(talk: Talk) -> AsyncIterator[_Node]:
    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node.arrivals += 1
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the gateway has ended it
        finally:
            writer.transport.abort()

    running: set[asyncio.Task[None]] = set()
    server = await asyncio.start_server(served, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    node = _Node(Upstream("one", url, None))
    try:
        yield node
    finally:
        await node.upstream.close()
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.gather(*running)
        server.close()
        await server.wait_closed()


async def _head(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def _says(*answers: bytes) -> Talk:
    """One answer to each request of a connection; then nothing more."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await _head(reader)
            writer.write(answer)
            await writer.drain()
        await reader.read()

    return talk


async def test_a_connection_is_used_again_and_then_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEEP_SECONDS", 0.2)
    async with _node(_says(_OK, _OK, _OK)) as node:
        assert [await node.ask() for _ in range(2)] == [b"ok", b"ok"]
        assert (node.arrivals, len(node.upstream)) == (1, 1)
        await until(lambda: not len(node.upstream))


@pytest.mark.parametrize(
    "answer",
    [
        _OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",  # to a request that nobody sent
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
)
async def test_what_nobody_asked_for_answers_nobody(answer: bytes) -> None:
    async with _node(_says(answer, answer)) as node:
        assert [await node.ask() for _ in range(2)] == [b"ok", b"ok"]
        assert node.arrivals == 2


async def test_what_comes_later_answers_nobody_either() -> None:
    said = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _head(reader)
        writer.write(_OK)
        await said.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await reader.read()

    async with _node(talk) as node:
        assert await node.ask() == b"ok"
        (kept, _) = node.upstream._kept[0]
        said.set()
        await until(lambda: kept.should_close)
        assert await node.ask() == b"ok"
        assert node.arrivals == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000 + _OK,
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 40_000 + b"\r\n",
        b"220 smtp.example ESMTP\r\n",
        _OK + b"x",
    ],
)
async def test_what_breaks_never_looks_like_an_end(answer: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _head(reader)
        writer.write(answer)
        await writer.drain()

    async with _node(talk) as node:
        with pytest.raises(ClientError):
            await node.ask()
        assert not len(node.upstream)


async def test_reading_is_repeated_on_a_new_connection_and_nothing_else_is() -> None:
    """A node that starts anew has closed what was kept, at the same moment."""
    heads: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await _head(reader))
        writer.write(_OK)
        if node.arrivals == 1:
            heads.append(await _head(reader))  # and no answer

    for method, repeated in (("GET", True), ("DELETE", False), ("POST", False)):
        heads.clear()
        async with _node(talk) as node:
            await node.ask()
            asking = node.ask(NodeRequest(method, "/y", _HOST))
            if repeated:
                assert await asking == b"ok"
            else:
                with pytest.raises(ClientError):
                    await asking
            assert len(heads) == (3 if repeated else 2)


async def test_a_node_may_answer_before_it_has_the_body() -> None:
    """The answer passes, and the rest of the body is not taken for another request."""
    ended = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _head(reader)
        writer.write(b"HTTP/1.1 413 Too Long\r\nContent-Length: 2\r\n\r\nno")
        try:
            while await reader.read(2**16):
                pass
        finally:
            ended.set()

    async def pieces() -> AsyncIterator[bytes]:
        while not ended.is_set():
            yield bytes(1024)
            await asyncio.sleep(0)

    async with _node(talk) as node:
        assert await node.ask(NodeRequest("PUT", "/x", _HOST, pieces())) == b"no"
        async with asyncio.timeout(WAIT_SECONDS):
            await ended.wait()
        assert not len(node.upstream)


@pytest.mark.parametrize("length", [None, 100])
async def test_a_part_of_a_body_is_never_taken_for_the_whole(length: int | None) -> None:
    received: list[bytes] = []
    ended = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _head(reader)
        try:
            while piece := await reader.read(2**16):
                received.append(piece)
        finally:
            ended.set()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"some"
        raise ValueError

    async with _node(talk) as node:
        with pytest.raises(ClientError):
            await node.ask(NodeRequest("PUT", "/x", _HOST, pieces(), length))
        async with asyncio.timeout(WAIT_SECONDS):
            await ended.wait()
        assert b"0\r\n\r\n" not in b"".join(received)
        assert len(b"".join(received)) < 100


@pytest.mark.parametrize("header", [("X", "a\r\nY: b"), ("X\r\nY", "b"), ("X", "a\0")])
async def test_no_header_makes_two(header: tuple[str, str]) -> None:
    async with _node(_says(_OK)) as node:
        with pytest.raises(ValueError, match="header"):
            await node.ask(NodeRequest("GET", "/x", (*_HOST, header)))
        assert not len(node.upstream)


async def test_no_connection_says_why() -> None:
    async with _node(_says(_OK)) as node:
        pass
    with pytest.raises(UnreachableError, match="refused"):
        await node.ask()


_PIECES = st.sampled_from(
    [
        *(
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 101 S\r\n",
            b"HTTP/1.1 100 C\r\n\r\n",
            b"HTTP/1.0 204 N\r\n",
        ),
        *(b"Content-Length: 2\r\n", b"Content-Length: 9\r\n", b"Transfer-Encoding: chunked\r\n"),
        *(b"Connection: close\r\n", b"Connection: upgrade\r\nUpgrade: websocket\r\n", b"\r\n"),
        *(b"2\r\nok\r\n", b"0\r\n\r\n", b"ok", b"\0", b"\xff\xfe", b"ffffffffffffffff\r\n", _OK),
    ]
)


@given(said=st.lists(_PIECES | st.binary(max_size=8), max_size=8))
async def test_whatever_a_node_says_the_next_request_has_its_own_answer(said: list[bytes]) -> None:
    """The client of the first one reads what there is, and leaves."""
    spoken = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not spoken.is_set():
            await _head(reader)
            writer.write(b"".join(said))
            await writer.drain()
            spoken.set()
        assert (await _head(reader)).startswith(b"GET /own")
        writer.write(_OK)
        await writer.drain()

    async with _node(talk) as node:
        first = asyncio.create_task(node.ask())
        await spoken.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert await node.ask(NodeRequest("GET", "/own", _HOST)) == b"ok"
