"""One request to a node over one connection, and its answer.

Requests are framed and answers are parsed by aiohttp. Its client does more, for browsers: cookies,
redirects, URLs. That costs more processor time than all the rest that a gateway does.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from aiohttp import ClientPayloadError, StreamReader, hdrs
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError, StreamWriter
from multidict import CIMultiDict, CIMultiDictProxy

from orchestrator.ground.http_connector import BoundedHandler
from orchestrator.ground.serving.headers import Headers
from orchestrator.ground.task_scope import TaskScope

# Of an answer, ahead of a client that reads slowly. Longer requests are not sent at once.
_AHEAD_BYTES = 64 * 1024
MOST_HEAD_BYTES = 128 * 1024
_MOST_LINE_BYTES = MOST_HEAD_BYTES // 4
# They have a body, be it empty.
_HAVE_BODIES = frozenset({hdrs.METH_POST, hdrs.METH_PUT, hdrs.METH_PATCH})

# A whole body, or its pieces; None: there is none.
Body = bytes | AsyncIterator[bytes] | None


class NodeRequest(NamedTuple):
    """What is sent; `length` is that of a body in pieces, None: only its end shows it.

    `headers` have neither a length nor what concerns one connection.
    """

    method: str
    target: str
    headers: Headers
    body: Body = None
    length: int | None = None


class NodeAnswer(NamedTuple):
    """The head of an answer, and its body as it arrives. `protocol` is the connection's."""

    status: int
    headers: CIMultiDictProxy[str]
    content: StreamReader
    protocol: ResponseHandler

    @property
    def content_length(self) -> int | None:
        """The length of the body; None: only its end shows it."""
        length = self.headers.get(hdrs.CONTENT_LENGTH)
        return None if length is None else int(length)


class NodeCall:
    """A request that is sent over that connection, which is this call's until `end`."""

    def __init__(self, connection: BoundedHandler, sending: TaskScope) -> None:
        """`sending` owns the tasks that send bodies."""
        self._connection = connection
        self._scope = sending
        self._sending: asyncio.Task[None] | None = None
        self._sent = False
        self._answered = False

    async def begin(self, request: NodeRequest) -> NodeAnswer:
        """Sends it, and returns when the answer has begun. If there is none, the call has ended.

        Raises: ClientError if the connection ends before, or what comes is no answer; ValueError
        for what no head can have.
        """
        try:
            await self._send(request)
            while True:
                message, content = await self._connection.read()
                if message.code >= 200 or message.code == 101:
                    break
        except HttpProcessingError:
            self.end()
            raise ClientPayloadError("what the node answers is not HTTP") from None
        except BaseException:
            self.end()
            raise
        self._answered = True
        return NodeAnswer(message.code, message.headers, content, self._connection)

    def end(self) -> BoundedHandler | None:
        """Ends it; what is not read is cut off. The connection, if it may be used again."""
        connection, sending = self._connection, self._sending
        if sending is not None and not sending.done():
            sending.cancel()
        if connection.transport is None:
            return None
        if connection.upgraded:
            # What was written for the node still reaches it.
            connection.transport.close()
        elif self._sent and self._answered and not connection.should_close:
            return connection
        else:
            connection.transport.abort()
        return None

    async def _send(self, request: NodeRequest) -> None:
        """Sends the head with a short body. A longer one is sent while the answer is awaited."""
        connection, loop = self._connection, asyncio.get_running_loop()
        connection.set_response_params(
            skip_payload=request.method == hdrs.METH_HEAD,
            read_until_eof=True,
            auto_decompress=False,
            read_bufsize=_AHEAD_BYTES,
            max_line_size=_MOST_LINE_BYTES,
            max_field_size=_MOST_LINE_BYTES,
        )
        writer = StreamWriter(connection, loop)
        body = request.body
        whole = body if isinstance(body, bytes) else None
        headers = CIMultiDict(request.headers)
        if whole is not None:
            headers[hdrs.CONTENT_LENGTH] = str(len(whole))
        elif body is not None and request.length is None:
            headers[hdrs.TRANSFER_ENCODING] = "chunked"
            writer.enable_chunking()
        elif body is not None:
            headers[hdrs.CONTENT_LENGTH] = str(request.length)
            writer.length = request.length
        elif request.method in _HAVE_BODIES:
            headers[hdrs.CONTENT_LENGTH] = "0"
        await writer.write_headers(f"{request.method} {request.target} HTTP/1.1", headers)
        if body is None or (whole is not None and len(whole) <= _AHEAD_BYTES):
            await writer.write_eof(whole or b"")
            self._sent = True
            return
        pieces = _one(whole) if whole is not None else body
        assert not isinstance(pieces, bytes)  # noqa: S101 - known above
        self._sending = self._scope.begin(self._send_body(writer, pieces))
        self._sending.add_done_callback(_seen)

    async def _send_body(self, writer: StreamWriter, pieces: AsyncIterator[bytes]) -> None:
        try:
            writer.send_headers()
            async for piece in pieces:
                await writer.write(piece)
            await writer.write_eof()
            self._sent = True
        finally:
            transport = self._connection.transport
            if not self._sent and transport is not None:
                # The node must not take a part for the whole; then there is no answer either.
                transport.abort()


async def _one(whole: bytes) -> AsyncIterator[bytes]:
    yield whole


def _seen(task: asyncio.Task[None]) -> None:
    """Whoever sends the body says why it has not arrived; the connection shows that it has not."""
    if not task.cancelled():
        task.exception()
