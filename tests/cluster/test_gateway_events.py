"""The events of all nodes in one stream: none is lost or repeated, and who is away is named."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientResponse, ClientSession, ClientTimeout, web

from gateway.faces.positions import Position, Positions, Series
from gateway.faces.streams import Pauses
from tests.support.box import PATIENCE
from tests.support.faced_cluster import ADMIN, FacedCluster, faced_cluster

SILENT = Pauses(heartbeat=0.1, silence=0.3, first=0.01, longest=0.02, answer=0.3, start=0.3)


@pytest.fixture
async def faced() -> AsyncIterator[FacedCluster]:
    async with faced_cluster() as made:
        yield made


@dataclass
class Stream:
    """A client's stream: what has come, and the last id."""

    answer: ClientResponse
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    last: str | None = None

    async def read(self) -> None:
        """Reads one event; heartbeats come before it for as long as it takes."""
        async with asyncio.timeout(PATIENCE):
            await self._read()

    async def _read(self) -> None:
        fields: dict[str, str] = {}
        while True:
            line = (await self.answer.content.readline()).decode().removesuffix("\n")
            if line == "" and "data" in fields:
                self.last = fields["id"]
                self.events.append((fields["event"], json.loads(fields["data"])))
                return
            if line == "" and self.answer.content.at_eof():
                raise EOFError
            name, _, value = line.partition(": ")
            fields[name] = value

    async def read_until(self, count: int) -> None:
        """Reads until there are so many events of sessions."""
        while len(self.of_sessions) < count:
            await self.read()

    async def read_notice(self) -> tuple[str, str]:
        """Reads until something is said of a node."""
        while True:
            await self.read()
            name, data = self.events[-1]
            if name.startswith("node."):
                return name, data["node"]

    @property
    def of_sessions(self) -> list[tuple[str, int]]:
        """Nodes and ids of the events of sessions."""
        return [
            (data["session_id"], data["id"])
            for name, data in self.events
            if not name.startswith("node.")
        ]


@asynccontextmanager
async def _followed(
    faced: FacedCluster, after: str | None = None, last: str | None = None
) -> AsyncIterator[Stream]:
    headers = ADMIN if last is None else ADMIN | {"Last-Event-ID": last}
    params = {} if after is None else {"after": after}
    async with (
        ClientSession(
            headers=headers,
            timeout=ClientTimeout(total=None),
            max_field_size=65536,
            read_bufsize=2**20,
        ) as client,
        client.get(f"{faced.url}/api/events", params=params) as answer,
    ):
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "text/event-stream"
        yield Stream(answer)


def _all(faced: FacedCluster) -> dict[str, list[tuple[str, int]]]:
    return {
        name: [(name, event["id"]) for event in node.events] for name, node in faced.nodes.items()
    }


def _each_once(faced: FacedCluster, streams: list[Stream]) -> None:
    """Each node's events came in their order, each once, over all of these streams."""
    got = [pair for stream in streams for pair in stream.of_sessions]
    for name, wanted in _all(faced).items():
        assert [pair for pair in got if pair[0] == name] == wanted


async def test_new_events_of_all_nodes_come(faced: FacedCluster) -> None:
    for name in "abc":
        faced.nodes[name].happens(0, session_id="before")
    async with _followed(faced) as stream:
        for second in range(1, 10):
            faced.nodes["abc"[second % 3]].happens(second)
        await stream.read_until(9)
    assert sorted(stream.of_sessions) == [(name, id_) for name in "abc" for id_ in (2, 3, 4)]
    assert all(name == "command.start" for name, _ in stream.events)


async def test_all_events_from_the_first_one_on(faced: FacedCluster) -> None:
    for second in range(30):
        faced.nodes["abc"[second % 3]].happens(second)
    async with _followed(faced, after="0") as stream:
        await stream.read_until(30)
    _each_once(faced, [stream])


