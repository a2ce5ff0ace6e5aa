"""The disk that archives are on: each call of it has a limit, and one that hangs is left behind."""

from collections.abc import Callable
from typing import TypeVar

from orchestrator.threads import KeyedThreads
from paddock.audit.archive_file import ArchiveError

T = TypeVar("T")

# For one call.
CALL_SECONDS = 60.0
# Where a whole archive is packed, synced and read back, or evidence is removed.
LONG_SECONDS = 600.0
_MOST_THREADS = 2


class DiskHangsError(ArchiveError):
    """The disk did not answer in time: it would not do so for another chain."""


class ArchiveDisk:
    """Calls the disk in threads, for one chain after the other."""

    def __init__(self) -> None:
        self._threads = KeyedThreads("archives", _MOST_THREADS)

    async def call(self, key: str, function: Callable[[], T], *, long: bool = False) -> T:
        """What `function` returns, which works on the files of that chain and on no others.

        Raises: DiskHangsError, also while an earlier call for the chain has not come back; what
        `function` raises.
        """
        seconds = LONG_SECONDS if long else CALL_SECONDS
        try:
            return await self._threads.call(key, function, seconds)
        except TimeoutError as error:
            detail = str(error) or f"no answer within {seconds:g} s"
            raise DiskHangsError(f"the disk hangs: {detail}") from None
