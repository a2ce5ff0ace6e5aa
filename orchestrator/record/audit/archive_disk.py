"""The disk of archives. Each call has a time limit, and a call that hangs is abandoned."""

from collections.abc import Callable
from typing import TypeVar

from orchestrator.ground.threads import KeyedThreads
from paddock.audit.archive_file import ArchiveError

T = TypeVar("T")

# For one call.
CALL_SECONDS = 60.0
# For packing, syncing and reading back an archive, and for removing evidence.
LONG_SECONDS = 600.0
_MOST_THREADS = 2


class DiskHangsError(ArchiveError):
    """The disk did not answer in time, and would not do so for another chain either."""


class ArchiveDisk:
    """Calls the disk in threads, one at a time per chain."""

    def __init__(self) -> None:
        self._threads = KeyedThreads("archives", _MOST_THREADS)

    async def call(self, key: str, function: Callable[[], T], *, long: bool = False) -> T:
        """Runs `function`, which may access only that chain's files, and returns its result.

        Raises: DiskHangsError, also while an earlier call for the chain is still running; the
        errors of `function`.
        """
        seconds = LONG_SECONDS if long else CALL_SECONDS
        try:
            return await self._threads.call(key, function, seconds)
        except TimeoutError as error:
            detail = str(error) or f"no answer within {seconds:g} s"
            raise DiskHangsError(f"the disk hangs: {detail}") from None