@pytest.mark.parametrize("seed", range(8))
async def test_clients_and_nodes_that_break_lose_and_repeat_nothing(seed: int) -> None:
    """Streams are cut at both sides, and nodes go away, at random; events come all the time."""
    chance = random.Random(seed)
    async with faced_cluster() as faced:
        streams: list[Stream] = []
        last: str | None = None
        for _ in range(12):
            async with _followed(faced, after="0", last=last) as stream:
                streams.append(stream)
                stream.last = last
                for _ in range(chance.randint(1, 6)):
                    name = chance.choice("abc")
                    match chance.randint(0, 4):
                        case 0:
                            faced.nodes[name].cut()
                        case 1:
                            await faced.dies(name)
                        case 2:
                            await faced.returns(name)
                        case _:
                            for second in range(chance.randint(1, 40)):
                                faced.nodes[name].happens(second)
                    if chance.random() < 0.5 and any(node.streams for node in faced.nodes.values()):
                        faced.nodes[name].happens(0)
                        if faced.directory.known[name].alive:
                            await stream.read()
                last = stream.last
        for name in "abc":
            await faced.returns(name)
        wanted = sum(len(node.events) for node in faced.nodes.values())
        before = sum(len(stream.of_sessions) for stream in streams)
        async with _followed(faced, after="0", last=last) as stream:
            streams.append(stream)
            await stream.read_until(wanted - before)
        _each_once(faced, streams)


async def test_a_node_that_goes_away_is_named_and_goes_on_when_it_is_back(
    faced: FacedCluster,
) -> None:
    async with _followed(faced, after="0") as stream:
        faced.nodes["b"].happens(1)
        await stream.read_until(1)
        await faced.dies("b")
        assert await stream.read_notice() == ("node.missing", "b")
        faced.nodes["b"].happens(2)
        faced.nodes["a"].happens(2)
        await stream.read_until(2)
        await faced.returns("b")
        assert await stream.read_notice() == ("node.back", "b")
        await stream.read_until(3)
    _each_once(faced, [stream])


async def test_a_node_that_is_silent_is_named() -> None:
    async with faced_cluster(pauses=SILENT) as faced:

        async def silent(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.Event().wait()
            return response

        faced.nodes["b"].instead = silent
        async with _followed(faced, after="0") as stream:
            assert await stream.read_notice() == ("node.missing", "b")
            faced.nodes["b"].instead = None
            faced.nodes["b"].happens(1)
            assert await stream.read_notice() == ("node.back", "b")
            await stream.read_until(1)


async def test_a_node_that_is_away_at_the_start_has_its_events_later(faced: FacedCluster) -> None:
    """Those since the stream began, and none before: it was asked for new ones."""
    long_ago, later = 0, 10**9
    faced.nodes["b"].happens(long_ago)
    await faced.dies("b")
    async with _followed(faced) as stream:
        assert await stream.read_notice() == ("node.missing", "b")
        faced.nodes["b"].happens(later)
        await faced.returns("b")
        await stream.read_until(1)
        assert stream.of_sessions == [("b", 2)]
        last = stream.last
    faced.nodes["b"].happens(later)
    async with _followed(faced, last=last) as stream:
        await stream.read_until(1)
        assert stream.of_sessions == [("b", 3)]


async def test_a_client_that_leaves_before_a_node_is_back_gets_its_events(
    faced: FacedCluster,
) -> None:
    faced.nodes["b"].happens(0)
    await faced.dies("b")
    async with _followed(faced) as stream:
        faced.nodes["a"].happens(1)
        await stream.read_until(1)
        last = stream.last
    faced.nodes["b"].happens(10**9)
    await faced.returns("b")
    async with _followed(faced, last=last) as stream:
        await stream.read_until(1)
        assert stream.of_sessions == [("b", 2)]


async def test_a_node_that_joins_is_followed_from_its_first_event(faced: FacedCluster) -> None:
    async with _followed(faced) as stream:
        joined = await faced.joins("d")
        for second in range(3):
            joined.happens(10**9 + second)
        await stream.read_until(3)
        assert stream.of_sessions == [("d", 1), ("d", 2), ("d", 3)]


async def test_nodes_see_the_callers_credentials(faced: FacedCluster) -> None:
    async with _followed(faced, after="0") as stream:
        faced.nodes["a"].happens(1)
        await stream.read_until(1)
    for asked in faced.nodes["a"].asked:
        assert asked.headers["Authorization"] == ADMIN["Authorization"]


@pytest.mark.parametrize("status", [401, 403])
async def test_the_stream_ends_when_a_node_refuses_the_caller(
    faced: FacedCluster, status: int
) -> None:
    async with _followed(faced, after="0") as stream:
        faced.nodes["a"].happens(1)
        await stream.read_until(1)

        async def refuse(_: web.Request) -> web.Response:
            return web.json_response({"code": "unauthorized"}, status=status)

        faced.nodes["b"].instead = refuse
        faced.nodes["b"].cut()
        with pytest.raises(EOFError):
            await stream.read_until(2)


async def test_a_caller_whom_a_node_refuses_gets_its_refusal(faced: FacedCluster) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"code": "rate_limited"}, status=429)

    faced.nodes["b"].instead = refuse
    async with (
        ClientSession(headers=ADMIN) as client,
        client.get(f"{faced.url}/api/events") as answer,
    ):
        assert (answer.status, await answer.json()) == (429, {"code": "rate_limited"})


