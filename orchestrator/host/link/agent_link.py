"""The control plane's end of one sandbox's control socket.

The control plane listens in the sandbox's run directory, and the agent connects. A message belongs
to the session of the socket on which it arrives, and is checked before it is trusted, because the
agent shares a kernel with hostile commands.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from orchestrator.ground.errors import (
    AuditUnavailableError,
    PaddockError,
    SandboxUnavailableError,
    TooLargeError,
)
from orchestrator.ground.fair_share import FairShare, Metered
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.link import earlier_agents
from orchestrator.host.link.connection import Connection
from orchestrator.host.link.held_command import HeldCommand
from orchestrator.host.link.listener import Listener
from orchestrator.host.link.messages import AgentEvent, Hello, answer_of, parse_hello
from orchestrator.host.link.violations import Violations
from sandbox_agent.decide.frames import FrameError, failure, result
from sandbox_agent.decide.protocol import PROTOCOL_VERSION, Message

log = logging.getLogger(__name__)

# An agent whose connection broke reconnects within a second; a request waits this long for it.
_RECONNECT_SECONDS = 5.0
# Unless a request has its own.
REQUEST_SECONDS = 40.0
# More than our agent ever has unacknowledged, so its answers never wait behind events. Above either
# limit, nothing more is read from it.
_MOST_RECORDING = 2048
_MOST_RECORDING_BYTES = 16 * 1024 * 1024
# Of these, so many are in the ledger's queue, which all sessions share.
_MOST_IN_LEDGER = 128
_MOST_CONNECTIONS = 8
# The requests that stop something, or may.
_STOPPING = frozenset({"cancel", "signal", "pty.close", "pty.signal", "pty.interrupt", "shutdown"})


class AgentLink:
    """Listens for one sandbox's agent and talks to it.

    `listen` opens the socket. `committed` returns the last committed event number of a boot id.
    `on_event` makes an event durable, in order. `on_hello` is called for every accepted connection.
    `on_violation` records how the agent broke the protocol. Links with the same `share` divide the
    event loop's time between them.
    """

    def __init__(
        self,
        listen: Callable[[], socket.socket],
        committed: Callable[[str], Awaitable[int]],
        on_event: Callable[[AgentEvent], Coroutine[Any, Any, None]],
        on_hello: Callable[[Hello], None],
        on_violation: Callable[[str], Awaitable[None]],
        share: FairShare,
    ) -> None:
        self._listener = Listener(listen, lambda: Connection(self))
        self._committed = committed
        self._on_event = on_event
        self._on_hello = on_hello
        self._share = share
        self._violations = Violations(on_violation)
        self._current: Connection | None = None
        self._open: dict[Connection, None] = {}
        self._connected = asyncio.Event()
        self._refusal: str | None = None
        self._expects_configured = False
        # What its agent must speak; another protocol only if its sandbox was taken over.
        self.protocol = PROTOCOL_VERSION
        # The agent's latest hello.
        self.hello: Hello | None = None
        self._greeting = TaskScope("the hello of a sandbox agent")
        self._recording = TaskScope("the record of an agent's event")
        self._recording_bytes = 0
        self._in_ledger = asyncio.Semaphore(_MOST_IN_LEDGER)
        self._when_lost: Callable[[], None] = lambda: None
        self._when_stopping: Callable[[], None] = lambda: None

    async def listen(self) -> None:
        """Opens the socket and replaces one left by an earlier control plane. Raises: OSError."""
        self._listener.open()

    @property
    def connected(self) -> bool:
        """Whether an accepted agent is connected."""
        return self._connected.is_set() and self._refusal is None

    def expect_configured(self) -> None:
        """From now on an agent that does not know its session is refused: it is not ours."""
        self._expects_configured = True

    @property
    def earlier(self) -> bool:
        """Whether its agent is of an earlier version."""
        return self.protocol != PROTOCOL_VERSION

    def knows(self, method: str) -> bool:
        """Whether its agent has that request."""
        return earlier_agents.knows(self.protocol, method)

    def said(self, method: str, params: Message) -> Message:
        """The request's members as its agent understands them. Raises: EarlierAgentError."""
        return earlier_agents.said(self.protocol, method, params)

    async def wait_connected(self, timeout: float) -> None:
        """Waits for an agent's hello.

        Raises: SandboxUnavailableError if none came in time, or if the agent uses another protocol
        version.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._connected.wait()
        except TimeoutError:
            late = f"the sandbox agent did not connect in time: no hello within {timeout:g} s"
            detail = self._refusal or late
            raise SandboxUnavailableError(detail) from None
        if self._refusal is not None:
            raise SandboxUnavailableError(self._refusal)

    async def request(
        self, method: str, params: Message, timeout: float = REQUEST_SECONDS
    ) -> Message:
        """Sends a request to the agent.

        Raises: SandboxUnavailableError, EarlierAgentError, or the error that it returned.
        """
        params = self.said(method, params)
        if method in _STOPPING:
            self._when_stopping()
        connection = await self.connection()
        try:
            async with asyncio.timeout(timeout):
                answer = await connection.request(method, params)
        except TimeoutError:
            detail = f"the sandbox agent did not answer {method} within {timeout:g} s"
            raise SandboxUnavailableError(detail) from None
        except FrameError as error:
            raise TooLargeError(str(error)) from None
        return answer_of(method, answer)

    async def connection(self) -> Connection:
        """The present connection, or the next one. Raises: SandboxUnavailableError."""
        if not self.connected:
            await self.wait_connected(_RECONNECT_SECONDS)
        if self._current is None:
            raise SandboxUnavailableError("the sandbox agent is not connected")
        return self._current

    def hold(self, params: Message) -> HeldCommand:
        """Sends a command that the agent makes ready; it runs from `HeldCommand.go` on.

        `params` are as `said` returned them.
        """
        return HeldCommand(self.connection, self._current if self.connected else None, params)

    def when_lost(self, call: Callable[[], None]) -> None:
        """Has `call` called whenever the agent's connection has ended."""
        self._when_lost = call

    def when_stopping(self, call: Callable[[], None]) -> None:
        """Has `call` called before something in the sandbox is stopped.

        The agent says so when it stops something by itself, for example at a time-out.
        """
        self._when_stopping = call

    def stopping(self) -> None:
        """The agent stops something."""
        self._when_stopping()

    async def settled(self) -> None:
        """Waits until every event received so far is durable.

        An agent sends an operation's event before its answer. After the answer and this call, the
        operation is therefore recorded. Raises: AuditUnavailableError.
        """
        # Cancelling one waiter must not end the recording, because others wait for it, too.
        if not all(await self._recording.results()):
            raise AuditUnavailableError("an audit event could not be recorded")

    async def close(self) -> None:
        """Stops listening, drops the connection and finishes pending recordings."""
        self._hang_up("the sandbox has ended")
        await self._listener.close()
        await self._greeting.close()
        await self._recording.drain()
        await self._violations.drain()
        self._share.forget(self)

    def _hang_up(self, reason: str) -> None:
        """Stops listening for good; `reason` becomes the error of requests."""
        self._listener.stop()
        # End the waits for the agent.
        self._refusal = reason
        self._connected.set()
        for connection in list(self._open):
            connection.drop(reason)

    # Called by connections.

    def opened(self, connection: Connection) -> None:
        """Adds a connection. If there are too many, drops the oldest that is not in use."""
        self._open[connection] = None
        if len(self._open) > _MOST_CONNECTIONS:
            oldest = next(known for known in self._open if known is not self._current)
            oldest.drop("too many connections")

    def spend(self, seconds: float) -> float:
        """Charges seconds of the event loop's time; returns how long the agent must wait."""
        return self._share.spend(self, seconds)

    def violated(self, connection: Connection, reason: str) -> None:
        """Drops an agent that broke the protocol and records the violation."""
        connection.drop(reason)
        self._listener.delay()
        if self._violations.add(reason):
            self._hang_up("the sandbox agent broke the protocol too often")

    def failed(self, connection: Connection) -> None:
        """Drops an agent after an internal error; its event is not acknowledged."""
        connection.drop("an internal error")
        self._listener.delay()

    def start_greeting(self, connection: Connection, message: Message) -> None:
        """Checks and answers a hello."""
        self._greeting.spawn(self._greet(connection, message))

    def start_recording(self, connection: Connection, event: AgentEvent, size: int) -> None:
        """Makes an event of this size durable. Events are handled in the order of the calls."""
        task = self._recording.begin(self._record(connection, event))
        self._recording_bytes += size
        task.add_done_callback(lambda _: self._recorded(size))
        if self._full:
            connection.pause()

    def _recorded(self, size: int) -> None:
        self._recording_bytes -= size
        if self._current is not None and not self._full:
            self._current.resume()

    @property
    def _full(self) -> bool:
        many = len(self._recording) >= _MOST_RECORDING
        return many or self._recording_bytes >= _MOST_RECORDING_BYTES

    async def _greet(self, connection: Connection, message: Message) -> None:
        try:
            await Metered(self._answer_hello(connection, message), self.spend)
        except Exception:
            log.exception("the hello of a sandbox agent was not handled")
            self.failed(connection)

    async def _answer_hello(self, connection: Connection, message: Message) -> None:
        request_id = message.get("id")
        params = message.get("params")
        version = params.get("protocol") if isinstance(params, dict) else None
        if version != self.protocol:
            reason = (
                f"the sandbox agent speaks protocol {version!r}, this control plane expects "
                f"{self.protocol}: another version started the sandbox"
            )
            self._refuse(connection, request_id, reason)
            return
        try:
            hello = parse_hello(params)
            committed = await self._committed(hello.boot_id)
        except ValueError as error:
            self.violated(connection, f"bad hello: {error}")
            return
        except AuditUnavailableError as error:
            connection.drop(f"hello not answered: {error.detail}")
            return
        if connection.closing:
            return
        if self._expects_configured and not hello.configured:
            self._refuse(connection, request_id, "the sandbox agent was never configured")
            return
        previous, self._current = self._current, connection
        if previous is not None and previous is not connection:
            previous.drop("replaced by a new connection")
        connection.accept(hello.boot_id, committed)
        self._refusal, self.hello = None, hello
        connection.send(result(request_id, {"committed_seq": committed}))
        self._connected.set()
        self._on_hello(hello)

    def _refuse(self, connection: Connection, request_id: Any, reason: str) -> None:
        """Refuses an agent; ours ends when it is refused."""
        self._refusal = reason
        connection.send(failure(request_id, "conflict", reason))
        connection.drop("refused", flush=True)
        self._connected.set()

    async def _record(self, connection: Connection, event: AgentEvent) -> bool:
        """Makes an event durable and acknowledges it. On failure, the agent sends it again."""
        try:
            async with self._in_ledger:
                # Handling an agent's report may take a while, for which its sandbox is charged.
                await Metered(self._on_event(event), self.spend)
        except PaddockError as error:
            connection.drop(f"event {event.seq} not recorded: {error.detail}")
            return False
        except Exception:
            log.exception("event %d of a sandbox agent was not handled", event.seq)
            self.failed(connection)
            return False
        FaultPoint.EXEC_REPORTED.reached()
        connection.acknowledge(event.seq)
        return True

    def lost(self, connection: Connection) -> None:
        """Removes a connection that has ended."""
        self._open.pop(connection, None)
        if self._current is connection:
            self._current = None
            if self._refusal is None:
                self._connected.clear()
            self._when_lost()
