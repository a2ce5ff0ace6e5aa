"""This program's own terminal: its raw mode, its size, and its keys."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager

from paddock.cli.terminal.piped_input import pieces
from paddock.contract.words import MOST_SIDE

# Ctrl-]: leaves the shell, which stays open.
DETACH = b"\x1d"
# The size of a terminal that reports none.
_COLUMNS, _ROWS = 80, 24


@contextmanager
def raw_terminal() -> Iterator[None]:
    """Within the block, every key is passed on; the settings are restored on every path."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def terminal_size() -> tuple[int, int]:
    """Columns and rows, at most as many as a session's terminal may have."""
    size = os.get_terminal_size(sys.stdout.fileno())
    return min(size.columns or _COLUMNS, MOST_SIDE), min(size.lines or _ROWS, MOST_SIDE)


@contextmanager
def when_resized(call: Callable[[], None]) -> Iterator[None]:
    """Within the block, calls `call` whenever the terminal gets another size."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, call)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


async def keys() -> AsyncGenerator[bytes, None]:
    """What is typed, up to the key that detaches, or to the end of the input."""
    async for piece in pieces(sys.stdin.fileno()):
        before, found, _ = piece.partition(DETACH)
        if before:
            yield before
        if found:
            return


def write_out(data: bytes) -> None:
    """Writes bytes to the terminal as they are."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(sys.stdout.fileno(), rest) :]
