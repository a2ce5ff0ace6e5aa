"""Slots that are made ahead: none is left by work that nobody waits for any more."""

import asyncio
import threading
from contextlib import suppress
from typing import cast

from orchestrator.ground.threads import Threads
from orchestrator.host.workspace.prepared_slots import PreparedSlots
from orchestrator.host.workspace.slots_ahead import SlotsAhead
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until


class Slots:
    """Notes what is done, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def clear(self) -> None:
        self.done.append("cleared")


async def test_a_close_waits_for_what_is_being_made() -> None:
    slots = Slots()
    ahead = SlotsAhead(cast(PreparedSlots, slots), Threads("slots", 2))

    def make(given: PreparedSlots) -> None:
        assert given is cast(PreparedSlots, slots)
        slots.begun.set()
        assert slots.goes_on.wait(WAIT_SECONDS)
        slots.done.append("made")

    making = asyncio.create_task(ahead.call(make))
    await until(slots.begun.is_set)
    making.cancel()
    with suppress(asyncio.CancelledError):
        await making
    closing = asyncio.create_task(ahead.close())
    await asyncio.sleep(0)
    slots.goes_on.set()
    await closing
    assert slots.done == ["made", "cleared"]
