"""Asks nodes for answers that are merged: all at once, as the caller, within bounds.

A node decides with the caller's credentials. What refuses the caller refuses the whole answer, so
that no list shows less than there is without a word. Nodes that do not answer, or answer what they
should not, are named.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode

from aiohttp import ClientError

from gateway.call import NodeAnswer, NodeRequest
from gateway.errors import RETRY_SECONDS
from gateway.members import Member
from orchestrator.cluster.tls import Face
from orchestrator.ground.errors import NodeUnavailableError
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
# The header of E2B's lists that has the token of the next page.
NEXT_HEADER = "X-Next-Token"
# A caller's headers as nodes get them.
Headers = Sequence[tuple[str, str]]
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
    """Answers by node, the names of nodes that gave none, and refusals of the caller."""

    answers: dict[str, Answer]
    missing: list[str]
    refusals: list[Refusal]


# The query for a node, if its pages may be so long.
QueryOf = Callable[[str, int], Query]
# Asks a node, as `ask` does.
Reading = Callable[[Member, str, Headers, int], Coroutine[Any, Any, Answer]]
# Whether an answer has the form that is merged.
Check = Callable[[Answer], bool]


class Asking:
    """Asks several nodes at once."""

    def __init__(self, seconds: float = ANSWER_SECONDS) -> None:
        self._seconds = seconds
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)

    async def pages(
        self,
        members: Sequence[Member],
        path: str,
        query_of: QueryOf,
        headers: Headers,
        check: Check,
        limit: int,
        reading: Reading | None = None,
    ) -> Asked:
        """A page of each of these nodes; one whose page is too long gets a lower limit once.

        `reading` asks one of them; None: for a JSON object.

        Raises: RefusedError; NodeUnavailableError if there are nodes, and none answers.
        """
        most = max(_LEAST_BYTES, min(_MOST_BYTES, _ALL_BYTES // max(1, len(members))))

        async def asked(member: Member) -> Answer:
            for each in dict.fromkeys((limit, max(1, limit // 16), 1)):
                try:
                    url = f"{path}?{urlencode(query_of(member.name, each))}"
                    answer = await (reading or ask)(member, url, headers, most)
                except TooLongError:
                    continue
                if check(answer):
                    return answer
                break
            raise NoAnswerError

        found = await self.each(members, asked)
        _refuse(found)
        if found.missing and not found.answers:
            raise NodeUnavailableError(
                "no node that is asked for this answers: try again", retry_after=RETRY_SECONDS
            )
        return found

    async def each(
        self, members: Sequence[Member], asked: Callable[[Member], Coroutine[Any, Any, Answer]]
    ) -> Asked:
        """What each of these nodes is asked at once, and says in time; the others are missing."""
        async with self._turns:
            scope = TaskScope("asking nodes")
            tasks = {each.name: scope.begin(asked(each)) for each in members if each.alive}
            try:
                if tasks:
                    await asyncio.wait(tasks.values(), timeout=self._seconds)
                found = _collected(tasks)
            finally:
                await scope.close()
            found.missing.extend(each.name for each in members if each.name not in tasks)
            found.missing.sort()
            return found


def _collected(tasks: Mapping[str, asyncio.Task[Answer]]) -> Asked:
    found = Asked({}, [], [])
    for name, task in tasks.items():
        if not task.done() or task.cancelled():
            found.missing.append(name)
            continue
        try:
            found.answers[name] = task.result()
        except RefusedError as error:
            found.refusals.append(error.refusal)
        except (NoAnswerError, TooLongError):
            found.missing.append(name)
    return found


def _refuse(found: Asked) -> None:
    """Raises: RefusedError. What one node does not know, another one may."""
    for status in _REFUSALS:
        for refusal in found.refusals:
            if refusal.status == status:
                raise RefusedError(refusal)
    if found.refusals and not found.answers:
        raise RefusedError(found.refusals[0])


async def ask(member: Member, path: str, headers: Headers, most: int = _MOST_BYTES) -> Answer:
    """A node's answer to a GET, a JSON object. It has no time limit of its own.

    Raises: RefusedError, TooLongError, NoAnswerError.
    """
    async with asked_of(member, "GET", path, headers) as answer:
        return await read_answer(answer, most)


@asynccontextmanager
async def asked_of(
    member: Member, method: str, path: str, headers: Headers, body: bytes | None = None
) -> AsyncIterator[NodeAnswer]:
    """A node's answer, which is read within the block. Raises: NoAnswerError, also from there."""
    task = asyncio.current_task()
    with member.exchanges.by_this_task():
        try:
            request = NodeRequest(method, path, headers, body)
            async with member.upstream(Face.API).asked(request) as answer:
                yield answer
        except asyncio.CancelledError:
            # The end of the node's lease cuts what goes on with it; other ends are the caller's.
            if member.alive or task is None or task.cancelling() != 1:
                raise
            task.uncancel()
            raise NoAnswerError from None
        except (ClientError, NodeUnavailableError, TimeoutError, ValueError, RecursionError):
            raise NoAnswerError from None


async def read_answer(answer: NodeAnswer, most: int = _MOST_BYTES) -> Answer:
    """The JSON object of a success. Raises: RefusedError, TooLongError, NoAnswerError."""
    found = await _success(answer, most)
    if not isinstance(found, dict):
        raise NoAnswerError
    return found


async def ask_for_list(
    member: Member, path: str, headers: Headers, most: int = _MOST_BYTES
) -> Answer:
    """A node's answer to a GET, a JSON list whose next page a header names, as an object.

    Raises: as `ask`.
    """
    async with asked_of(member, "GET", path, headers) as answer:
        found = await _success(answer, most)
        if not isinstance(found, list):
            raise NoAnswerError
        return {"items": found, "next": answer.headers.get(NEXT_HEADER)}
    raise NoAnswerError


async def ask_whether(member: Member, path: str, headers: Headers) -> Answer:
    """Nothing, if a node answers a GET with a success. Raises: RefusedError, NoAnswerError."""
    async with asked_of(member, "GET", path, headers) as answer:
        await _success(answer, _MOST_BYTES)
    return {}


async def _success(answer: NodeAnswer, most: int) -> Any:
    """The JSON of a success. Raises: RefusedError, TooLongError, NoAnswerError."""
    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise NoAnswerError
    if answer.status >= HTTPStatus.BAD_REQUEST:
        raise RefusedError(await refusal_of(answer))
    if answer.status not in (HTTPStatus.OK, HTTPStatus.CREATED):
        raise NoAnswerError
    return json.loads(await _whole(answer, most), parse_float=_finite, parse_constant=_finite)


def _finite(text: str) -> float:
    """A number that JSON has, too. Raises: ValueError."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number


async def refusal_of(answer: NodeAnswer) -> Refusal:
    """What a node says to the caller. Raises: TooLongError."""
    names = ("Content-Type", "Retry-After", "WWW-Authenticate")
    headers = {name: answer.headers[name] for name in names if name in answer.headers}
    return Refusal(answer.status, headers, await _whole(answer, _MOST_PROBLEM))


async def _whole(answer: NodeAnswer, most: int) -> bytes:
    """The body. Raises: TooLongError before more than that is kept."""
    if answer.content_length is not None and answer.content_length > most:
        raise TooLongError
    found = bytearray()
    async for piece in answer.content.iter_any():
        found += piece
        if len(found) > most:
            raise TooLongError
    return bytes(found)
