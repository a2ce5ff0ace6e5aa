"""The agent's connection to the control plane: dials, redials, and exchanges frames."""

import contextlib
import os
import socket
from collections.abc import Callable

from sandbox_agent.core.loop import READ, WRITE, Loop, Timer
from sandbox_agent.decide.frames import FrameDecoder, FrameError, encode
from sandbox_agent.decide.protocol import Message

_FIRST_DELAY = 0.01
_LONGEST_DELAY = 1.0
# Deferred messages go out with the next urgent message, or after this time.
_SOON_SECONDS = 0.02
# A larger buffer would be mapped and unmapped for every message.
_RECEIVE_BYTES = 64 * 1024
# The agent ends the connection to a control plane that has not read so many bytes. After the next
# dial, the control plane gets the events that it missed.
_MOST_UNSENT_BYTES = 32 * 1024 * 1024


class Connection:
    """Keeps one connection open for the agent's lifetime.

    `on_open` is called after every successful dial. `on_message` is called for every frame; it
    raises FrameError for an invalid one, which ends the connection. `on_close` is called when the
    connection is lost.
    """

    def __init__(
        self,
        loop: Loop,
        path: str,
        on_open: Callable[[], None],
        on_message: Callable[[Message], None],
        on_close: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._path = path
        self._on_open = on_open
        self._on_message = on_message
        self._on_close = on_close
        self._socket: socket.socket | None = None
        self._decoder = FrameDecoder()
        self._unsent = bytearray()
        self._blocked = False
        self._soon: Timer | None = None
        self._delay = _FIRST_DELAY

    def dial(self) -> None:
        """Connects now; after a failure, tries again with growing delays of at most one second."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # A control plane that does not accept must not stall the agent.
        connection.setblocking(False)
        try:
            connection.connect(self._path)
        except OSError:
            connection.close()
            self._redial()
            return
        self._socket = connection
        self._decoder = FrameDecoder()
        self._unsent = bytearray()
        self._blocked = False
        self._loop.watch(connection.fileno(), READ, self._on_ready)
        self._on_open()

    def _redial(self) -> None:
        self._loop.after(self._delay, self.dial, always=True)
        self._delay = min(self._delay * 2, _LONGEST_DELAY)

    def accepted(self) -> None:
        """The control plane has answered hello: redial at once after the next loss."""
        self._delay = _FIRST_DELAY

    def send(self, message: Message) -> None:
        """Sends one message, or drops it if there is no connection."""
        if self._add(message):
            self._flush()

    def send_soon(self, message: Message) -> None:
        """Sends one message together with the next one, or a little later."""
        if self._add(message) and self._soon is None:
            self._soon = self._loop.after(_SOON_SECONDS, self._flush, always=True)

    def _add(self, message: Message) -> bool:
        """Buffers a message; returns whether to send it now."""
        if self._socket is None:
            return False
        self._unsent += encode(message)
        if len(self._unsent) > _MOST_UNSENT_BYTES:
            self.close("the control plane does not read")
            return False
        return True

    def _flush(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._socket is None:
            return
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            self._watch(blocked=True)
        except OSError as error:
            self.close(os.strerror(error.errno or 0))
        else:
            self._watch(blocked=False)

    def _watch(self, blocked: bool) -> None:
        if self._socket is not None and blocked != self._blocked:
            self._blocked = blocked
            events = READ | WRITE if blocked else READ
            self._loop.watch(self._socket.fileno(), events, self._on_ready)

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if events & READ and self._socket is not None:
            self._receive(self._socket)

    def _receive(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(_RECEIVE_BYTES)
            messages = self._decoder.feed(data)
        except BlockingIOError:
            return
        except (OSError, FrameError) as error:
            self.close(str(error))
            return
        if not data:
            self.close("closed by the control plane")
            return
        for message in messages:
            if self._socket is not connection:
                return  # an earlier message has ended this connection
            try:
                self._on_message(message)
            except FrameError as error:
                self.close(str(error))

    def close(self, reason: str) -> None:
        """Drops the connection and dials again."""
        if self._socket is None:
            return
        print(f"connection lost: {reason}", flush=True)
        self._loop.unwatch(self._socket.fileno())
        with contextlib.suppress(OSError):
            self._socket.close()
        self._socket = None
        self._on_close()
        self._redial()
