"""Runs the turns of a prompt, which Ctrl-C interrupts."""

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from paddock.cli.connection import Connection
from paddock.cli.errors import explain
from paddock.cli.exits import TRACEBACK_VARIABLE, Failure
from paddock.cli.output import complain, note
from paddock.cli.resources.turns import follow
from paddock.client import PaddockError, Session


def leave_signals() -> None:
    """Restores the usual effect of signals: the event loop does not run while nobody types."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)


async def run_turn(connection: Connection, session: str, form: str, as_json: bool) -> int:
    """Runs one turn, and returns its status; what refuses or fails it is shown."""
    try:
        async with connection.open() as paddock:
            found = await paddock.sessions.get(session)
            async with interrupting(found):
                return await follow(found, {"code": form}, as_json)
    except PaddockError as error:
        failure = explain(error, TRACEBACK_VARIABLE)
    except StoppedWaiting:
        failure = Failure("the turn may still be running", f"`paddock turns {session}` lists it")
    complain(failure.what if failure.remedy is None else f"{failure.what}; {failure.remedy}")
    return failure.status


class StoppedWaiting(Exception):  # noqa: N818
    """Ctrl-C was pressed a second time."""


@asynccontextmanager
async def interrupting(session: Session) -> AsyncGenerator[None]:
    """Within the block, Ctrl-C interrupts what runs in the session; a second one ends the block.

    Raises: StoppedWaiting.
    """
    task, asked = asyncio.current_task(), asyncio.Event()
    pressed = 0

    def press() -> None:
        nonlocal pressed
        pressed += 1
        asked.set()
        if pressed > 1 and task is not None:
            task.cancel()

    async def interrupt() -> None:
        await asked.wait()
        try:
            await session.interrupt()
        except PaddockError as error:
            note(f"not interrupted: {error}")

    interrupter = asyncio.create_task(interrupt())
    try:
        with _on_interrupt(press):
            yield
    except asyncio.CancelledError:
        if pressed < 2 or task is None:
            raise
        task.uncancel()
        raise StoppedWaiting from None
    finally:
        interrupter.cancel()
        with suppress(asyncio.CancelledError):
            await interrupter


@contextmanager
def _on_interrupt(action: Callable[[], None]) -> Iterator[None]:
    """Within the block, each Ctrl-C calls `action`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, action)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
