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
from pathlib import Path
from typing import Any

from tests.bench.peers.driver import (
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
        """Seconds until the first result of a new sandbox."""
        began = time.perf_counter()
        self._sandboxes.append(await self._driver.create())
        return [time.perf_counter() - began]

    async def remove(self) -> list[float]:
        """Seconds to remove the newest sandbox."""
        return [await _timed(self._sandboxes.pop().close)]

    async def run_true(self, times: int) -> list[float]:
        """Seconds of each, one after another."""
        return [await _timed(self._sandboxes[0].run_true) for _ in range(times)]

    async def rate(self, in_flight: int, times: int) -> list[float]:
        """`true`s per second, spread over all sandboxes."""

        async def one_after_another(sandbox: Sandbox) -> None:
            for _ in range(times):
                await sandbox.run_true()

        chosen = [self._sandboxes[n % len(self._sandboxes)] for n in range(in_flight)]
        began = time.perf_counter()
        await asyncio.gather(*map(one_after_another, chosen))
        return [in_flight * times / (time.perf_counter() - began)]

    async def lines(self, times: int) -> list[float]:
        """Seconds of each line; the first, which starts the interpreter, does not count."""
        await self._sandboxes[0].line()
        return [await _timed(self._sandboxes[0].line) for _ in range(times)]

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


async def _timed(operation: Operation) -> float:
    began = time.perf_counter()
    await operation()
    return time.perf_counter() - began


def _files(directory: Path) -> dict[str, bytes]:
    """Contents by name; some contenders add a directory above."""
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


async def serve(name: str, options: Options, answers: Any) -> None:
    """Answers the requests until standard input ends."""
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
