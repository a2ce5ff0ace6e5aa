"""Works on sandboxes' directories off the event loop, because their disks may hang."""

import asyncio
import logging
from collections.abc import Callable
from weakref import WeakValueDictionary

from orchestrator.ground.errors import EngineUnavailableError, PaddockError
from orchestrator.ground.task_scope import TaskScope
from orchestrator.ground.threads import Threads
from orchestrator.state.directory import SandboxDirectory

log = logging.getLogger(__name__)

_SECONDS = 15.0
# A copy takes as long as its size and the disk make it.
_COPY_SECONDS = 600.0
# Threads for starting sandboxes, and as many for ending them and for copies, so none waits for the
# others. If more calls hang, the next start finds what is left.
_MOST_THREADS = 4


class SandboxDirectories:
    """Changes directories of sandboxes. Calls for one directory run one after the other.

    If a call is abandoned by its caller, the directory is released as soon as the call returns.
    """

    def __init__(self) -> None:
        self._starts = Threads("directories of sandboxes", _MOST_THREADS)
        self._ends = Threads("sandboxes that are removed", _MOST_THREADS)
        self._copies = Threads("layers of sandboxes", _MOST_THREADS)
        # Held until a call has returned, even if it was abandoned.
        self._locks: WeakValueDictionary[SandboxDirectory, asyncio.Lock] = WeakValueDictionary()
        self._overdue: set[SandboxDirectory] = set()
        self._releasing = TaskScope("the removal of a sandbox that came too late")

    async def make(
        self,
        directory: SandboxDirectory,
        change: Callable[[], None],
        *,
        copies: bool = False,
    ) -> None:
        """Makes a change in the directory; one that `copies` much may take long.

        Raises: EngineUnavailableError if its disk does not answer, and the errors of `change`.
        """
        threads, seconds = (self._copies, _COPY_SECONDS) if copies else (self._starts, _SECONDS)
        try:
            await self._call(threads, directory, change, seconds)
        except TimeoutError:
            raise EngineUnavailableError(
                f"the disk for a sandbox's directory did not answer within {seconds:g} s"
            ) from None

    async def remove(self, directory: SandboxDirectory, change: Callable[[], None]) -> None:
        """Removes a part of the directory. Raises: TimeoutError, and the errors of `change`."""
        try:
            await self._call(self._ends, directory, change, _SECONDS)
        except TimeoutError as error:
            raise TimeoutError(f"its disk does not answer: {error}") from None

    async def _call(
        self,
        threads: Threads,
        directory: SandboxDirectory,
        change: Callable[[], None],
        seconds: float,
    ) -> None:
        if directory in self._overdue:
            raise TimeoutError("its disk is still busy with a call that took too long")
        lock = self._locks.setdefault(directory, asyncio.Lock())
        async with asyncio.timeout(seconds) as limit:
            await lock.acquire()
            try:
                calling = await threads.begin(change, seconds)
            except BaseException:
                lock.release()
                raise
            calling.add_done_callback(lambda _: self._returned(directory, lock))
            try:
                await asyncio.shield(calling)
            except BaseException:
                if not calling.done():
                    calling.add_done_callback(lambda _: self._abandon(directory))
                    if limit.expired():
                        self._overdue.add(directory)
                raise

    def _returned(self, directory: SandboxDirectory, lock: asyncio.Lock) -> None:
        self._overdue.discard(directory)
        lock.release()

    def _abandon(self, directory: SandboxDirectory) -> None:
        self._releasing.spawn(self._release(directory))

    async def _release(self, directory: SandboxDirectory) -> None:
        try:
            await self.remove(directory, directory.release)
        except (PaddockError, OSError) as error:
            # The next start finds what is left by its path.
            log.error("sandbox %s is not removed completely: %s", directory.name, error)
