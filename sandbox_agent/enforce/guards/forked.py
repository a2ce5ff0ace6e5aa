"""The process of a guard, and the agent's ends of the sockets to it."""

import functools
import os
import socket
from collections.abc import Callable
from typing import NoReturn

from sandbox_agent.core.loop import Loop
from sandbox_agent.enforce.guard_process import run

# A guard that waits and ends so often by itself is not replaced: the first command makes its own.
_MOST_ENDS = 8


class Forked:
    """One process: `socket` carries orders and reports, `starter` what starts a command."""

    def __init__(self, start: Callable[[socket.socket, socket.socket], NoReturn]) -> None:
        """`start` runs in the process. Raises: OSError if no process can be created."""
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.starter, its_starter = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.pid = os.fork()
        except OSError:
            for each in (self.socket, theirs, self.starter, its_starter):
                each.close()
            raise
        if self.pid == 0:
            start(theirs, its_starter)
        theirs.close()
        its_starter.close()
        self.socket.setblocking(False)
        self.starter.setblocking(False)

    def close(self) -> None:
        """Closes the sockets, upon which a guard without a command ends."""
        self.starter.close()
        self.socket.close()


class WaitingGuard:
    """At most one guard that was forked before the sandbox has a session.

    It has nothing of any session: neither the agent nor anything else in the sandbox knows one
    then. It runs nothing before it has got its settings and is confined.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._forked: Forked | None = None
        self._ends = 0

    def fork(self) -> None:
        """Forks it, unless it is there or there is no room for it."""
        if self._forked is not None:
            return
        try:
            forked = Forked(functools.partial(run, None))
        except OSError:
            return
        self._forked = forked
        self._loop.on_exit(forked.pid, functools.partial(self._ended, forked))

    def take(self) -> Forked | None:
        """Hands it over; None if there is none."""
        forked, self._forked = self._forked, None
        return forked

    def _ended(self, forked: Forked) -> None:
        if forked is not self._forked:
            return
        self._forked = None
        forked.close()
        self._ends += 1
        if self._ends < _MOST_ENDS:
            self.fork()
