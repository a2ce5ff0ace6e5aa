"""A command's standard input: keeps up to a limit what the command has not read."""

import os
from collections.abc import Callable
from typing import NamedTuple

from sandbox_agent.core.loop import WRITE, Loop, Timer
from sandbox_agent.decide.errors import AgentError

# At most so many bytes are kept that the command has not read; further input waits for room.
MOST_BYTES = 1024 * 1024
# How long a caller waits for room, less than the control plane's own time-out.
PATIENCE_SECONDS = 20.0
_WRITE_BYTES = 65536

Done = Callable[[AgentError | None], None]


class _Waiting(NamedTuple):
    """Input that waits for room, and the callback for when there is."""

    data: bytes
    close: bool
    done: Done
    timer: Timer


class Feed:
    """The write end of a command's standard input; closes it at the end of the input."""

    def __init__(self, loop: Loop, fd: int, data: bytes, *, stays_open: bool) -> None:
        self._loop = loop
        self._fd: int | None = fd
        self._unread = bytearray(data)
        self._closing = not stays_open
        self._waiting: _Waiting | None = None
        os.set_blocking(fd, False)
        self._write()

    def write(self, data: bytes, close: bool, done: Done) -> None:
        """Queues more input, or waits until there is room for it; `close` marks it as the last.

        `done` is called once: with None when the input is queued, or with the reason for a refusal.
        That is `conflict` if the input is closed, and `busy` if the command has not read earlier
        input for `PATIENCE_SECONDS`.
        """
        if self._fd is None or self._closing:
            done(_closed())
        elif self._waiting is not None:
            done(AgentError("busy", "earlier input to this command is still pending: try again"))
        elif len(self._unread) + len(data) > MOST_BYTES and self._unread:
            timer = self._loop.after(PATIENCE_SECONDS, self._give_up)
            self._waiting = _Waiting(data, close, done, timer)
        else:
            self._take(data, close)
            done(None)

    def forget_caller(self) -> None:
        """Drops the waiting input, because its caller is gone."""
        if self._waiting is not None:
            self._waiting.timer.cancel()
            self._waiting = None

    def close(self) -> None:
        """Closes the input and drops what was not read."""
        if self._fd is not None:
            self._loop.unwatch(self._fd)
            os.close(self._fd)
            self._fd = None
        self._unread.clear()
        self._answer(_closed())

    def _take(self, data: bytes, close: bool) -> None:
        self._unread += data
        self._closing = close
        self._write()

    def _write(self) -> None:
        if self._fd is None:
            return
        try:
            while self._unread:
                written = os.write(self._fd, self._unread[:_WRITE_BYTES])
                del self._unread[:written]
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
        if waiting is None or (self._unread and len(self._unread) + len(waiting.data) > MOST_BYTES):
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
