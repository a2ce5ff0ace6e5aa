"""One contender as the benchmark sees it: a process with its driver, asked for figures."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from images.recipes import ROOT
from tests.bench.peers.driver import Options

# The longest time that one request may take.
_SECONDS = 300
# The largest answer, in bytes.
_MOST = 1024 * 1024


class ContenderError(Exception):
    """A contender failed; the message says what."""


class Contender:
    """Asks the process of `tests.bench.peers.worker`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process

    async def ask(self, operation: str, **arguments: Any) -> list[Any] | None:
        """The figures; None if the contender has no such operation. Raises: ContenderError."""
        await self._send({"operation": operation, **arguments})
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_SECONDS):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise ContenderError(f"{operation} took over {_SECONDS} s") from None
        if not line:
            raise ContenderError(f"the process ended during {operation}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ContenderError(f"{operation}: {answer['error']}")
        return answer.get("result")

    async def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        await self._process.stdin.drain()


@asynccontextmanager
async def contending(
    name: str, driver: str, python: Path, options: Options
) -> AsyncIterator[Contender]:
    """A contender, whose process removes its sandboxes at the end."""
    process = await asyncio.create_subprocess_exec(
        *(python, "-m", "tests.bench.peers.worker", driver),
        cwd=ROOT,
        env={**os.environ, "SWE_REX_LOG_STREAM_LEVEL": "ERROR"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_MOST,
    )
    contender = Contender(name, process)
    try:
        await contender._send(options._asdict())
        yield contender
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
