"""Requests of lower parts to end sessions: served at once, in order, whoever waits."""

import asyncio
from typing import Any, cast

import pytest

from orchestrator.ground.errors import AuditUnavailableError
from orchestrator.state.end_requests import EndRequest, EndRequests

FIRST, SECOND = (cast(Any, name) for name in ("first", "second"))


class Floor:
    """The sessions' floor: remembers what it was asked, and ends nothing before `free` is set."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, str | None]] = []
        self.ended: list[Any] = []
        self.both_asked = asyncio.Event()
        self.free = asyncio.Event()
        self.error: Exception | None = None

    async def serve(self, request: EndRequest) -> None:
        self.asked.append((request.session, request.missed))
        if len(self.asked) == 2:
            self.both_asked.set()
        await self.free.wait()
        if self.error is not None:
            raise self.error
        self.ended.append(request.session)


async def test_requests_begin_in_order_and_none_waits_for_another() -> None:
    requests, floor = EndRequests(), Floor()
    requests.serve(floor.serve)
    async with asyncio.TaskGroup() as group:
        group.create_task(requests.expire(FIRST))
        group.create_task(requests.miss(SECOND, "a file", None))
        await floor.both_asked.wait()
        assert floor.asked == [(FIRST, None), (SECOND, "a file")]
        assert floor.ended == []
        floor.free.set()
    assert floor.ended == [FIRST, SECOND]


async def test_requests_before_the_floor_is_open_wait_for_it() -> None:
    requests, floor = EndRequests(), Floor()
    floor.free.set()
    early = [asyncio.ensure_future(requests.expire(each)) for each in (FIRST, SECOND)]
    await asyncio.sleep(0)
    requests.serve(floor.serve)
    await asyncio.gather(*early)
    assert floor.ended == [FIRST, SECOND]


async def test_an_end_goes_on_without_the_one_that_asked_for_it() -> None:
    requests, floor = EndRequests(), Floor()
    requests.serve(floor.serve)
    asking = asyncio.ensure_future(requests.expire(FIRST))
    other = asyncio.ensure_future(requests.expire(SECOND))
    await floor.both_asked.wait()
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    floor.free.set()
    await other
    assert floor.ended == [FIRST, SECOND]


async def test_the_one_that_asked_learns_why_there_was_no_end() -> None:
    requests, floor = EndRequests(), Floor()
    requests.serve(floor.serve)
    floor.free.set()
    floor.error = AuditUnavailableError("the disk is full")
    with pytest.raises(AuditUnavailableError):
        await requests.expire(FIRST)


async def test_requests_that_nobody_serves_end_with_the_inbox() -> None:
    requests = EndRequests()
    asking = asyncio.ensure_future(requests.expire(FIRST))
    await asyncio.sleep(0)
    await requests.close()
    await asyncio.wait([asking])
    assert asking.cancelled()
