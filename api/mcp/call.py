"""One request in progress: its task, and the messages that it sends."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any

from api.mcp.conversation import MOST_REQUESTS, Conversation
from api.mcp.messages import (
    INVALID_REQUEST,
    PROGRESS,
    REFUSED,
    McpError,
    RequestId,
    answer,
    failure,
    notice,
    request_id,
)
from api.mcp.methods import result_of
from api.shape.answers import HEARTBEAT_SECONDS
from api.shape.context import Context
from api.shape.failures import failed
from orchestrator.ground.errors import BusyError
from orchestrator.work.terminals.session_tools import SessionTools
from orchestrator.work.terminals.terminals import Terminals
from paddock.contract.mcp import McpReply

# A client that reads too slowly misses the oldest messages; the answer has everything.
_MOST_PROGRESS = 64


class Call:
    """A request of a conversation."""

    def __init__(
        self,
        context: Context,
        conversation: Conversation,
        called: RequestId,
        method: str,
        params: dict[str, Any],
        session_tools: SessionTools,
        terminals: Terminals,
    ) -> None:
        self._context = context
        self._conversation = conversation
        self._id = called
        self._method = method
        self._params = params
        self._session_tools = session_tools
        self._terminals = terminals
        meta = params.get("_meta")
        # The client's name for progress; None: it wants none.
        self._token = request_id(meta.get("progressToken")) if isinstance(meta, dict) else None
        self._waiting: deque[McpReply] = deque(maxlen=_MOST_PROGRESS)
        self._changed = asyncio.Event()
        self._progress = -1

    async def messages(self) -> AsyncGenerator[McpReply | None]:
        """Performs the request: yields its progress, then its answer; None after a silent while.

        A cancelled request has no answer. If nobody reads on, it is cancelled.

        Raises: BusyError if too many requests are being answered, McpError if the id is in use.
        """
        requests = self._conversation.requests
        if self._id in requests:
            raise McpError(INVALID_REQUEST, "a request with this id is being answered")
        if len(requests) >= MOST_REQUESTS:
            raise BusyError(f"{MOST_REQUESTS} requests are being answered: wait for one of them")
        task = requests[self._id] = self._context.work.spawn(self._perform())
        task.add_done_callback(lambda _task: self._changed.set())
        try:
            while not task.done() or self._waiting:
                if self._waiting:
                    yield self._waiting.popleft()
                elif not await self._news():
                    yield None
        finally:
            task.cancel()
            await asyncio.wait([task])
            del requests[self._id]
            self._conversation.use()

    async def _news(self) -> bool:
        """Waits for a message or the end; returns whether there is one of them."""
        self._changed.clear()
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _perform(self) -> None:
        try:
            result = await result_of(
                self._context,
                self._conversation,
                self._method,
                self._params,
                self._tell,
                self._session_tools,
                self._terminals,
            )
        except McpError as error:
            self._send(failure(self._id, error))
        except Exception as error:  # noqa: BLE001 - the client learns of it, and the log has the rest
            problem = self._context.problem(failed(error))
            self._send(failure(self._id, McpError(REFUSED, problem.detail), problem.raw))
        else:
            self._send(answer(self._id, result))

    def _tell(self, text: str, progress: int) -> None:
        """Sends progress, if the client wants it; the protocol demands growing numbers."""
        if self._token is None:
            return
        self._progress = max(progress, self._progress + 1)
        params = {"progressToken": self._token, "progress": self._progress, "message": text}
        self._send(notice(PROGRESS, params))

    def _send(self, message: McpReply) -> None:
        self._waiting.append(message)
        self._changed.set()
