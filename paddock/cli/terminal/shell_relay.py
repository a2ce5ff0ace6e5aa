"""Passes keys and output between this program's terminal and one of a session."""

import asyncio
from contextlib import aclosing, suppress

from paddock.cli.exits import Failure, Status
from paddock.cli.output import complain, note
from paddock.cli.terminal.own_terminal import (
    keys,
    raw_terminal,
    terminal_size,
    when_resized,
    write_out,
)
from paddock.client import LiveTerminal, Session, TerminalLost

_MOST_TYPED_BYTES = 32 * 1024


async def watch(session: Session, pty: str) -> int:
    """Shows a terminal to its end; returns its exit status."""
    terminal = await session.terminals.live(pty, watch=True)
    try:
        await _show(terminal)
    finally:
        await terminal.close()
    return _status(terminal)


async def attend(session: Session, pty: str | None) -> int | None:
    """Passes keys and output on; returns the shell's exit status, None if it stays open."""
    columns, rows = terminal_size()
    terminal = await session.terminals.live(pty, columns=columns, rows=rows)
    if not terminal.info.writable:
        await terminal.close()
        what = f"`paddock attach {session.id} {terminal.info.id}` watches it"
        raise Failure(f"{terminal.info.id} is no shell", what, Status.USAGE)
    resized = asyncio.Event()
    try:
        with raw_terminal(), when_resized(resized.set):
            if terminal_size() != (columns, rows):  # it was resized meanwhile
                resized.set()
            showing = asyncio.create_task(_show(terminal))
            others = [
                asyncio.create_task(_type(terminal)),
                asyncio.create_task(_follow_size(terminal, resized)),
            ]
            try:
                await asyncio.wait([showing, *others], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (showing, *others):
                    task.cancel()
                outcomes = await asyncio.gather(showing, *others, return_exceptions=True)
    finally:
        await terminal.close()
    if terminal.exit is not None:
        return _status(terminal)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    words = f"paddock shell {session.id} --pty {terminal.info.id}"
    note(f"detached; `{words}` attaches again")
    return None


async def _show(terminal: LiveTerminal) -> None:
    """Shows the output to its end."""
    async with aclosing(terminal.output()) as frames:
        async for frame in frames:
            if isinstance(frame, bytes):
                write_out(frame)
            elif isinstance(frame, TerminalLost):
                write_out(f"\r\n[{frame.lost} bytes of the output are missing]\r\n".encode())


async def _type(terminal: LiveTerminal) -> None:
    """Types until the person detaches."""
    async with aclosing(keys()) as typed:
        async for piece in typed:
            for start in range(0, len(piece), _MOST_TYPED_BYTES):
                await terminal.write(piece[start : start + _MOST_TYPED_BYTES])


async def _follow_size(terminal: LiveTerminal, resized: asyncio.Event) -> None:
    while True:
        await resized.wait()
        resized.clear()
        with suppress(OSError):
            await terminal.resize(*terminal_size())


def _status(terminal: LiveTerminal) -> int:
    """The exit status; says why the terminal has ended, unless its program ended by itself."""
    if terminal.exit is None:
        return Status.FAILED
    end = terminal.exit
    if end.reason != "exited":
        complain(f"the terminal was ended: {end.reason}")
    return Status.FAILED if end.exit_code is None else end.exit_code
