"""Connections into one sandbox, each to a port on its loopback.

Nobody can connect into a sandbox: its process for ports keeps a few connections to this socket
ready, and the control plane uses them.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

from orchestrator.ground.errors import BusyError, SandboxUnavailableError
from orchestrator.ground.fair_share import Pace
from orchestrator.ground.task_scope import InUse, TaskScope
from orchestrator.host.node.base import Node
from orchestrator.sandbox.ports.limits import PortLimits
from orchestrator.sandbox.sandboxes.parts import HeldPart, Plan
from orchestrator.state.sandbox import Sandbox
from sandbox_agent.decide.protocol import PORT_CONNECTED, PORT_REFUSED

log = logging.getLogger(__name__)

# After a failure to accept, for example when no descriptors are left.
_FAILED_SECONDS = 1.0


class NothingListensError(SandboxUnavailableError):
    """Nothing listens on that port in the sandbox."""


class Tunnels:
    """Only the sandbox connects here, because nothing else has the socket.

    `shut` ends what uses the connections, and refuses others until `reopen`.
    """

    def __init__(
        self,
        listen: Callable[[], socket.socket],
        start: Callable[[], Awaitable[object]],
        limits: PortLimits,
    ) -> None:
        """`listen` opens the socket; `start` makes the sandbox connect to it, unless it does."""
        self._listen = listen
        self._start = start
        self._limits = limits
        self._ready: asyncio.Queue[socket.socket] = asyncio.Queue(limits.ready)
        self._accepting = TaskScope("the ports of a sandbox")
        self._pace = Pace(limits.pace_seconds, limits.burst)
        self._in_use = InUse()
        self._shut = False

    @contextmanager
    def used(self) -> Iterator[None]:
        """The current task may connect meanwhile. Raises: SandboxUnavailableError, BusyError."""
        self._check()
        if len(self._in_use) >= self._limits.connections:
            raise BusyError(f"the session serves {self._limits.connections} requests already")
        with self._in_use.by_this_task():
            yield

    async def connect(self, port: int) -> socket.socket:
        """A connection to the port, which the caller closes.

        Raises: NothingListensError, SandboxUnavailableError.
        """
        self._check()
        try:
            async with asyncio.timeout(self._limits.connect_seconds):
                while True:
                    connected = await self._tried(port)
                    if connected is not None:
                        return connected
        except TimeoutError:
            raise SandboxUnavailableError(f"port {port} of the session does not answer") from None

    def shut(self) -> None:
        """Ends what uses the connections at once."""
        self._shut = True
        self._in_use.cut()

    def recheck(self) -> None:
        """Ends nothing: no rule is about connections to ports, and a closed port ends its own."""

    def reopen(self) -> None:
        """Connections can be used again."""
        self._shut = False

    async def close(self) -> None:
        """Closes the socket, and all connections that are not in use."""
        self.shut()
        await self._accepting.close()
        while not self._ready.empty():
            self._ready.get_nowait().close()

    def _check(self) -> None:
        if self._shut:
            raise SandboxUnavailableError("the session is being stopped or changed")

    async def _tried(self, port: int) -> socket.socket | None:
        """The connection that was ready, now the port's; None if it was of no use.

        Raises: NothingListensError, SandboxUnavailableError.
        """
        if not len(self._accepting):
            self._accepting.spawn(self._accept(self._listen()))
        if self._ready.empty():
            await self._start()
        connection = await self._ready.get()
        answer = b""
        try:
            answer = await self._asked(connection, port)
        finally:
            if answer != PORT_CONNECTED:
                connection.close()
        if answer == PORT_REFUSED:
            raise NothingListensError(f"nothing listens on port {port} in the session")
        return connection if answer == PORT_CONNECTED else None

    async def _asked(self, connection: socket.socket, port: int) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(connection, port.to_bytes(2, "big"))
            return await loop.sock_recv(connection, 1)
        except OSError:  # its process has ended
            return b""

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                await asyncio.sleep(self._pace.wait())
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as error:
                    log.warning("a connection of a sandbox can't be accepted: %s", error)
                    await asyncio.sleep(_FAILED_SECONDS)
                    continue
                self._pace.count()
                try:
                    await self._ready.put(connection)
                except asyncio.CancelledError:
                    connection.close()
                    raise


class PortsPart(HeldPart):
    """The connections to its ports; the socket is opened at the first use."""

    name = "ports"

    def __init__(self, node: Node, limits: PortLimits) -> None:
        self._node = node
        self._limits = limits
        # The keys are the sandboxes' names.
        self._tunnels: dict[str, Tunnels] = {}

    async def open(self, plan: Plan) -> None:
        """Opens nothing yet."""
        listen = partial(self._node.listen_for_ports, plan.directory.ports)
        ask = partial(plan.link.request, "ports", {})
        tunnels = self._tunnels[plan.name] = Tunnels(listen, ask, self._limits)
        plan.ways.append(tunnels)

    async def close(self, plan: Plan) -> None:
        """Ends all connections."""
        if (tunnels := self._tunnels.pop(plan.name, None)) is not None:
            await tunnels.close()

    def tunnels(self, sandbox: Sandbox) -> Tunnels:
        """The connections of that sandbox. Raises: SandboxUnavailableError."""
        if (tunnels := self._tunnels.get(sandbox.name)) is None:
            raise SandboxUnavailableError("the session's sandbox has no ports")
        return tunnels
