"""Asks nodes for answers that are merged: all at once, as the caller, within bounds.

A node decides with the caller's credentials. What refuses the caller refuses the whole answer, so
that no list shows less than there is without a word. Nodes that do not answer, or answer what they
should not, are named.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode

from aiohttp import ClientError, ClientResponse
from yarl import URL

from gateway.faces.peers import Headers, Peer
from orchestrator.ground.errors import PaddockError
from orchestrator.ground.task_scope import TaskScope

# All nodes together get so long; a search of a node examines for less than a second.
ANSWER_SECONDS = 10.0
# All answers together, and one of them: to parse it takes less than 50 ms. An event has up to
# 200 KiB, a session with all of its labels 100 KiB.
_ALL_BYTES = 16 * 2**20
_MOST_BYTES = 2 * 2**20
_LEAST_BYTES = 2**18
_MOST_PROBLEM = 2**14
# Requests that are answered so at a time; others wait for them.
_MOST_AT_ONCE = 8
# Who refuses counts in this order: what a client must know first.
_REFUSALS = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_REQUEST,
)
Answer = dict[str, Any]
Query = Mapping[str, str]


class Refusal(NamedTuple):
    """A node's answer that refuses the caller, as it was sent."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class RefusedError(Exception):
    """Nodes refuse the caller."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__()
        self.refusal = refusal


class TooLongError(Exception):
    """A node's answer is longer than may be kept: a shorter page may do."""


class NoAnswerError(Exception):
    """A node does not answer, or not as it should."""


class Asked(NamedTuple):
    """Answers by node, and the names of nodes without one."""

    answers: dict[str, Answer]
    missing: list[str]


# The query for a node, if its pages may be so long.
QueryOf = Callable[[str, int], Query]
# Whether an answer has the form that is merged.
Check = Callable[[Answer], bool]


class Asking:
    """Asks several nodes at once."""

    def __init__(self, seconds: float = ANSWER_SECONDS) -> None:
        self._seconds = seconds
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)

    async def pages(
        self,
        peers: Sequence[Peer],
        path: str,
        query_of: QueryOf,
        headers: Headers,
        check: Check,
        limit: int,
    ) -> Asked:
        """A page of each of these nodes; one whose page is too long gets a lower limit once.

        Raises: RefusedError.
        """
        most = max(_LEAST_BYTES, min(_MOST_BYTES, _ALL_BYTES // max(1, len(peers))))

        async def asked(peer: Peer) -> Answer:
            for each in dict.fromkeys((limit, max(1, limit // 16), 1)):
                try:
                    url = f"{path}?{urlencode(query_of(peer.name, each))}"
                    answer = await ask(peer, url, headers, most)
                except TooLongError:
                    continue
                if check(answer):
                    return answer
                break
            raise NoAnswerError

        async with self._turns:
            return await self._gathered(peers, asked)

    async def _gathered(self, peers: Sequence[Peer], asked: Callable[[Peer], Any]) -> Asked:
        scope = TaskScope("asking nodes")
        tasks = {peer.name: scope.begin(asked(peer)) for peer in peers if peer.alive}
        try:
            if tasks:
                await asyncio.wait(tasks.values(), timeout=self._seconds)
            answers: dict[str, Answer] = {}
            missing = [peer.name for peer in peers if peer.name not in tasks]
            refusals: list[Refusal] = []
            for name, task in tasks.items():
                error = task.exception() if task.done() and not task.cancelled() else None
                if isinstance(error, RefusedError):
                    refusals.append(error.refusal)
                elif not task.done() or task.cancelled() or isinstance(error, NoAnswerError):
                    missing.append(name)
                elif error is not None:
                    raise error
                else:
                    answers[name] = task.result()
        finally:
            await scope.close()
        _refuse(refusals, answers)
        return Asked(answers, sorted(missing))


def _refuse(refusals: Sequence[Refusal], answers: Mapping[str, Answer]) -> None:
    """Raises: RefusedError. What one node does not know, another one may."""
    for status in _REFUSALS:
        for refusal in refusals:
            if refusal.status == status:
                raise RefusedError(refusal)
    if refusals and not answers:
        raise RefusedError(refusals[0])


async def ask(peer: Peer, path: str, headers: Headers, most: int = _MOST_BYTES) -> Answer:
    """A node's answer to a GET, a JSON object. It has no time limit of its own.

    Raises: RefusedError, TooLongError, NoAnswerError.
    """
    return await exchanged(peer, "GET", path, headers, None, most)


async def exchanged(
    peer: Peer, method: str, path: str, headers: Headers, body: bytes | None, most: int
) -> Answer:
    """A node's answer, a JSON object. Raises: as `ask`."""
    task = asyncio.current_task()
    with peer.exchanges.by_this_task():
        try:
            asked = peer.http().request(
                method,
                URL(peer.url + path, encoded=True),
                headers=headers,
                data=body,
                allow_redirects=False,
                server_hostname=peer.name if peer.url.startswith("https") else None,
            )
            async with asked as answer:
                return await _read(answer, most)
        except asyncio.CancelledError:
            if peer.alive or task is None or task.cancelling() > 1:
                raise
            task.uncancel()
            raise NoAnswerError from None
        except (ClientError, PaddockError, TimeoutError, ValueError, RecursionError):
            raise NoAnswerError from None


async def _read(answer: ClientResponse, most: int) -> Answer:
    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise NoAnswerError
    if answer.status >= HTTPStatus.BAD_REQUEST:
        names = ("Content-Type", "Retry-After", "WWW-Authenticate")
        headers = {name: answer.headers[name] for name in names if name in answer.headers}
        body = await _whole(answer, _MOST_PROBLEM)
        raise RefusedError(Refusal(answer.status, headers, body))
    if answer.status != HTTPStatus.OK:
        raise NoAnswerError
    found = json.loads(await _whole(answer, most))
    if not isinstance(found, dict):
        raise NoAnswerError
    return found


async def _whole(answer: ClientResponse, most: int) -> bytes:
    """The body. Raises: TooLongError before more than that is kept."""
    if answer.content_length is not None and answer.content_length > most:
        raise TooLongError
    found = bytearray()
    async for piece in answer.content.iter_any():
        found += piece
        if len(found) > most:
            raise TooLongError
    return bytes(found)
