"""Many small frames on WebSockets: others are served in between, and who goes on is cut off."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from unittest.mock import AsyncMock, Mock

import pytest
import pytest_asyncio
from aiohttp import WSMessage, WSMsgType

from api.http import run_socket
from api.http.frames import FRAME_RATES, FrameRates, Frames
from api.operations import run_sockets
from api.shape.answers import Event
from orchestrator.ground.limits import KeyLimits
from orchestrator.ground.serving import stream
from orchestrator.rules.access.keys import KeyRing, Principal, Role, digest
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, Api
from tests.support.raw_socket import BINARY, PING, PONG, TEXT, masked, raw_socket
from tests.support.slices import slices
from tests.support.until import until

RUN = "/api/sessions/web/run"
TERMINAL = "/api/sessions/web/terminal"
BURST = masked(TEXT, b"{") * (256 * 1024 // 7)
# A request takes a few dozen passes of the loop, in each of which a socket may take one frame; on a
# busy machine it takes seconds, in each of which it may take 250.
MOST_MEANWHILE = 5000
MOST_SLICE = 0.1
NO_LIMIT = 1e9


@pytest_asyncio.fixture
async def web(api: Api) -> AsyncIterator[Api]:
    await api.session(id="web", key=OPERATOR_KEY, permission_level="high")
    yield api


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many frames were understood or refused."""
    taken: Counter[str] = Counter()
    wanted = run_sockets.wanted_run

    def counting(*arguments: object) -> object:
        taken["frames"] += 1
        return wanted(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(run_sockets, "wanted_run", counting)
    return taken


def limit(api: Api, rate: float) -> None:
    """Sets the operator's rate of requests."""
    limits = replace(KeyLimits(), requests_per_second=rate)
    operator = Principal("operator", Role.OPERATOR, sha256=digest(OPERATOR_KEY), limits=limits)
    admin = Principal("admin", Role.ADMIN)
    api.plane.keys.replace(KeyRing({digest(OPERATOR_KEY): operator, digest(ADMIN_KEY): admin}))


async def test_others_are_served_during_a_burst(web: Api, frames: Counter[str]) -> None:
    limit(web, NO_LIMIT)
    async with raw_socket(web.server.make_url(RUN), OPERATOR_KEY) as socket:
        socket.send(BURST)
        await socket.next()
        before = frames["frames"]
        for _ in range(5):
            await web.json("GET", "/healthz", key=None)
        await web.json("POST", "/api/sessions/web/abort")
        assert frames["frames"] - before < MOST_MEANWHILE


async def test_no_slice_of_a_burst_is_long(web: Api) -> None:
    limit(web, NO_LIMIT)
    with slices() as found:
        async with raw_socket(web.server.make_url(RUN), OPERATOR_KEY) as socket:
            for _ in range(3):
                socket.send(BURST)
            for _ in range(100):
                await socket.next()
    assert found.longest < MOST_SLICE, found.which


async def test_frames_wait_for_their_turn() -> None:
    waits: list[float] = []

    async def passing(seconds: float) -> None:
        waits.append(seconds)

    received = AsyncMock(return_value=WSMessage(WSMsgType.TEXT, "", None))
    rates = FrameRates(data=8, data_burst=9)
    frames = Frames(Mock(), Mock(receive=received), rates, lambda: sum(waits), passing)
    for _ in range(25):
        await frames.next()
    assert sum(waits) == pytest.approx(2)


async def test_a_client_over_its_rate_waits_and_is_cut_off(web: Api, frames: Counter[str]) -> None:
    limit(web, 50)
    async with raw_socket(web.server.make_url(RUN), OPERATOR_KEY) as socket:
        socket.send(BURST)
        code, answers = await socket.until_closed()
    told = Counter(json.loads(data)["data"]["code"] for _, data in answers)
    assert code == 1013
    assert told["rate_limited"] == run_socket.MOST_REFUSALS
    # As many as the rate permits, and the one for which each refused one had waited.
    assert told["validation_error"] == frames["frames"] < 1000
    limit(web, 1000)
    async with raw_socket(web.server.make_url(RUN), OPERATOR_KEY) as socket:
        socket.send(masked(TEXT, b"{"))
        assert (await socket.next())[0] == TEXT


@pytest.mark.parametrize(("path", "most"), [(RUN, 14), (TERMINAL, 4)])
async def test_pings_are_counted(web: Api, path: str, most: int) -> None:
    async with AsyncExitStack() as stack:
        sockets = [
            await stack.enter_async_context(raw_socket(web.server.make_url(path), OPERATOR_KEY))
            for _ in range(most)
        ]
        for socket in sockets:
            socket.send(masked(PING, b"?") * 30_000)
        await web.json("GET", "/healthz", key=None)
        ended = await asyncio.gather(*(socket.until_closed() for socket in sockets))
    for code, answers in ended:
        pongs = [data for opcode, data in answers if opcode == PONG]
        assert code == 1008
        assert set(pongs) == {b"?"}
        assert len(pongs) < 2 * FRAME_RATES.control_burst
    await web.json("POST", "/api/sessions/web/abort")


async def test_a_few_pings_are_answered(web: Api) -> None:
    async with raw_socket(web.server.make_url(RUN), OPERATOR_KEY) as socket:
        for number in range(9):
            socket.send(masked(PING, b"%d" % number))
            assert await socket.next() == (PONG, b"%d" % number)


async def test_who_floods_after_an_error_is_not_read(web: Api) -> None:
    with slices() as found:
        async with raw_socket(web.server.make_url(RUN), OPERATOR_KEY) as socket:
            socket.send(masked(BINARY) + BURST)
            code, _ = await socket.until_closed()
            session = web.plane.sessions.registry.get("web")
            assert session is not None
            await until(lambda: session.streams.total() == 0)
    assert code == 1003
    assert found.longest < MOST_SLICE, found.which


async def test_an_event_stream_yields_after_each_event() -> None:
    """Thousands of events that are there already are written one by one."""
    order: list[str] = []

    async def events() -> AsyncIterator[Event | None]:
        for number in range(5):
            order.append(f"event {number}")
            yield None

    async def other() -> None:
        for number in range(5):
            order.append(f"other {number}")
            await asyncio.sleep(0)

    response = AsyncMock()
    another = asyncio.create_task(other())
    async for _ in events():
        await stream.write(Mock(), response, b"")
    await another
    assert order[:4] == ["event 0", "other 0", "event 1", "other 1"]
