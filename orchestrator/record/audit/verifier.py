"""Verifies chains: short ones at once, long ones in a process that holds nobody up."""

import asyncio
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orchestrator
from orchestrator.ground.errors import RateLimitedError
from orchestrator.ground.round_robin import Queue, asker
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.task_scope import TaskScope
from orchestrator.record.audit import verification
from orchestrator.record.audit.writer import chain_head
from paddock.audit.chain import Verdict

# Verifications of one key at a time.
MOST_OF_KEY = 8
_RETRY_SECONDS = 5
# For a tenth of a second's work: the disk may be slow, and the process new.
_STEP_SECONDS = 30.0
_ROOT = Path(orchestrator.__file__).parents[1]
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " from orchestrator.record.audit.verifying_process import main; sys.exit(main(sys.argv[1:]))"
)


class Verifier:
    """Keys are served round robin, a step of about a tenth of a second each.

    There is one process while there is something to verify. A client that leaves has its chain
    forgotten after the step under way.
    """

    def __init__(self, database: Database, path: Path) -> None:
        """`path` is the file of the database."""
        self._database = database
        self._process = _Process(path)
        self._queue = Queue()
        self._steps = TaskScope("a step of a verification")
        self._numbers = itertools.count()
        self._of_key = Counter[str]()

    async def verify(
        self, session_key: str, seq: int | None = None, hash: str | None = None
    ) -> Verdict:
        """Recomputes a chain from the database, including columns, up to its present end.

        `seq` and `hash` are an anchor: both or neither. Raises: ValidationError, StoreError;
        RateLimitedError if the key has too many verifications.
        """
        anchor = verification.anchor(seq, hash)
        with self._counted(asker()[0]):
            read = await self._database.browse(
                lambda connection: chain_head(connection, session_key)
            )
            if read.seq <= verification.PAGE:
                return await verification.verify(self._database, session_key, seq, hash)
            request = {"session_key": session_key, "end": read.seq, "anchor": anchor}
            return await self._follow({"chain": next(self._numbers), **request})

    async def close(self) -> None:
        """Ends the process, and with it all verifications."""
        self._process.closed = True
        await self._process.end()
        await self._steps.drain()

    @contextmanager
    def _counted(self, key: str) -> Iterator[None]:
        if self._of_key[key] >= MOST_OF_KEY:
            raise RateLimitedError(
                f"{MOST_OF_KEY} verifications of this key run: wait for one of them",
                limit="verifications",
                retry_after=_RETRY_SECONDS,
            )
        self._of_key[key] += 1
        try:
            yield
        finally:
            self._of_key[key] -= 1
            if not self._of_key[key]:
                del self._of_key[key]

    async def _follow(self, request: Mapping[str, Any]) -> Verdict:
        self._process.users += 1
        who = asker()
        try:
            while True:
                # A step is never left alone: its answer would be the next one's.
                answer = await self._steps.shield(self._step(who, request))
                if "verdict" in answer:
                    return Verdict(**answer["verdict"])
        finally:
            self._steps.spawn(self._leave(who, {"chain": request["chain"]}))

    async def _step(self, who: tuple[str, ...], request: Mapping[str, Any]) -> dict[str, Any]:
        async with self._queue.slot(who):
            return await self._process.ask(request)

    async def _leave(self, who: tuple[str, ...], request: Mapping[str, Any]) -> None:
        """Has the process forget a chain, and ends it after the last one."""
        async with self._queue.slot(who):
            self._process.users -= 1
            if not self._process.users:
                await self._process.end()
                return
            with suppress(StoreError):  # then it has ended, and has forgotten it
                await self._process.ask(request)


class _Process:
    """The process, which is started when it is asked. One question at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running: asyncio.subprocess.Process | None = None
        self.users = 0
        self.closed = False

    async def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Its answer. Raises: StoreError, after which it is another process."""
        try:
            async with asyncio.timeout(_STEP_SECONDS):
                answer = await self._asked(request)
        except TimeoutError:
            await self.end()
            raise StoreError(f"a part of a chain was not read within {_STEP_SECONDS:g} s") from None
        except (OSError, ValueError):
            await self.end()
            raise StoreError("the process that verifies chains has ended") from None
        except BaseException:
            await self.end()
            raise
        if "error" in answer:
            raise StoreError(f"the database can't be used: {answer['error']}")
        return answer

    async def _asked(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._running is None and not self.closed:
            self._running = await self._started()
        if self._running is None or self.closed:
            raise StoreError("the control plane is stopping")
        stdin, stdout = self._running.stdin, self._running.stdout
        assert stdin is not None and stdout is not None  # noqa: S101, PT018 - both are pipes
        stdin.write(json.dumps(request).encode() + b"\n")
        await stdin.drain()
        answer: dict[str, Any] = json.loads(await stdout.readline())
        return answer

    async def _started(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", _START),
            *(str(_ROOT), str(self._path), str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )

    async def end(self) -> None:
        """Kills it, if there is one."""
        running, self._running = self._running, None
        if running is not None:
            if running.returncode is None:
                running.kill()
            await running.wait()
