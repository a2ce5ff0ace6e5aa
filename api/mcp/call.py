"""One request in progress: its task, and the messages that it sends."""

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
from api.mcp.streams import Stream
from api.shape.context import Context
from orchestrator.ground.errors import BusyError
from orchestrator.ground.log_context import asking_as
from orchestrator.ground.serving.failures import failed
from orchestrator.work.terminals.session_tools import SessionTools
from orchestrator.work.terminals.terminals import Terminals

# Of a client's method in log lines and events: those that there are, are shorter.
_MOST_NAME = 64


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
        self._name = f"mcp {method[:_MOST_NAME]}"
        meta = params.get("_meta")
        # The client's name for progress; None: it wants none.
        self._token = request_id(meta.get("progressToken")) if isinstance(meta, dict) else None
        self._progress = -1

    def begin(self, *, primed: bool) -> Stream:
        """Begins to perform the request: the stream has its progress, then its answer.

        A cancelled request has no answer. `primed` is as in `Stream`.

        Raises: BusyError if too many requests are being answered, McpError if the id is in use.
        """
        conversation = self._conversation
        requests = conversation.requests
        if self._id in requests:
            raise McpError(INVALID_REQUEST, "a request with this id is being answered")
        if len(requests) >= MOST_REQUESTS:
            raise BusyError(f"{MOST_REQUESTS} requests are being answered: wait for one of them")
        stream = self._stream = requests[self._id] = conversation.streams.open(primed=primed)
        task = stream.work = self._context.work.spawn(self._perform())

        def ended(_task: object) -> None:
            del requests[self._id]
            conversation.use()
            stream.end()

        task.add_done_callback(ended)
        return stream

    async def _perform(self) -> None:
        # Its client may have gone, and come back: the credential must be valid all the time.
        with self._context.work.while_allowed(self._context.allowed), asking_as(self._name):
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
                self._stream.add(failure(self._id, error))
            except Exception as error:  # noqa: BLE001 - the client learns of it, and the log has the rest
                problem = self._context.problem(failed(error))
                self._stream.add(failure(self._id, McpError(REFUSED, problem.detail), problem.raw))
            else:
                self._stream.add(answer(self._id, result))

    def _tell(self, text: str, progress: int) -> None:
        """Sends progress, if the client wants it; the protocol demands growing numbers."""
        if self._token is None:
            return
        self._progress = max(progress, self._progress + 1)
        params = {"progressToken": self._token, "progress": self._progress, "message": text}
        self._stream.add(notice(PROGRESS, params))
