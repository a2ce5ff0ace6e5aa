"""The control socket of one sandbox; accepts connections at the rate of a genuine agent."""

import asyncio
import logging
import socket
from collections.abc import Callable

from orchestrator.ground.fair_share import Pace
from orchestrator.ground.task_scope import TaskScope

log = logging.getLogger(__name__)

# An agent connects once, and again if its connection is lost: a burst of a few, then this interval.
_DIAL_SECONDS = 0.25
_DIALS_AT_ONCE = 16
_BROKEN_LISTENER_DIALS = 4


class Listener:
    """Makes a protocol with `connect` for each connection."""

    def __init__(
        self, listen: Callable[[], socket.socket], connect: Callable[[], asyncio.Protocol]
    ) -> None:
        self._listen = listen
        self._connect = connect
        self._dials = Pace(_DIAL_SECONDS, _DIALS_AT_ONCE)
        self._accepting = TaskScope("the socket of a sandbox agent")

    def open(self) -> None:
        """Opens the socket and replaces one left by an earlier control plane. Raises: OSError."""
        listener = self._listen()
        self._accepting.spawn(self._accept(listener))

    def delay(self) -> None:
        """Delays the next connection, because the agent misbehaved."""
        self._dials.count()

    def stop(self) -> None:
        """Accepts no more connections."""
        self._accepting.cancel()

    async def close(self) -> None:
        """Stops, and returns once the socket is closed."""
        await self._accepting.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                await asyncio.sleep(self._dials.wait())
                try:
                    dialled, _ = await loop.sock_accept(listener)
                    self._dials.count()
                    await loop.connect_accepted_socket(self._connect, dialled)
                except OSError as error:  # for example when no descriptors are left
                    log.warning("a sandbox agent's connection can't be accepted: %s", error)
                    self._dials.count(_BROKEN_LISTENER_DIALS)
                except Exception:
                    log.exception("a sandbox agent's connection can't be accepted")
                    self._dials.count(_BROKEN_LISTENER_DIALS)
