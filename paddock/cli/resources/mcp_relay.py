"""Relays the Model Context Protocol between standard input and output and a session."""

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddock.client import Session

Message = dict[str, Any]

_MOST_LINE_BYTES = 8 * 1024 * 1024
_PARSE_ERROR = -32700
_FAILED = -32000
# Between two attempts to listen.
_PAUSE_SECONDS = 1.0


async def writer() -> Callable[[Message], Coroutine[Any, Any, None]]:
    """Writes messages to standard output; one that waits for its reader delays no signal."""
    writing = asyncio.Lock()
    # A copy, because the pipe's transport closes what it writes to.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    regular = stat.S_ISREG(os.fstat(output.fileno()).st_mode)
    pipe = None if regular else await _pipe(output)

    async def write(message: Message) -> None:
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        async with writing:
            if pipe is None:
                output.write(data)
                output.flush()
            else:
                pipe.write(data)
                await pipe.drain()

    return write


async def _pipe(output: Any) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop=loop), output
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def lines(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The lines of the input. Raises: ValueError for one that is too long."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
        if len(rest) > _MOST_LINE_BYTES:
            raise ValueError("a line of the input is too long")
    if rest.strip():
        yield rest


def parsed(line: bytes) -> Message | None:
    """The message in a line; None if it is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


class Relay:
    """One client's messages, each sent to the session, and the answers written back."""

    def __init__(
        self, session: "Session", write: Callable[[Message], Coroutine[Any, Any, None]]
    ) -> None:
        self._session = session
        self._write = write
        self._tasks: set[asyncio.Task[None]] = set()
        # The client's `initialize`, and what it wants to be told, for a control plane that was
        # restarted.
        self._first: Message | None = None
        self._wanted: dict[str, Message] = {}
        self._beginning = asyncio.Lock()

    async def run(self, messages: AsyncIterator[bytes]) -> None:
        """Relays until the input ends; requests that are not answered then are cancelled."""
        try:
            async for line in messages:
                message = parsed(line)
                if message is None:
                    await self._write(_failure(None, _PARSE_ERROR, "this line is no JSON object"))
                elif message.get("method") == "initialize":
                    await self._initialize(message)
                elif message.get("id") is None or "method" not in message:
                    await self._notify(message)
                else:
                    self._start(self._request(message))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _initialize(self, message: Message) -> None:
        from paddock.client import PaddockError

        try:
            answer = await self._session.mcp.initialize(message)
        except PaddockError as error:
            await self._write(_failure(message.get("id"), _FAILED, str(error)))
            return
        self._first = message
        await self._write(answer)

    async def _notify(self, message: Message) -> None:
        from paddock.client import PaddockError

        with suppress(PaddockError):  # what it is about has ended
            await self._session.mcp.notify(message)
        if message.get("method") == "notifications/initialized":
            self._start(self._listen())

    async def _request(self, message: Message) -> None:
        from paddock.client import NotFoundError, PaddockError

        try:
            try:
                await self._pass_on(message)
            except NotFoundError:
                await self._begin_again()
                await self._pass_on(message)
        except PaddockError as error:
            await self._write(_failure(message.get("id"), _FAILED, str(error)))

    async def _pass_on(self, message: Message) -> None:
        async with aclosing(self._session.mcp.request(message)) as answers:
            async for answer in answers:
                if "result" in answer:
                    self._note(message)
                await self._write(answer)

    def _note(self, message: Message) -> None:
        """Keeps what the client wants to be told, and has been promised."""
        method, params = message["method"], message.get("params") or {}
        if method == "logging/setLevel":
            self._wanted[method] = message
        elif method == "resources/subscribe":
            self._wanted[f"resource {params.get('uri')}"] = message
        elif method == "resources/unsubscribe":
            self._wanted.pop(f"resource {params.get('uri')}", None)

    async def _begin_again(self) -> None:
        if self._first is None:
            return
        async with self._beginning:
            await self._session.mcp.initialize(self._first)
            for message in list(self._wanted.values()):
                async with aclosing(self._session.mcp.request(message)) as answers:
                    async for _answer in answers:
                        pass  # the client has the first answer

    async def _listen(self) -> None:
        from paddock.client import PaddockError

        while True:
            with suppress(PaddockError):
                async with aclosing(self._session.mcp.listen()) as notices:
                    async for notice in notices:
                        await self._write(notice)
            await asyncio.sleep(_PAUSE_SECONDS)


def _failure(request_id: Any, code: int, message: str) -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}
