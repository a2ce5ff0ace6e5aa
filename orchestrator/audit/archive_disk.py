"""The disk that archives are on: each call of it has a limit, and one that hangs is left behind."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from orchestrator.threads import Threads
from paddock.audit.archive_file import ArchiveError

T = TypeVar("T")

CALL_SECONDS = 60.0
# Where a whole archive is packed, synced and read back, or evidence is removed.
LONG_SECONDS = 600.0
_MOST_THREADS = 2


class DiskHangsError(ArchiveError):
    """The disk did not answer in time: it would not do so for another chain."""


class ArchiveDisk:
    """Calls the disk in threads, for one chain after the other."""

    def __init__(self) -> None:
        self._threads = Threads("archives", _MOST_THREADS)
        # Chains for which a call goes on that nobody waits for any more.
        self._left: set[str] = set()

    async def call(self, key: str, function: Callable[[], T], *, long: bool = False) -> T:
        """What `function` returns, which works on the files of that chain and on no others.

        While a call is left behind, there is no other for its chain: they would be in each
        other's way. Raises: DiskHangsError, and what `function` raises.
        """
        if key in self._left:
            raise DiskHangsError("the disk still works on what took too long before")
        seconds = LONG_SECONDS if long else CALL_SECONDS
        try:
            calling = await self._threads.begin(function, seconds)
        except TimeoutError as error:
            raise DiskHangsError(str(error)) from None
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(calling)
        except TimeoutError:
            raise DiskHangsError(f"the disk did not answer within {seconds:g} s") from None
        finally:
            if not calling.done():
                self._left.add(key)
                calling.add_done_callback(lambda _: self._left.discard(key))
