"""A command's standard input: what it has not read yet is held here, up to a limit."""

import os
from collections.abc import Callable
from typing import NamedTuple

from sandbox_agent.errors import AgentError
from sandbox_agent.loop import WRITE, Loop, Timer

# What the command has not read; further input waits until it has.
MOST_BYTES = 1024 * 1024
# So long one who feeds is kept waiting, below what the control plane waits for an answer.
PATIENCE_SECONDS = 20.0
_WRITE_BYTES = 65536

Done = Callable[[AgentError | None], None]


class _Waiting(NamedTuple):
    """Input that there is no room for yet, and who is told when there is."""

    data: bytes
    close: bool
    done: Done
    timer: Timer


class Feed:
    """The writing end of a command's standard input, which it closes at the end of the input."""

    def __init__(self, loop: Loop, fd: int, data: bytes, *, stays_open: bool) -> None:
        self._loop = loop
        self._fd: int | None = fd
        self._held = bytearray(data)
        self._closing = not stays_open
        self._waiting: _Waiting | None = None
        os.set_blocking(fd, False)
        self._write()

    def write(self, data: bytes, close: bool, done: Done) -> None:
        """Takes more input, when there is room for it; `close` says that it is the last.

        `done` is told then, or why it was not taken: `conflict` when the input is closed, `busy`
        when the command has not read what came before for `PATIENCE_SECONDS`.
        """
        if self._fd is None or self._closing:
            done(_closed())
        elif self._waiting is not None:
            done(AgentError("busy", "earlier input to this command waits: try again"))
        elif len(self._held) + len(data) > MOST_BYTES and self._held:
            timer = self._loop.after(PATIENCE_SECONDS, self._give_up)
            self._waiting = _Waiting(data, close, done, timer)
        else:
            self._take(data, close)
            done(None)

    def forget_caller(self) -> None:
        """Nobody waits any more: what waited is not taken."""
        if self._waiting is not None:
            self._waiting.timer.cancel()
            self._waiting = None

    def close(self) -> None:
        """Ends the input; what was not read is dropped."""
        if self._fd is not None:
            self._loop.unwatch(self._fd)
            os.close(self._fd)
            self._fd = None
        self._held.clear()
        self._answer(_closed())

    def _take(self, data: bytes, close: bool) -> None:
        self._held += data
        self._closing = close
        self._write()

    def _write(self) -> None:
        if self._fd is None:
            return
        try:
            while self._held:
                written = os.write(self._fd, self._held[:_WRITE_BYTES])
                del self._held[:written]
        except BlockingIOError:
            self._loop.watch(self._fd, WRITE, lambda _events: self._write())
            self._take_waiting()
            return
        except BrokenPipeError:
            self.close()
            return
        self._loop.unwatch(self._fd)
        if self._closing:
            self.close()
        else:
            self._take_waiting()

    def _take_waiting(self) -> None:
        waiting = self._waiting
        if waiting is None or (self._held and len(self._held) + len(waiting.data) > MOST_BYTES):
            return
        self._waiting = None
        waiting.timer.cancel()
        self._take(waiting.data, waiting.close)
        waiting.done(None)

    def _give_up(self) -> None:
        text = f"the command has not read its standard input for {PATIENCE_SECONDS:g} s: try again"
        self._answer(AgentError("busy", text))

    def _answer(self, error: AgentError) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.timer.cancel()
            waiting.done(error)


def _closed() -> AgentError:
    return AgentError("conflict", "the command's standard input is closed")
