"""The control plane's end of one sandbox's control socket.

The control plane listens in the sandbox's run directory, the agent dials. What arrives
belongs to the session by the socket it arrives on, and is checked before it is believed:
the agent shares a kernel with hostile commands.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from orchestrator.agent_connection import Connection
from orchestrator.agent_messages import AgentEvent, Hello, domain_error, parse_hello
from orchestrator.errors import (
    AuditUnavailableError,
    PaddockError,
    SandboxUnavailableError,
    TooLargeError,
)
from sandbox_agent.protocol import (
    PROTOCOL_VERSION,
    SOCKET_NAME,
    FrameError,
    Message,
    failure,
    result,
)

# An agent whose connection broke dials again within a second; a request waits this long for it.
_RECONNECT_SECONDS = 5.0
_REQUEST_SECONDS = 40.0
# More than an agent has unacknowledged at any time; beyond it nothing more is read from it.
_MOST_RECORDING = 2048
_MOST_CONNECTIONS = 8


class AgentLink:
    """Listens for one sandbox's agent and talks to it.

    `committed` gives the last committed event number of a boot id; `on_event` makes an
    event durable, in order; `on_hello` is told of every connection that was accepted.
    """

    def __init__(
        self,
        run_dir: Path,
        committed: Callable[[str], Awaitable[int]],
        on_event: Callable[[AgentEvent], Awaitable[None]],
        on_hello: Callable[[Hello], None],
    ) -> None:
        self._run_dir = run_dir
        self._committed = committed
        self._on_event = on_event
        self._on_hello = on_hello
        self._server: asyncio.Server | None = None
        self._current: Connection | None = None
        self._open: dict[Connection, None] = {}
        self._connected = asyncio.Event()
        self._refusal: str | None = None
        # What the agent said last when it connected.
        self.hello: Hello | None = None
        self._greeting: set[asyncio.Task[None]] = set()
        self._recording: set[asyncio.Task[bool]] = set()

    async def listen(self) -> None:
        """Opens the socket, replacing one that an earlier control plane left. Raises: OSError."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        directory = os.open(self._run_dir, os.O_PATH | os.O_DIRECTORY)
        try:
            # By descriptor, because a socket's path may have only 107 bytes.
            path = f"/proc/self/fd/{directory}/{SOCKET_NAME}"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            listener.bind(path)
            os.chmod(path, 0o600)
        except BaseException:
            listener.close()
            raise
        finally:
            os.close(directory)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: Connection(self), sock=listener)

    @property
    def connected(self) -> bool:
        """Whether an agent is connected and was accepted."""
        return self._connected.is_set() and self._refusal is None

    async def wait_connected(self, timeout: float) -> None:
        """Waits for an agent's hello.

        Raises: SandboxUnavailableError when none came in time, or it spoke another protocol.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._connected.wait()
        except TimeoutError:
            detail = self._refusal or "the sandbox agent did not connect in time"
            raise SandboxUnavailableError(detail) from None
        if self._refusal is not None:
            raise SandboxUnavailableError(self._refusal)

    async def request(
        self, method: str, params: Message, timeout: float = _REQUEST_SECONDS
    ) -> Message:
        """Asks the agent. Raises: SandboxUnavailableError, or the error that the agent named."""
        if not self.connected:
            await self.wait_connected(_RECONNECT_SECONDS)
        connection = self._current
        if connection is None:
            raise SandboxUnavailableError("the sandbox agent is not connected")
        try:
            async with asyncio.timeout(timeout):
                answer = await connection.request(method, params)
        except TimeoutError:
            detail = f"the sandbox agent did not answer {method} within {timeout:g} s"
            raise SandboxUnavailableError(detail) from None
        except FrameError as error:
            raise TooLargeError(str(error)) from None
        if "error" in answer:
            raise domain_error(answer["error"])
        value = answer.get("result")
        if not isinstance(value, dict):
            raise SandboxUnavailableError(f"the sandbox agent answered {method} with garbage")
        return value

    async def settled(self) -> None:
        """Waits until every event received so far is durable.

        An agent sends an operation's event before its answer, so whoever has the answer
        and then this, has the operation on record. Raises: AuditUnavailableError.
        """
        recorded = await asyncio.gather(*self._recording)
        if not all(recorded):
            raise AuditUnavailableError("an audit event could not be recorded")

    async def close(self) -> None:
        """Stops listening, drops the connection, and finishes what is being recorded."""
        if self._server is not None:
            self._server.close()
        # Whoever waits for the agent need not wait any longer.
        self._refusal = "the sandbox has ended"
        self._connected.set()
        if self._current is not None:
            self._current.drop("closed")
        for task in self._greeting:
            task.cancel()
        await asyncio.gather(*self._greeting, *self._recording, return_exceptions=True)

    # Called by connections

    def opened(self, connection: Connection) -> None:
        """A connection was made; of too many, the oldest that is not in use goes."""
        self._open[connection] = None
        if len(self._open) > _MOST_CONNECTIONS:
            oldest = next(known for known in self._open if known is not self._current)
            oldest.drop("too many connections")

    def start_greeting(self, connection: Connection, message: Message) -> None:
        """Checks and answers a hello."""
        task = asyncio.create_task(self._greet(connection, message))
        self._greeting.add(task)
        task.add_done_callback(self._greeting.discard)

    def start_recording(self, connection: Connection, event: AgentEvent) -> None:
        """Makes an event durable; events are handed on in the order of these calls."""
        task = asyncio.create_task(self._record(connection, event))
        self._recording.add(task)
        task.add_done_callback(self._recorded)
        if len(self._recording) >= _MOST_RECORDING:
            connection.pause()

    def _recorded(self, task: asyncio.Task[bool]) -> None:
        self._recording.discard(task)
        if len(self._recording) < _MOST_RECORDING and self._current is not None:
            self._current.resume()

    async def _greet(self, connection: Connection, message: Message) -> None:
        """Answers an agent's hello; a connection that says anything else first is dropped."""
        request_id = message.get("id")
        params = message.get("params")
        version = params.get("protocol") if isinstance(params, dict) else None
        if version != PROTOCOL_VERSION:
            self._refuse(connection, request_id, version)
            return
        try:
            hello = parse_hello(params)
            committed = await self._committed(hello.boot_id)
        except (ValueError, AuditUnavailableError) as error:
            connection.drop(f"bad hello: {error}")
            return
        if connection.closing:
            return
        previous, self._current = self._current, connection
        if previous is not None and previous is not connection:
            previous.drop("replaced by a new connection")
        connection.accept(hello.boot_id, committed)
        self._refusal, self.hello = None, hello
        connection.send(result(request_id, {"committed_seq": committed}))
        self._connected.set()
        self._on_hello(hello)

    def _refuse(self, connection: Connection, request_id: Any, version: Any) -> None:
        self._refusal = (
            f"the image's sandbox agent speaks protocol {version!r}, this control plane speaks "
            f"{PROTOCOL_VERSION}: rebuild the image with `make run` or `python -m images build`"
        )
        connection.send(failure(request_id, "conflict", self._refusal))
        connection.drop("protocol mismatch", flush=True)
        self._connected.set()

    async def _record(self, connection: Connection, event: AgentEvent) -> bool:
        """Makes an event durable, then acknowledges it; on failure the agent sends it again."""
        try:
            await self._on_event(event)
        except PaddockError as error:
            connection.drop(f"event {event.seq} not recorded: {error.detail}")
            return False
        connection.acknowledge(event.seq)
        return True

    def lost(self, connection: Connection) -> None:
        """A connection has ended."""
        self._open.pop(connection, None)
        if self._current is connection:
            self._current = None
            if self._refusal is None:
                self._connected.clear()
