"""Where the entries of the long-term memory are: in this node's database, or in the cluster's."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol
from weakref import WeakValueDictionary

from orchestrator.cluster.shared import Write
from orchestrator.ground.errors import ConflictError, NotFoundError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.store.database import Database
from orchestrator.work.memory import memory_rows
from orchestrator.work.memory.entries import MOST_ENTRIES, EntryKind, MemoryEntry


class MemoryStore(Protocol):
    """The entries of all keys. Each method raises ClusterUnavailableError in a cluster."""

    async def found(self, owner: str, namespace: str, words: str, limit: int) -> list[MemoryEntry]:
        """Those that have one of the words, the best first; without words, the newest."""

    async def first_of(
        self, owner: str, namespace: str, kinds: Sequence[EntryKind], limit: int
    ) -> list[MemoryEntry]:
        """The oldest of these kinds, kind by kind."""

    async def listed(
        self, owner: str | None, namespace: str | None, before: str | None, limit: int
    ) -> list[MemoryEntry]:
        """Newest first: of one key or of all, and those older than the one with an id."""

    async def get(self, entry_id: str) -> MemoryEntry | None:
        """One entry."""

    async def add(self, entry: MemoryEntry, draft: EventDraft, write: Write) -> None:
        """Adds an entry, on record by `write`.

        Raises: ConflictError if its key has too many; the errors of `write`.
        """

    async def replace(self, entry: MemoryEntry, draft: EventDraft, write: Write) -> None:
        """Puts it in place of the one with its id, which is left as it is in its other members.

        Raises: NotFoundError if that is gone; the errors of `write`.
        """

    async def remove(self, entry: MemoryEntry, draft: EventDraft, write: Write) -> None:
        """Forgets it. Raises: NotFoundError if it is gone; the errors of `write`."""


class OwnMemory:
    """Entries in this node's database, which commit with their events."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # One change of a key's entries at a time: otherwise a change could bring back an entry that
        # is removed meanwhile, and additions could pass the maximum together.
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def found(self, owner: str, namespace: str, words: str, limit: int) -> list[MemoryEntry]:
        """As `MemoryStore.found`."""
        return await self._database.browse(
            lambda connection: memory_rows.found(connection, owner, namespace, words, limit)
        )

    async def first_of(
        self, owner: str, namespace: str, kinds: Sequence[EntryKind], limit: int
    ) -> list[MemoryEntry]:
        """As `MemoryStore.first_of`."""
        return await self._database.read(
            lambda connection: memory_rows.first_of(connection, owner, namespace, kinds, limit)
        )

    async def listed(
        self, owner: str | None, namespace: str | None, before: str | None, limit: int
    ) -> list[MemoryEntry]:
        """As `MemoryStore.listed`."""
        return await self._database.browse(
            lambda connection: memory_rows.listed(connection, owner, namespace, before, limit)
        )

    async def get(self, entry_id: str) -> MemoryEntry | None:
        """As `MemoryStore.get`."""
        return await self._database.read(partial(memory_rows.get, entry_id=entry_id))

    async def add(self, entry: MemoryEntry, draft: EventDraft, write: Write) -> None:
        """As `MemoryStore.add`."""
        async with self._alone(entry.owner):
            count = await self._database.read(partial(memory_rows.counted, owner=entry.owner))
            check_count(entry.owner, count)
            await write(draft, memory_rows.saving(entry))

    async def replace(self, entry: MemoryEntry, draft: EventDraft, write: Write) -> None:
        """As `MemoryStore.replace`."""
        async with self._held(entry):
            await write(draft, memory_rows.saving(entry))

    async def remove(self, entry: MemoryEntry, draft: EventDraft, write: Write) -> None:
        """As `MemoryStore.remove`."""
        async with self._held(entry):
            await write(draft, memory_rows.removing(entry.id))

    @asynccontextmanager
    async def _held(self, entry: MemoryEntry) -> AsyncIterator[None]:
        """The entry is there, and nobody else changes it meanwhile. Raises: NotFoundError."""
        async with self._alone(entry.owner):
            if await self.get(entry.id) is None:
                raise gone(entry.id)
            yield

    def _alone(self, owner: str) -> asyncio.Lock:
        return self._changing.setdefault(owner, asyncio.Lock())


def check_count(owner: str, count: int) -> None:
    """Raises: ConflictError if a key with so many entries may not have another."""
    if count >= MOST_ENTRIES:
        raise ConflictError(
            f"the memory of {owner} has {MOST_ENTRIES} entries, which is the maximum: remove some",
            reason="too_many_entries",
        )


def gone(entry_id: str) -> NotFoundError:
    """There is no such entry."""
    return NotFoundError(f"there is no entry {entry_id}")
