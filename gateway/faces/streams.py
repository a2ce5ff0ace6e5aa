"""One stream of the events of all nodes, for one client.

Each node's events come in their order, each once. A node that goes away is named, and its events
go on with the next one when it is back. Nothing is kept but a few events that the client has not
read yet: who does not read holds the nodes' streams back, whose events are on record.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlencode

from gateway.call import NodeAnswer
from gateway.faces.asking import (
    Headers,
    NoAnswerError,
    RefusedError,
    TooLongError,
    ask,
    asked_of,
    read_answer,
)
from gateway.faces.node_events import EventReader, NodeEvent
from gateway.faces.pages import SEARCH, is_page
from gateway.faces.positions import Position
from gateway.members import Member, Members
from orchestrator.ground.events import time_text
from orchestrator.ground.task_scope import TaskScope, together

# As on one machine: proxies commonly close an idle connection after a minute.
HEARTBEAT_SECONDS = 15.0
# Nodes send a heartbeat as often.
_SILENCE_SECONDS = 3 * HEARTBEAT_SECONDS
# Until a node is asked again, doubled each time.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 8.0
_ANSWER_SECONDS = 10.0
# Events of all nodes that wait for the client, besides one of each node that waits for room.
_MOST_WAITING = 16
# A stream begins without nodes that take longer to say where they are.
_START_SECONDS = 2.0
_MISSING, _BACK = b"node.missing", b"node.back"
_EVENTS, _SEARCH = "/api/events", "/api/audit"
_ACCESS_LOST = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class Pauses(NamedTuple):
    """Seconds: between heartbeats, of a node's silence, and before a node is asked again."""

    heartbeat: float = HEARTBEAT_SECONDS
    silence: float = _SILENCE_SECONDS
    first: float = _FIRST_PAUSE
    longest: float = _LONGEST_PAUSE
    answer: float = _ANSWER_SECONDS
    start: float = _START_SECONDS


PAUSES = Pauses()


class Sent(NamedTuple):
    """What a client gets: an event, or what is said of a node (`node.missing`, `node.back`)."""

    name: bytes
    data: bytes
    position: Position


class _Heard(NamedTuple):
    """Something about a node, in its order. An event of None: the caller has lost access."""

    node: str
    event: NodeEvent | bytes | None


class EventStream:
    """Follows all nodes for one client."""

    def __init__(
        self,
        members: Members,
        headers: Headers,
        begin: Position,
        pauses: Pauses = PAUSES,
    ) -> None:
        """`begin` is where the client has got to."""
        self._members = members
        self._headers = [*headers, ("Accept", "text/event-stream")]
        self._pauses = pauses
        self._since = begin.since
        # Up to where each node was read, and up to where the client was sent its events.
        self._read = dict(begin.of_nodes)
        self._sent = dict(begin.of_nodes)
        self._followed: set[str] = set()
        # Nodes that the client takes to be away.
        self._away: set[str] = set()
        self._heard: asyncio.Queue[_Heard] = asyncio.Queue(_MOST_WAITING)

    async def events(self) -> AsyncGenerator[Sent | None]:
        """What the client gets, until it loses access; None after a heartbeat's time without."""
        async with together() as start:
            following = []
            while True:
                for member in self._members.all:
                    if member.name not in self._followed:
                        self._followed.add(member.name)
                        following.append(start(self._follow(member.name)))
                try:
                    async with asyncio.timeout(self._pauses.heartbeat):
                        node, event = await self._heard.get()
                except TimeoutError:
                    yield None
                    continue
                if event is None:
                    break
                yield self._told(node, event)
            for task in following:
                task.cancel()

    def _told(self, node: str, event: NodeEvent | bytes) -> Sent:
        if isinstance(event, bytes):
            return Sent(event, b'{"node":"%s"}' % node.encode(), self._position())
        self._sent[node] = event.id
        return Sent(event.name, event.data, self._position())

    def _position(self) -> Position:
        return Position(dict(self._sent), self._since)

    async def _follow(self, node: str) -> None:
        """Reads a node's events for as long as the client wants them, over any number of losses."""
        pause = self._pauses.first
        while True:
            before = self._read.get(node)
            try:
                await self._connected(node)
            except RefusedError as error:
                if error.refusal.status in _ACCESS_LOST:
                    await self._heard.put(_Heard(node, None))
                    return
            except (NoAnswerError, TooLongError, TimeoutError):
                pass  # what a node does wrong is the same as nothing
            if self._read.get(node) != before:
                pause = self._pauses.first
            if node not in self._away:
                self._away.add(node)
                await self._heard.put(_Heard(node, _MISSING))
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._pauses.longest)

    async def _connected(self, node: str) -> None:
        """Hears the node's next events over one connection, until it ends.

        Raises: NoAnswerError, TooLongError, TimeoutError, RefusedError.
        """
        member = self._members.named(node)
        if member is None or not member.alive:
            raise NoAnswerError
        if node not in self._read:
            async with asyncio.timeout(self._pauses.answer):
                found = await start_of(member, self._headers, self._since)
            self._read[node] = self._sent[node] = found
        path = f"{_EVENTS}?after={self._read[node]}"
        async with asked_of(member, "GET", path, self._headers) as answer:
            if answer.status != HTTPStatus.OK:
                await read_answer(answer)
                raise NoAnswerError
            if node in self._away:
                await self._heard.put(_Heard(node, _BACK))
                self._away.discard(node)
            reader = EventReader()
            while data := await self._arriving(answer):
                for event in reader.feed(data):
                    if event.id > self._read[node]:
                        await self._heard.put(_Heard(node, event))
                        self._read[node] = event.id

    async def _arriving(self, answer: NodeAnswer) -> bytes:
        async with asyncio.timeout(self._pauses.silence):
            return await answer.content.readany()


async def start_of(member: Member, headers: Headers, since: int | None) -> int:
    """The id after which a node's events are those since that time; None: the next ones.

    `since` is in microseconds since 1970; 0: all of them. Events that the caller may not see do not
    count. Raises: RefusedError, TooLongError, NoAnswerError.
    """
    if since == 0:
        return 0
    query = {"limit": "1"}
    if since is not None:
        query["to"] = time_text(datetime.fromtimestamp(since / 1e6, UTC))
    answer = await ask(member, f"{_SEARCH}?{urlencode(query)}", headers)
    if not is_page(SEARCH, answer):
        raise NoAnswerError
    # The newest one; or what it continues with, if the search has not come to one yet.
    if answer["items"]:
        return int(answer["items"][0]["id"])
    return 0 if answer["next"] is None else int(answer["next"]) - 1


async def starts_of(
    members: Sequence[Member], headers: Headers, seconds: float = PAUSES.start
) -> dict[str, int]:
    """Where the nodes that answer are now. Raises: RefusedError."""
    scope = TaskScope("asking nodes where they are")
    tasks = {each.name: scope.begin(start_of(each, headers, None)) for each in members}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), timeout=seconds)
        found = {}
        for name, task in tasks.items():
            if task.done():
                with suppress(NoAnswerError, TooLongError):
                    found[name] = task.result()
        return found
    finally:
        await scope.close()
