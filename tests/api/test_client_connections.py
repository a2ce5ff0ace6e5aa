"""The client's connections for small calls, with servers that answer byte by byte."""

import asyncio
import gc
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import pytest

from paddock import (
    ConnectionLostError,
    NoAnswerError,
    NotPaddockError,
    Paddock,
    PaddockSync,
    UnreachableError,
)
from tests.support.limits import WAIT_SECONDS

Serve = Callable[["Line"], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Line:
    """One connection, as the server has it."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.number = number
        self._reader, self._writer = reader, writer

    async def head(self) -> bytes:
        """The next request's head; its body is skipped. Raises: IncompleteReadError."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name == b"content-length":
                await self._reader.readexactly(int(value))
        return head

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def end(self) -> None:
        """Waits until the client closes the connection."""
        with suppress(ConnectionError):
            assert await self._reader.read() == b""


class Server:
    """Serves each connection with `serve`, and keeps the heads of the requests."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.url = ""
        self.accepted = 0
        self.ended = 0
        self._change = asyncio.Condition()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._serve(Line(self.accepted, reader, writer))
        writer.close()
        async with self._change:
            self.ended += 1
            self._change.notify_all()

    async def all_ended(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS), self._change:
            await self._change.wait_for(lambda: self.ended == count)


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[Server]:
    server = Server(serve)
    listening = await asyncio.start_server(server.connection, "127.0.0.1", 0)
    try:
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server
    finally:
        listening.close()
        await server.all_ended(server.accepted)


class Client:
    """A client of either interface."""

    def __init__(self, made: Paddock | PaddockSync) -> None:
        self._made = made
        self.pool = made._api.pool

    async def request(self, *words: str, **options: Any) -> dict[str, Any]:
        if isinstance(self._made, Paddock):
            return await self._made.request(*words, **options)
        return await asyncio.to_thread(self._made.request, *words, **options)

    async def json(self, *words: str, **options: Any) -> dict[str, Any]:
        asking = self._made._api.json(*words, **options)
        thread = self._made._link.thread
        return await (asking if thread is None else asyncio.to_thread(thread.run, asking))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if isinstance(self._made, Paddock):
            await self._made.close()
        else:
            await asyncio.to_thread(self._made.close)


Face = Callable[..., Client]


@pytest.fixture(params=[Paddock, PaddockSync])
def face(request: pytest.FixtureRequest) -> Face:
    return lambda *words, **options: Client(request.param(*words, **options))


async def always(line: Line) -> None:
    while True:
        await line.head()
        line.send(OK)


async def test_what_is_sent(face: Face) -> None:
    heads: list[bytes] = []

    async def serve(line: Line) -> None:
        while True:
            heads.append(await line.head())
            line.send(OK)

    async with serving(serve) as server, face(f"{server.url}/prefix/", "key") as paddock:
        await paddock.request("POST", "/a b", body={"x": 1}, params={"q": "a b&c\n"})
        await paddock.request("GET", "/")
    host = server.url.removeprefix("http://").encode()
    fixed = (
        b"Host: %b\r\nUser-Agent: paddock-python\r\nAccept: */*\r\nAccept-Encoding: identity\r\n"
        b"Authorization: Bearer key\r\n" % host
    )
    assert heads == [
        b"POST /prefix/a%20b?q=a+b%26c%0A HTTP/1.1\r\n"
        + fixed
        + b"Content-Type: application/json\r\nContent-Length: 7\r\n\r\n",
        b"GET /prefix/ HTTP/1.1\r\n" + fixed + b"\r\n",
    ]


@pytest.mark.parametrize("path", ["x", ".evil.example/", ""])
async def test_a_path_can_not_change_the_host(face: Face, path: str) -> None:
    async with serving(always) as server, face(server.url, "key") as paddock:
        with pytest.raises(ValueError, match="slash"):
            await paddock.request("GET", path)
        assert server.accepted == 0


async def test_a_connection_is_used_again_and_closed_at_the_end(face: Face) -> None:
    async with serving(always) as server:
        async with face(server.url, "key") as paddock:
            for _ in range(3):
                assert await paddock.request("POST", "/x", body={}) == {}
            assert (server.accepted, server.ended) == (1, 0)
        await server.all_ended(1)
        with pytest.raises(RuntimeError, match="closed"):
            await paddock.request("GET", "/x")


async def test_a_hundred_at_once_each_with_its_own_answer(face: Face) -> None:
    waiting, all_there = 0, asyncio.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(100))

    async def serve(line: Line) -> None:
        nonlocal waiting
        while True:
            path = (await line.head()).split()[1]
            waiting += 1
            if waiting == 100:
                all_there.set()
            await all_there.wait()
            body = b'{"path": "%b"}' % path
            head = OK.replace(b"Length: 2", b"Length: %d" % len(body)).removesuffix(b"{}")
            # In two parts, so that answers are interleaved.
            line.send(head)
            await asyncio.sleep(0)
            line.send(body)

    async with serving(serve) as server, face(server.url, "key") as paddock:
        for _ in range(2):
            waiting = 0
            all_there.clear()
            got = await asyncio.gather(
                *(paddock.request("GET", f"/{number}") for number in range(100))
            )
            assert got == [{"path": f"/{number}"} for number in range(100)]
        assert server.accepted == 100


@pytest.mark.parametrize(
    "answer",
    [
        OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        OK + b"HTTP/1.1 200 OK\r\n",
        OK.replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
async def test_connections_that_end_with_their_answer(face: Face, answer: bytes) -> None:
    async def serve(line: Line) -> None:
        await line.head()
        line.send(answer)
        await line.end()

    async with serving(serve) as server, face(server.url, "key") as paddock:
        for number in (1, 2):
            assert await paddock.request("POST", "/x", body={}) == {}
            await server.all_ended(number)


async def test_an_answer_that_nobody_asked_for_is_not_taken_for_the_next(face: Face) -> None:
    more, sent = asyncio.Event(), asyncio.Event()

    async def serve(line: Line) -> None:
        await line.head()
        line.send(OK)
        if line.number == 1:
            await more.wait()
            line.send(OK.replace(b"{}", b"[]"))
            sent.set()
        await line.end()

    async with serving(serve) as server, face(server.url, "key") as paddock:
        await paddock.request("GET", "/x")
        more.set()
        await sent.wait()
        assert await paddock.request("GET", "/x") == {}
        await server.all_ended(1)


async def dies_at_the_second(line: Line) -> None:
    """As a server that closes an idle connection when the request is on its way."""
    await line.head()
    line.send(OK)
    await line.head()


async def test_reading_survives_a_stale_connection(face: Face) -> None:
    async with (
        serving(dies_at_the_second) as server,
        face(server.url, "key", get_retries=0) as paddock,
    ):
        for _ in range(3):
            assert await paddock.request("GET", "/x") == {}
        assert server.accepted == 3


@pytest.mark.parametrize("by", ["own connections", "aiohttp"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_another_request_is_never_sent_twice(face: Face, method: str, by: str) -> None:
    async with serving(dies_at_the_second) as server, face(server.url, "key") as paddock:
        paddock.pool.plain = by == "own connections"
        await paddock.request(method, "/x", body={})
        with pytest.raises(ConnectionLostError, match=f"{method} /x"):
            await paddock.request(method, "/x", body={})
        assert server.accepted == 1
        assert await paddock.request(method, "/x", body={}) == {}


async def test_a_stale_connection_is_replaced_once(face: Face) -> None:
    async def serve(line: Line) -> None:
        await line.head()
        if line.number == 1:
            line.send(OK)
            await line.head()

    async with serving(serve) as server, face(server.url, "key", get_retries=0) as paddock:
        await paddock.request("GET", "/x")
        with pytest.raises(ConnectionLostError):
            await paddock.request("GET", "/x")
        assert server.accepted == 2


@pytest.mark.parametrize("length", range(1, len(OK)))
async def test_a_server_that_dies_in_its_answer(face: Face, length: int) -> None:
    async def serve(line: Line) -> None:
        await line.head()
        line.send(OK)
        await line.head()
        line.send(OK[:length])

    async with serving(serve) as server, face(server.url, "key", get_retries=0) as paddock:
        await paddock.request("GET", "/x")
        with pytest.raises(ConnectionLostError):
            await paddock.request("GET", "/x")
        assert server.accepted == 1


async def test_a_head_that_never_ends(face: Face) -> None:
    async def serve(line: Line) -> None:
        await line.head()
        line.send(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000)
        await line.end()

    async with serving(serve) as server, face(server.url, "key", get_retries=0) as paddock:
        with pytest.raises(NotPaddockError, match="head"):
            await paddock.request("GET", "/x")
        await server.all_ended(1)


async def test_a_cancelled_request_closes_its_connection() -> None:
    arrived = asyncio.Event()

    async def serve(line: Line) -> None:
        await line.head()
        if line.number == 1:
            arrived.set()
            await line.end()
        line.send(OK)
        await line.end()

    async with serving(serve) as server, Paddock(server.url, "key") as paddock:
        asking = asyncio.create_task(paddock.request("POST", "/x", body={}))
        await arrived.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await server.all_ended(1)
        assert await paddock.request("POST", "/x", body={}) == {}
        assert server.accepted == 2


async def test_a_request_without_an_answer_in_time_closes_its_connection(face: Face) -> None:
    async def serve(line: Line) -> None:
        await line.head()
        if line.number == 1:
            line.send(OK[:-1])
        else:
            line.send(OK)
        await line.end()

    async with (
        serving(serve) as server,
        face(server.url, "key", timeout=0.2, get_retries=0) as paddock,
    ):
        with pytest.raises(NoAnswerError, match="GET /x"):
            await paddock.json("GET", "/x")
        await server.all_ended(1)
        assert await paddock.json("GET", "/x", timeout=WAIT_SECONDS) == {}


async def test_closing_the_client_ends_what_waits(face: Face) -> None:
    arrived = asyncio.Event()

    async def serve(line: Line) -> None:
        await line.head()
        arrived.set()
        await line.end()

    async with serving(serve) as server:
        async with face(server.url, "key") as paddock:
            asking = asyncio.create_task(paddock.request("PUT", "/x", body={}))
            await arrived.wait()
        await server.all_ended(1)
        with pytest.raises(ConnectionLostError):
            await asking
        assert server.accepted == 1


async def test_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.client.connections.KEPT_SECONDS", 0.05)
    async with serving(always) as server, Paddock(server.url, "key") as paddock:
        await asyncio.gather(*(paddock.request("GET", "/x") for _ in range(5)))
        await server.all_ended(server.accepted)


def apart(work: Callable[[str, Server], None], serve: Serve) -> None:
    """Runs `work` with a server that has a thread and a loop of its own."""
    ready, done = threading.Event(), asyncio.Event()
    made: list[tuple[Server, asyncio.AbstractEventLoop]] = []

    async def run() -> None:
        async with serving(serve) as server:
            made.append((server, asyncio.get_running_loop()))
            ready.set()
            await done.wait()

    with ThreadPoolExecutor(1) as thread:
        serving_it = thread.submit(asyncio.run, run())
        assert ready.wait(WAIT_SECONDS)
        server, loop = made[0]
        try:
            work(server.url, server)
        finally:
            loop.call_soon_threadsafe(done.set)
            serving_it.result(WAIT_SECONDS)


def test_a_connection_that_ended_while_the_loop_was_busy() -> None:
    ended = threading.Event()

    async def serve(line: Line) -> None:
        await line.head()
        line.send(OK)
        if line.number == 1:
            await line.close()
            ended.set()
        await line.end()

    async def ask(url: str) -> None:
        async with Paddock(url, "key") as paddock:
            assert await paddock.request("POST", "/x", body={}) == {}
            # The loop can't read that the server has closed the connection.
            assert ended.wait(WAIT_SECONDS)
            assert await paddock.request("POST", "/x", body={}) == {}

    apart(lambda url, _: asyncio.run(ask(url)), serve)


def test_one_client_in_one_loop_after_the_other() -> None:
    def work(url: str, server: Server) -> None:
        paddock = Paddock(url, "key")

        async def ask(*, last: bool) -> None:
            assert await paddock.request("POST", "/x", body={}) == {}
            assert await paddock.request("POST", "/x", body={}) == {}
            if last:
                await paddock.close()

        def both() -> None:
            asyncio.run(ask(last=False))
            asyncio.run(ask(last=True))
            gc.collect()

        # The first loop ends without a close of its connection.
        with pytest.warns(ResourceWarning, match="unclosed"):
            both()
        assert server.accepted == 2

    apart(work, always)


def test_one_blocking_client_in_many_threads() -> None:
    def work(url: str, server: Server) -> None:
        def ask(number: int) -> None:
            assert paddock.request("POST", f"/{number}", body={}) == {}

        with PaddockSync(url, "key") as paddock, ThreadPoolExecutor(20) as threads:
            list(threads.map(ask, range(200)))
        assert 1 <= server.accepted <= 20

    apart(work, always)


def test_an_interrupt_ends_a_blocking_call() -> None:
    main = threading.get_ident()

    async def serve(line: Line) -> None:
        await line.head()
        if line.number == 1:
            signal.pthread_kill(main, signal.SIGINT)
            await line.end()
        line.send(OK)
        await line.end()

    def work(url: str, server: Server) -> None:
        with PaddockSync(url, "key") as paddock:
            with pytest.raises(KeyboardInterrupt):
                paddock.request("POST", "/x", body={})
            assert paddock.request("POST", "/x", body={}) == {}
            assert server.accepted == 2

    apart(work, serve)


def test_a_forked_process_uses_connections_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(url: str, server: Server) -> None:
        with PaddockSync(url, "key") as paddock:
            paddock.request("GET", "/x")
            monkeypatch.setattr("os.getpid", lambda: 1)
            paddock.request("GET", "/x")
            paddock.request("GET", "/x")
            assert server.accepted == 2

    apart(work, always)


def test_a_blocking_client_in_a_thread_that_runs_a_loop() -> None:
    def work(url: str, server: Server) -> None:
        async def cell() -> None:
            with PaddockSync(url, "key") as paddock:
                assert paddock.request("POST", "/x", body={}) == {}
                assert paddock.request("GET", "/x") == {}
                assert server.accepted == 1

        asyncio.run(cell())

    apart(work, always)


@pytest.mark.parametrize("size", [10, 20_000, 300_000])
def test_blocking_calls_move_to_the_loop_when_they_need_it(size: int) -> None:
    """One that fits into a socket's buffer does not."""
    threads: set[str] = set()

    def work(url: str, _: Server) -> None:
        with PaddockSync(url, "key") as paddock:

            async def ask() -> None:
                await paddock._api.json("PUT", "/x", data=b"x" * size)
                threads.add(threading.current_thread().name)

            thread = paddock._link.thread
            assert thread is not None
            thread.run(ask())

    apart(work, always)
    own = threading.current_thread().name
    assert threads == {own if size == 10 else "paddock-client"}


async def test_old_connections_are_not_used(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("blocking", "connections"):
        monkeypatch.setattr(f"paddock.client.{module}.KEPT_SECONDS", -1)
    async with serving(always) as server, face(server.url, "key") as paddock:
        for number in (1, 2):
            await paddock.request("POST", "/x", body={})
            assert server.accepted == number
        await server.all_ended(1)


async def test_a_host_with_several_addresses(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one refuses."""

    def found(_host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        places = [(address, port) for address in ("127.0.0.2", "127.0.0.1")]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]

    monkeypatch.setattr("socket.getaddrinfo", found)
    async with serving(always) as server:
        url = server.url.replace("127.0.0.1", "several.example")
        async with face(url, "key") as paddock:
            assert await paddock.request("POST", "/x", body={}) == {}
        assert server.accepted == 1


async def test_nobody_at_the_address(face: Face) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with face(url, "key", get_retries=0) as paddock:
            with pytest.raises(UnreachableError, match="no control plane answers at 127"):
                await paddock.request("GET", "/x")
    async with face("http://nowhere.invalid", "key", get_retries=0) as paddock:
        with pytest.raises(UnreachableError, match="nowhere"):
            await paddock.request("GET", "/x")


async def test_nobody_accepts_in_time(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as full, socket.socket() as only:
        full.bind(("127.0.0.1", 0))
        # Room for one connection, which nobody accepts; the kernel ignores the others.
        full.listen(0)
        only.connect(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        async with face(url, "key", get_retries=0) as paddock:
            with pytest.raises(NoAnswerError):
                await paddock.json("GET", "/x", timeout=0.1)
            for module in ("blocking", "connections"):
                monkeypatch.setattr(f"paddock.client.{module}.CONNECT_SECONDS", 0.1)
            with pytest.raises(UnreachableError):
                await paddock.json("GET", "/x")
