"""The agent's side of the forwarder: its listener on loopback, and its process.

The process starts at the first connection: a session that never uses the way out pays nothing. It
is the agent's child, so that nothing that it does stalls the agent's loop. It has a uid of its own,
so no command can signal it, trace it, or open the proxy's socket.
"""

import os
import socket

from sandbox_agent.core.loop import READ, Loop
from sandbox_agent.decide.protocol import EGRESS_PORT
from sandbox_agent.enforce.kernel import Kernel
from sandbox_agent.net import forwarder_process

_BACKLOG = 64
_RESTART_SECONDS = 1.0


class Forwarder:
    """Relays connections to the loopback port to the proxy on the host."""

    def __init__(self, loop: Loop, kernel: Kernel, uid: int) -> None:
        """`uid` is the session's. Connections wait until `start`. Raises: OSError."""
        self._loop = loop
        self._kernel = kernel
        self._uid = uid
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(("127.0.0.1", EGRESS_PORT))
            self._listener.listen(_BACKLOG)
            self._listener.setblocking(False)
        except OSError:
            self._listener.close()
            raise

    def start(self) -> None:
        """Waits for a connection, whose arrival starts the process; the same follows its end."""
        self._loop.watch(self._listener.fileno(), READ, self._run)

    def _run(self, _events: int) -> None:
        self._loop.unwatch(self._listener.fileno())  # from now on, the process accepts
        try:
            pid = os.fork()
        except OSError:  # no room for another process now
            self._again()
            return
        if pid == 0:
            forwarder_process.run(self._listener, self._kernel, self._uid)
        self._loop.on_exit(pid, self._again)

    def _again(self) -> None:
        self._loop.after(_RESTART_SECONDS, self.start)
