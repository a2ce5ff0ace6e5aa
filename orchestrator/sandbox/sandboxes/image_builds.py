"""Builds images that sessions should have, in the background: one at a time, each in a process."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.engine.image_names import how_to_get, recipe_of

log = logging.getLogger(__name__)

# A checkout or an installation has what images are made of; the control plane's image does not.
_ROOT = Path(__file__).resolve().parents[3]
_NEEDED = "images/sandbox/Dockerfile"
_LONGEST_SECONDS = 3600
_END_SECONDS = 10
# A build that failed, for want of a network for example, is tried again after this long.
PAUSE_SECONDS = 600.0
_MOST_LINE_BYTES = 64 * 1024
_SHOWN = 120


class _Build(NamedTuple):
    """The latest build of an image. `failed`: why; None while it runs, and after it succeeded."""

    began: float
    line: str = ""
    ended: bool = False
    failed: str | None = None


class BuildFailedError(Exception):
    """The build ended without the image; the message is its last line."""


def build_words(image: str) -> list[str] | None:
    """The program that builds it; None if it is not Paddock's own, or in a container."""
    recipe = recipe_of(image)
    if recipe is None or not (_ROOT / _NEEDED).is_file():
        return None
    return [sys.executable, "-m", "images", "build", recipe, "--tag", image]


class ImageBuilds:
    """Each image is built once; after a failure, again when it is wanted later."""

    def __init__(
        self, docker_host: str | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`docker_host` is the engine's address; None: that of this process's environment."""
        host = {} if docker_host is None else {"PADDOCK_DOCKER_HOST": docker_host}
        self._environment = os.environ | host
        self._clock = clock
        self._builds: dict[str, _Build] = {}
        self._tasks = TaskScope("the build of an image")
        self._turn = asyncio.Lock()

    def begin(self, image: str) -> None:
        """Begins to build it, unless it was built, is being built, or failed not long ago."""
        known = self._builds.get(image)
        if known is not None:
            again = known.failed is not None and self._clock() - known.began >= PAUSE_SECONDS
            if not again:
                return
        words = build_words(image)
        if words is None:
            self._builds[image] = _Build(self._clock(), ended=True)
            return
        self._builds[image] = _Build(self._clock(), "it waits for another build")
        self._tasks.spawn(self._run(image, words))

    def told(self, image: str) -> str | None:
        """How its build goes, to follow its name in a sentence; None if there was none."""
        build = self._builds.get(image)
        if build is None or (build.ended and build.failed is None):
            return None
        if build.failed is not None:
            return f"can't be built ({build.failed}): {how_to_get(image)}"
        return f"is being built since {self._clock() - build.began:.0f} s: {build.line}"

    async def close(self) -> None:
        """Ends the builds."""
        await self._tasks.close()

    async def _run(self, image: str, words: list[str]) -> None:
        began = self._clock()
        async with self._turn:
            log.info("image %s: its build begins", image)
            try:
                async with asyncio.timeout(_LONGEST_SECONDS):
                    await self._process(image, words)
            except (BuildFailedError, OSError, ValueError, TimeoutError) as error:
                reason = str(error) or f"not done in {_LONGEST_SECONDS} s"
                self._note(image, ended=True, failed=reason)
                log.warning("image %s can't be built: %s", image, reason)
                return
        self._note(image, ended=True)
        log.info("image %s: its build ended after %.0f s", image, self._clock() - began)

    async def _process(self, image: str, words: list[str]) -> None:
        """Runs the program to its end.

        Raises: BuildFailedError, OSError; ValueError for a line that is too long.
        """
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=_ROOT,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=_MOST_LINE_BYTES,
            start_new_session=True,
        )
        try:
            if process.stdout is not None:
                async for raw in process.stdout:
                    self._told(image, " ".join(raw.decode(errors="replace").split())[:_SHOWN])
            status = await process.wait()
        finally:
            if process.returncode is None:
                await _end(process)
        if status:
            raise BuildFailedError(self._builds[image].line or f"exit status {status}")

    def _told(self, image: str, line: str) -> None:
        if line:
            self._note(image, line=line)
            log.log(logging.INFO if line.startswith("Step ") else logging.DEBUG, "%s", line)

    def _note(self, image: str, **changes: object) -> None:
        self._builds[image] = self._builds[image]._replace(**changes)  # type: ignore[arg-type]


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends it with what it started; they get time to take back what they mounted."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