async def test_a_stream_never_seems_to_end_when_the_gateway_stops() -> None:
    async with faced_cluster() as faced, _followed(faced, after="0") as stream:
        faced.nodes["a"].happens(1)
        await stream.read_until(1)
        await faced.cluster.server.close()
        with pytest.raises((ClientPayloadError, ConnectionError)):
            await stream.read()


async def test_an_idle_stream_shows_that_it_lives(faced: FacedCluster) -> None:
    async with _followed(faced, after="0") as stream, asyncio.timeout(PATIENCE):
        assert await stream.answer.content.readline() == b": alive\n"


NONSENSE = {
    "no events": b"hello\n\n",
    "no name": b"id: 1\ndata: {}\n\n",
    "no data": b"id: 1\nevent: x\n\n",
    "a list": b"id: 1\nevent: x\ndata: []\n\n",
    "a text as id": b"id: x\nevent: x\ndata: {}\n\n",
    "more fields": b"id: 1\nevent: x\nretry: 1\ndata: {}\n\n",
    "a name with a line": b"id: 1\nevent: x\rid: 9\ndata: {}\n\n",
    "data with a line": b"id: 1\nevent: x\ndata: {}\rid: 9\n\n",
    "an endless line": b"id: 1\nevent: x\ndata: {" + b"x" * (2**20 + 65536),
}


@pytest.mark.parametrize("sent", NONSENSE.values(), ids=NONSENSE.keys())
async def test_what_is_no_event_reaches_no_client(faced: FacedCluster, sent: bytes) -> None:
    async def says(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(sent)
        await asyncio.Event().wait()
        return response

    faced.nodes["b"].instead = says
    async with _followed(faced, after="0") as stream:
        assert await stream.read_notice() == ("node.missing", "b")
        faced.nodes["a"].happens(1)
        await stream.read_until(1)
        faced.nodes["b"].instead = None
        faced.nodes["b"].happens(1)
        await stream.read_until(2)
    _each_once(faced, [stream])


async def test_a_client_that_does_not_read_holds_the_nodes_back(faced: FacedCluster) -> None:
    """30 MB of events of each node: a gateway keeps a few of them, the nodes the rest."""
    for name in "abc":
        for second in range(300):
            faced.nodes[name].happens(second, args={"text": "x" * 100_000})
    async with _followed(faced, after="0") as stream:
        await stream.read()
        # Each further event is read only when something is left to be written.
        await stream.read_until(30)
        assert sum(node.written for node in faced.nodes.values()) < 45_000_000
        assert all(node.written < 30_000_000 for node in faced.nodes.values())
        await stream.read_until(900)
    _each_once(faced, [stream])


_OTHER = Positions("other", Series.EVENTS).write(Position({"a": 3}))
_SEARCH = Positions("lab", Series.SEARCH).write(Position({"a": 3}))


@pytest.mark.parametrize("position", ["", "7", "-1", "x", "A" * 40_000, _OTHER, _SEARCH])
@pytest.mark.parametrize("place", ["after", "Last-Event-ID"])
async def test_a_position_that_is_none_is_refused(
    faced: FacedCluster, position: str, place: str
) -> None:
    headers = ADMIN | ({} if place == "after" else {place: position})
    params = {place: position} if place == "after" else {}
    async with (
        ClientSession(headers=headers) as client,
        client.get(f"{faced.url}/api/events", params=params) as answer,
    ):
        found = await answer.json(content_type=None)
        assert (answer.status, found["code"]) == (400, "validation_error")
        assert found["field"] == place
    assert not any(node.asked for node in faced.nodes.values())
