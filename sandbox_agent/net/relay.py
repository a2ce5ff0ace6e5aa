"""Shared by the processes that connect a sandbox with the host: their relays and confinement."""

import contextlib
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from typing import NoReturn

from sandbox_agent.enforce import landlock, privileges, syscalls
from sandbox_agent.enforce.kernel import Kernel

# How many bytes are kept per direction while the receiving side is slow.
BUFFER_BYTES = 64 * 1024
_FAILED = 70


def run_confined(
    name: str, uid: int, kernel: Kernel, kept: Iterable[int], work: Callable[[], object]
) -> NoReturn:
    """Does the work in a new child of the agent, without privileges, files, or signals to others.

    Of the agent's descriptors, only those `kept` stay open. `name` is for the log.
    """
    status = _FAILED
    try:
        signal.set_wakeup_fd(-1)
        privileges.close_others(kept)
        privileges.drop_to(uid)
        syscalls.gain_no_privileges()
        ruleset = landlock.ruleset(kernel, [], landlock.handled(kernel))
        if ruleset is not None:
            syscalls.landlock_restrict(ruleset)
            os.close(ruleset)
        work()
        status = 0
    except BaseException as error:  # noqa: BLE001 - a child must never reach its parent's loop
        number = getattr(error, "errno", None)
        print(f"{name} failed: {type(error).__name__} {number}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


class _Side:
    """One of the two sockets, and the bytes that wait to be written to it."""

    def __init__(self, own: socket.socket) -> None:
        self.socket = own
        self.waiting = bytearray()
        self.ended = False  # nothing more can be read from it
        self.finished = False  # nothing more will be written to it
        self.events = 0


class Relay:
    """Moves bytes between two sockets, and closes both in the end."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        first: socket.socket,
        second: socket.socket,
        *,
        follows_first: bool = False,
    ) -> None:
        """With `follows_first`, the end of what the first one sends ends both directions."""
        self._selector = selector
        self._follows_first = follows_first
        self._sides = _Side(first), _Side(second)
        self._watch()

    @property
    def first_unread(self) -> bool:
        """Whether nothing is read from the first one: it has ended, or the second is slow."""
        return self._sides[0].ended or len(self._sides[1].waiting) >= BUFFER_BYTES

    @property
    def passed_on(self) -> bool:
        """Whether the second one has got everything that the first one has sent."""
        return self._sides[1].finished

    def serve(self, ready: object, events: int) -> bool:
        """Moves bytes; returns False once the connection is closed."""
        own, other = self._sides if ready is self._sides[0].socket else self._sides[::-1]
        try:
            if events & selectors.EVENT_WRITE:
                del own.waiting[: own.socket.send(own.waiting)]
            if events & selectors.EVENT_READ:
                self._read(own, other)
            for side, source in (self._sides, self._sides[::-1]):
                if source.ended and not side.waiting and not side.finished:
                    side.finished = True
                    side.socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return False
        if all(side.finished for side in self._sides) or (
            self._follows_first and self._sides[0].ended
        ):
            self.close()
            return False
        self._watch()
        return True

    def _read(self, own: _Side, other: _Side) -> None:
        room = BUFFER_BYTES - len(other.waiting)
        if not room:
            return
        data = own.socket.recv(room)
        if data:
            other.waiting += data
        else:
            own.ended = True

    def _watch(self) -> None:
        for own, other in (self._sides, self._sides[::-1]):
            events = selectors.EVENT_WRITE if own.waiting else 0
            if not own.ended and len(other.waiting) < BUFFER_BYTES:
                events |= selectors.EVENT_READ
            if events == own.events:
                continue
            if own.events and events:
                self._selector.modify(own.socket, events, self)
            elif events:
                self._selector.register(own.socket, events, self)
            else:
                self._selector.unregister(own.socket)
            own.events = events

    def close(self) -> None:
        """Closes both sockets."""
        for side in self._sides:
            if side.events:
                self._selector.unregister(side.socket)
            with contextlib.suppress(OSError):
                side.socket.close()
