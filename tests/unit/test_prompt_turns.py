"""Ctrl-C at a prompt while a turn runs."""

import asyncio
import os
import signal
from typing import cast

import pytest

from paddock.cli.prompt.interruptible_turn import StoppedWaiting, interrupting
from paddock.client import Session
from tests.support.limits import WAIT_SECONDS


class HangingSession:
    """A session whose control plane does not answer."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def interrupt(self) -> None:
        """Never returns."""
        self.asked.set()
        await asyncio.Event().wait()


async def test_the_second_one_stops_waiting() -> None:
    session = HangingSession()

    async def press_twice() -> None:
        async with interrupting(cast(Session, session)):
            os.kill(os.getpid(), signal.SIGINT)
            await session.asked.wait()
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(StoppedWaiting):
        await asyncio.wait_for(press_twice(), WAIT_SECONDS)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


async def test_a_cancelled_block_is_cancelled() -> None:
    async def block() -> None:
        async with interrupting(cast(Session, HangingSession())):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await block()
