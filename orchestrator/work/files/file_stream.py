"""The bytes of one file stream, as chunks of which several are under way at once."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator

from orchestrator.ground.errors import PaddockError, TooLargeError
from orchestrator.ground.task_scope import TaskScope, together
from orchestrator.host.link.messages import malformed
from orchestrator.work.files.file_agent import FileAgent
from sandbox_agent.decide.protocol import CHUNK_BYTES, MOST_AHEAD, Message


class FileStream:
    """A file or tree that a sandbox's agent has open for reading or writing.

    All methods raise SandboxUnavailableError and the agent's errors.
    """

    def __init__(self, link: FileAgent, number: int) -> None:
        self._link = link
        self._number = number

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The bytes, in chunks of at most 256 KiB.

        Each full chunk doubles the number of requests, because a small file needs only one.
        """
        pulling = TaskScope("a chunk of a file")
        params = {"stream": self._number, "limit": CHUNK_BYTES}
        waiting: deque[asyncio.Task[Message]] = deque()
        ahead = 1
        try:
            while True:
                while len(waiting) < ahead:
                    waiting.append(pulling.begin(self._link.request("file.pull", params)))
                data = _bytes(await waiting.popleft())
                if not data:
                    return
                if len(data) == CHUNK_BYTES:
                    ahead = min(2 * ahead, MOST_AHEAD)
                yield data
        finally:
            await pulling.close()

    async def push(self, chunks: AsyncIterator[bytes], most: int) -> None:
        """Writes the bytes; a failed chunk ends this at once, even while the next one is awaited.

        Raises: TooLargeError for more than `most` bytes; the errors of `chunks`.
        """
        room = asyncio.Semaphore(MOST_AHEAD)
        total = 0

        async def send(data: bytes) -> None:
            await self._link.request("file.push", {"stream": self._number, "data": data})
            room.release()

        async with together() as begin:
            async for chunk in chunks:
                total += len(chunk)
                if total > most:
                    raise TooLargeError(f"a workspace of this session may hold {most} bytes")
                for start in range(0, len(chunk), CHUNK_BYTES):
                    await room.acquire()
                    begin(send(chunk[start : start + CHUNK_BYTES]))

    async def close(self) -> None:
        """Drops the stream without effect. Without its agent, it is already gone."""
        try:
            await self._link.request("file.close", {"stream": self._number, "commit": False})
        except PaddockError:
            return


def _bytes(answer: Message) -> bytes:
    data = answer.get("data")
    if not isinstance(data, bytes):
        raise malformed()
    return data
