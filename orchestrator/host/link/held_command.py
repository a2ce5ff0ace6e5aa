"""A command that the agent makes ready while its start is being recorded.

The agent runs it only after the message `go`. If the message does not come, because the start can't
be recorded or the control plane has died, the command never runs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from orchestrator.ground.errors import SandboxUnavailableError, TooLargeError
from orchestrator.host.link.connection import Asked, Connection
from orchestrator.host.link.messages import answer_of
from sandbox_agent.decide.frames import FrameError, notification
from sandbox_agent.decide.protocol import Message


class HeldCommand:
    """One command on its way; a context manager that drops it unless `go` was called."""

    def __init__(
        self,
        connected: Callable[[], Awaitable[Connection]],
        connection: Connection | None,
        params: Message,
    ) -> None:
        """Sends it on `connection`, if there is one. If it can't be sent, `go` says why."""
        self._connected = connected
        self._params = params
        self._sent: tuple[Connection, Asked] | None = None
        # Whether the agent has been sent `go` or `drop`.
        self._decided = False
        if connection is not None:
            with suppress(FrameError):
                self._send(connection, held=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.drop()
        if self._sent is not None:
            connection, asked = self._sent
            connection.forget(asked)

    def drop(self) -> None:
        """Has the agent drop it, unless `go` was called."""
        if self._sent is not None and not self._decided:
            self._decided = True
            self._decide(self._sent[0], "drop")

    def check(self) -> None:
        """Raises the error that already prevents the agent from running it, if there is one."""
        if self._sent is None:
            return
        connection, asked = self._sent
        if asked.answer.done():
            answer_of("exec", asked.answer.result())
        if connection.closing:  # the agent has dropped it
            raise SandboxUnavailableError("the sandbox agent disconnected")

    async def go(self, timeout: float) -> None:
        """Runs it, and returns when the agent has answered that it was ready.

        Raises: SandboxUnavailableError, TooLargeError, or the error that the agent returned.
        """
        if self._sent is not None:
            connection, asked = self._sent
            self._decide(connection, "go")
        else:
            try:
                asked = self._send(await self._connected(), held=False)
            except FrameError as error:
                raise TooLargeError(str(error)) from None
        self._decided = True
        try:
            async with asyncio.timeout(timeout):
                answer = await asked.answer
        except TimeoutError:
            detail = f"the sandbox agent did not answer exec within {timeout:g} s"
            raise SandboxUnavailableError(detail) from None
        answer_of("exec", answer)

    def _send(self, connection: Connection, *, held: bool) -> Asked:
        asked = connection.ask("exec", {**self._params, "held": held})
        self._sent = connection, asked
        return asked

    def _decide(self, connection: Connection, decision: str) -> None:
        connection.send(notification(decision, {"command_id": self._params["command_id"]}))
