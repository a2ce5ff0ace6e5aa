"""A stream whose node is cut off at any byte is seen as broken, and never as one that has ended."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, suppress
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientError, ClientSession, WSMsgType, web
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock import Exit, Output, Paddock, PaddockError, Session
from tests.support.box import PATIENCE
from tests.support.byte_cutter import ByteCutter, cutting_bytes
from tests.support.fake_agent import Play
from tests.support.fake_cluster import FakeCluster, fake_cluster, node
from tests.support.served_plane import KEY, served_plane

PIECES = [f"piece {number}\n".encode() * 40 for number in range(8)]
WHOLE = b"".join(PIECES)
# A message of E2B's streams: a byte of flags and the length; with the flag 2 it is the last one.
LAST_FLAG = 2


async def _events(response: web.StreamResponse) -> None:
    response.content_type = "text/event-stream"


async def _length(response: web.StreamResponse) -> None:
    response.content_length = len(WHOLE)


async def _chunks(response: web.StreamResponse) -> None:
    response.enable_chunked_encoding()


def _sends(begin: Callable[[web.StreamResponse], Awaitable[None]]) -> Callable[..., object]:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await begin(response)
        await response.prepare(request)
        for piece in PIECES:
            await response.write(piece)
        await response.write_eof()
        return response

    return answer


async def _messages(request: web.Request) -> web.StreamResponse:
    """As E2B's streams: each message with its length, and a last one."""
    response = web.StreamResponse()
    response.content_type = "application/connect+json"
    await response.prepare(request)
    for flag, piece in [*((0, piece) for piece in PIECES), (LAST_FLAG, b"{}")]:
        await response.write(bytes([flag]) + len(piece).to_bytes(4, "big") + piece)
    await response.write_eof()
    return response


async def _socket(request: web.Request) -> web.StreamResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    for piece in PIECES:
        await socket.send_bytes(piece)
    await socket.close()
    return socket


async def _read(client: ClientSession, url: str) -> bytes | None:
    """The whole body; None: it is seen as broken, or has not begun."""
    try:
        async with client.get(url) as answer:
            body = await answer.read()
    except (ClientError, ConnectionError):
        return None
    return body if answer.status == 200 else None


async def _heard(client: ClientSession, url: str) -> bytes | None:
    """What came on a WebSocket that was closed in order; None: it was not."""
    heard = b""
    try:
        async with client.ws_connect(url) as socket:
            async for message in socket:
                if message.type is not WSMsgType.BINARY:
                    return None
                heard += message.data
            return heard if socket.close_code == 1000 else None
    except (ClientError, ConnectionError):
        return None


KINDS = {
    "events": (_sends(_events), _read),
    "length": (_sends(_length), _read),
    "chunks": (_sends(_chunks), _read),
    "messages": (_messages, _read),
    "socket": (_socket, _heard),
}


@pytest.fixture(scope="module")
def runner() -> asyncio.Runner:  # type: ignore[misc]
    with asyncio.Runner() as made:
        yield made


class Cut:
    """A gateway and a node with the cutter between them."""

    def __init__(self) -> None:
        self.closers = AsyncExitStack()
        self.cluster: FakeCluster
        self.cutter: ByteCutter
        self.client: ClientSession

    async def open(self, handler: Callable[..., object]) -> None:
        self.cluster = await self.closers.enter_async_context(fake_cluster())
        await self.cluster.serve("one", handler)  # type: ignore[arg-type]
        port = self.cluster.servers["one"].port
        assert port is not None
        await self.put_before(port)
        self.client = await self.closers.enter_async_context(ClientSession())

    async def put_before(self, port: int) -> None:
        """Has the gateway find its node there."""
        self.cutter = await self.closers.enter_async_context(cutting_bytes(port))
        self.cluster.directory.known["one"] = node("one", self.cutter.url)
        await self.cluster.gateway.members.refresh()
        self.cluster.puts("web", "one")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_cut_at_any_byte_has_not_ended(runner: asyncio.Runner, kind: str) -> None:
    handler, asks = KINDS[kind]
    cut = Cut()

    async def ask(after: int | None, resets: bool) -> bytes | None:
        cut.cutter.after, cut.cutter.resets = after, resets
        async with asyncio.timeout(PATIENCE):
            return await asks(cut.client, f"{cut.cluster.url}/api/sessions/web/events")

    runner.run(cut.open(handler))
    try:
        whole = runner.run(ask(None, resets=True))
        assert whole is not None
        assert PIECES[-1] in whole
        most = cut.cutter.passed

        @given(st.integers(0, most - 1), st.booleans())
        @settings(deadline=None)
        def at(after: int, resets: bool) -> None:
            assert runner.run(ask(after, resets)) is None

        at()
        assert runner.run(ask(most // 2, resets=False)) is None
        assert runner.run(ask(None, resets=True)) == whole
    finally:
        runner.run(cut.closers.aclose())


def test_a_client_has_all_of_a_command_or_an_error(runner: asyncio.Runner) -> None:
    """Its streams go on at the gateway with the last event that it has."""
    cut = Cut()
    printed = "".join(f"line {number} é\n" for number in range(200))

    async def ready() -> Session:
        served = await cut.closers.enter_async_context(served_plane())
        cut.cluster = await cut.closers.enter_async_context(fake_cluster())
        await cut.put_before(urlsplit(served.address).port or 0)
        served.agents.plays["build"] = Play(printed.encode())
        await served.session(id="web", permission_level="high")
        url = cut.cluster.url
        paddock = await cut.closers.enter_async_context(Paddock(url, KEY))
        return await paddock.sessions.get("web")

    async def output(session: Session, after: int | None, resets: bool) -> tuple[str, int | None]:
        cut.cutter.after, cut.cutter.resets, cut.cutter.once = after, resets, True
        text, code = "", None
        async with asyncio.timeout(PATIENCE), aclosing(session.exec_stream("build")) as events:
            async for event in events:
                if isinstance(event, Output):
                    text += event.text
                elif isinstance(event, Exit):
                    code = event.exit_code
        return text, code

    session = runner.run(ready())
    try:
        assert runner.run(output(session, None, resets=True)) == (printed, 0)

        @given(st.integers(0, 2 * len(printed)), st.booleans())
        @settings(deadline=None, max_examples=settings().max_examples // 4)
        def at(after: int, resets: bool) -> None:
            with suppress(PaddockError):
                assert runner.run(output(session, after, resets)) == (printed, 0)

        at()
    finally:
        runner.run(cut.closers.aclose())
