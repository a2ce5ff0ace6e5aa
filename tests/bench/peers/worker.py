"""Runs one contender's driver: `python -m tests.bench.peers.worker NAME`, in its environment.

Reads one request per line from standard input, and answers each with one line of JSON: `seconds`
per operation (or another figure), `unsupported`, or `error`.
"""

import asyncio
import filecmp
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.bench.peers.driver import (
    AT_ONCE,
    FIRST,
    Driver,
    Options,
    Sandbox,
    UnsupportedError,
    answer,
    read_options,
    require,
)

# Names that a requester uses, and the drivers' classes.
DRIVERS = {
    "paddock": ("paddock_driver", "PaddockDriver"),
    "docker": ("docker_driver", "DockerDriver"),
    "swe-rex": ("swe_rex_driver", "SweRexDriver"),
    "llm-sandbox": ("llm_sandbox_driver", "LlmSandboxDriver"),
}

Operation = Callable[[], Awaitable[None]]


class Worker:
    """The sandboxes of one driver, and the timed operations on them."""

    def __init__(self, driver: Driver, directory: Path) -> None:
        self._driver = driver
        self._directory = directory
        self._sandboxes: list[Sandbox] = []
        self._fetched = 0

    async def create(self) -> list[float]:
        """Seconds until a new sandbox is there, and until its first result."""
        began = time.perf_counter()
        sandbox = await self._driver.create()
        created = time.perf_counter() - began
        self._sandboxes.append(sandbox)
        await sandbox.run(FIRST)
        return [created, time.perf_counter() - began]

    async def remove(self) -> list[float]:
        """Seconds to remove the newest sandbox."""
        return [await _timed(self._sandboxes.pop().close)]

    async def run_true(self, times: int, seconds: float) -> list[float]:
        """Seconds of each, one after another: `times`, or as many as begin in that time."""
        sandbox = self._sandboxes[0]
        return await _repeated(lambda: sandbox.run("true"), times, seconds)

    async def run_at_once(self, in_flight: int, seconds: float) -> list[float]:
        """How many `true`s, spread over all sandboxes, ended in how many seconds."""
        done = 0
        began = time.perf_counter()

        async def one_after_another(sandbox: Sandbox) -> None:
            nonlocal done
            # At least one each, however slow the others are to begin.
            while True:
                await sandbox.run("true")
                done += 1
                if time.perf_counter() - began >= seconds:
                    return

        chosen = [self._sandboxes[n % len(self._sandboxes)] for n in range(in_flight)]
        await asyncio.gather(*map(one_after_another, chosen))
        return [done, time.perf_counter() - began]

    async def lines(self, times: int, seconds: float) -> list[float]:
        """Seconds of each line, as in `run_true`; the first of all starts the interpreter."""
        return await _repeated(self._sandboxes[0].line, times, seconds)

    async def send_file(self, path: str) -> list[float]:
        """Seconds to copy a file into the sandbox."""
        return [await _timed(lambda: self._sandboxes[0].send_file(Path(path)))]

    async def fetch_file(self, path: str) -> list[float]:
        """Seconds to copy it back; `path` is what was sent."""
        target = self._new_place()
        taken = await _timed(lambda: self._sandboxes[0].fetch_file(target))
        require(filecmp.cmp(path, target, shallow=False), "the fetched file is what was sent")
        target.unlink()
        return [taken]

    async def send_tree(self, path: str) -> list[float]:
        """Seconds to copy a directory into the sandbox."""
        return [await _timed(lambda: self._sandboxes[0].send_tree(Path(path)))]

    async def fetch_tree(self, path: str) -> list[float]:
        """Seconds to copy it back; `path` is what was sent."""
        target = self._new_place()
        taken = await _timed(lambda: self._sandboxes[0].fetch_tree(target))
        require(_files(target) == _files(Path(path)), "the fetched tree is what was sent")
        return [taken]

    async def containers(self) -> list[str]:
        """The names of the sandboxes' containers."""
        return [sandbox.container for sandbox in self._sandboxes]

    async def close(self) -> None:
        """Removes what is left."""
        while self._sandboxes:
            await self.remove()
        await self._driver.close()

    def _new_place(self) -> Path:
        self._fetched += 1
        return self._directory / f"fetched-{self._fetched}"


async def _repeated(operation: Operation, times: int, seconds: float) -> list[float]:
    began = time.perf_counter()
    taken: list[float] = []
    while len(taken) < times and (not taken or time.perf_counter() - began < seconds):
        taken.append(await _timed(operation))
    return taken


async def _timed(operation: Operation) -> float:
    began = time.perf_counter()
    await operation()
    return time.perf_counter() - began


def _files(directory: Path) -> dict[str, bytes]:
    """Contents by name; some contenders add a directory above."""
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


async def serve(name: str, options: Options, answers: Any) -> None:
    """Answers the requests until standard input ends."""
    # The loop's usual number of threads is less on a small machine, and a peer would wait for them.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(AT_ONCE))
    module, driver = DRIVERS[name]
    made = getattr(importlib.import_module(f"tests.bench.peers.{module}"), driver)
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as directory:
        worker = Worker(made(options), Path(directory))
        try:
            while line := await asyncio.to_thread(sys.stdin.readline):
                request: dict[str, Any] = json.loads(line)
                operation = getattr(worker, request.pop("operation"))
                try:
                    answer(answers, result=await operation(**request))
                except UnsupportedError:
                    answer(answers, unsupported=True)
                except Exception as error:
                    answer(answers, error=f"{type(error).__name__}: {error}")
        finally:
            await worker.close()


def main() -> None:
    """Standard output is for answers; what libraries print there goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asyncio.run(serve(sys.argv[1], read_options(), answers))


if __name__ == "__main__":
    main()
