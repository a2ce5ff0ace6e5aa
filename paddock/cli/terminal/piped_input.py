"""Sends piped input of `run` and `exec` to the command."""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddock.client import Session

_READ_BYTES = 256 * 1024


def piped_input() -> int | None:
    """The descriptor of standard input if it is a pipe, a socket or a file.

    A terminal belongs to the person, and other devices (/dev/null) contain nothing.
    """
    try:
        descriptor = sys.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
    except (AttributeError, OSError, ValueError):  # it is closed
        return None
    piped = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)
    return descriptor if piped else None


def given_input() -> int | None:
    """The descriptor of standard input if a person or a program may give some there."""
    try:
        return sys.stdin.fileno() if sys.stdin.isatty() else piped_input()
    except (AttributeError, OSError, ValueError):  # it is closed
        return None


@asynccontextmanager
async def fed(session: "Session", command_id: str, descriptor: int) -> AsyncIterator[None]:
    """Feeds a command inside the block, until the input or the block ends.

    Raises: PaddockError at the end if input was lost.
    """
    feeding = asyncio.create_task(_feed(session, command_id, descriptor))
    try:
        yield
        if feeding.done():
            feeding.result()
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


async def _feed(session: "Session", command_id: str, descriptor: int) -> None:
    from paddock.client import ConflictError, NotFoundError, PaddockError

    try:
        async with aclosing(pieces(descriptor)) as found:
            async for piece in found:
                await _send(session, command_id, piece)
        await _send(session, command_id, b"", close=True)
    except (ConflictError, NotFoundError):
        pass  # it has closed its input, or has ended
    except PaddockError:
        # The command must not wait for input that does not come.
        with suppress(PaddockError):
            await session.processes.stdin(command_id, close=True)
        raise


async def _send(session: "Session", command_id: str, piece: bytes, *, close: bool = False) -> None:
    from paddock.client import BusyError, RateLimitedError

    while True:
        try:
            return await session.processes.stdin(command_id, piece, close=close)
        except BusyError:
            continue  # the command does not read yet: try again
        except RateLimitedError as error:
            await asyncio.sleep(error.retry_after or 1.0)


async def pieces(descriptor: int) -> AsyncGenerator[bytes, None]:
    """The input as it arrives."""
    regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
    readable = asyncio.Event()
    loop = asyncio.get_running_loop()
    while True:
        if not regular:
            readable.clear()
            loop.add_reader(descriptor, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(descriptor)
        data = os.read(descriptor, _READ_BYTES)
        if not data:
            return
        yield data
