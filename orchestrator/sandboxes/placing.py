"""Makes the directories of sandboxes beside the event loop: their disks may hang."""

import asyncio
import logging
from collections.abc import Callable

from orchestrator.errors import EngineUnavailableError, PaddockError
from orchestrator.sandboxes.directory import SandboxDirectory
from orchestrator.task_scope import TaskScope
from orchestrator.threads import Threads

log = logging.getLogger(__name__)

_SECONDS = 15.0
_MOST_THREADS = 4


class Places:
    """Where sandboxes are."""

    def __init__(self) -> None:
        self._threads = Threads("directories of sandboxes", _MOST_THREADS)
        self._releasing = TaskScope("the removal of a sandbox that came too late")

    async def make(self, make: Callable[[], SandboxDirectory]) -> SandboxDirectory:
        """What `make` returns; one that comes too late, or for nobody, is released again.

        Raises: EngineUnavailableError where a disk does not answer, and what `make` raises.
        """
        try:
            making = await self._threads.begin(make, _SECONDS)
            try:
                async with asyncio.timeout(_SECONDS):
                    return await asyncio.shield(making)
            except BaseException:
                making.add_done_callback(self._forsake)
                raise
        except TimeoutError:
            raise EngineUnavailableError(
                f"the disk for a sandbox's directory did not answer within {_SECONDS:g} s"
            ) from None

    def _forsake(self, making: asyncio.Future[SandboxDirectory]) -> None:
        if making.cancelled() or making.exception() is not None:
            return  # then nothing is left of it
        self._releasing.spawn(self._release(making.result()))

    async def _release(self, directory: SandboxDirectory) -> None:
        try:
            await self._threads.call(directory.release, _SECONDS)
        except (PaddockError, OSError) as error:
            # The next start finds what is left by its place.
            log.error("sandbox %s is not removed completely: %s", directory.name, error)
