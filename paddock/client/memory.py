"""The long-term memory: a key's entries, and what its sessions search and write."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from paddock.client.answers import read, read_items
from paddock.client.faces import F, Face, Link, method
from paddock.client.requests import given, segment
from paddock.contract.memory import MemoryBootstrap, MemoryEntries, MemoryEntry

EntryKind: TypeAlias = Literal["note", "bootstrap", "sop"]


class SessionMemory(Face[F]):
    """What a session finds and remembers. All methods raise `PaddockAPIError`."""

    def __init__(self, link: Link, path: str) -> None:
        """`path` is the session's."""
        super().__init__(link)
        self._path = f"{path}/memory"

    @method
    async def search(
        self, query: str = "", *, namespace: str | None = None, limit: int | None = None
    ) -> tuple[MemoryEntry, ...]:
        """Entries with one of the words, the best first; without words, the newest.

        Raises: PermissionDeniedError at low.
        """
        params = given(query=query or None, namespace=namespace, limit=limit)
        return read_items(MemoryEntry, await self._api.json("GET", self._path, params=params))

    @method
    async def write(
        self, text: str, *, namespace: str | None = None, tags: Sequence[str] | None = None
    ) -> MemoryEntry:
        """Adds a note of at most 8 KiB. Raises: PermissionDeniedError below high."""
        body = given(text=text, namespace=namespace, tags=tags)
        return read(MemoryEntry, await self._api.json("POST", self._path, body=body))

    @method
    async def bootstrap(self, *, namespace: str | None = None) -> MemoryBootstrap:
        """What the session begins with. Raises: PermissionDeniedError at low."""
        params = given(namespace=namespace)
        path = f"{self._path}/bootstrap"
        return read(MemoryBootstrap, await self._api.json("GET", path, params=params))


class KeyMemory(Face[F]):
    """The entries of a key, for its host. All methods raise `PaddockAPIError`."""

    @method
    async def list(
        self,
        *,
        key: str | None = None,
        namespace: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> MemoryEntries:
        """A page of entries, newest first; `next` is the next page's `cursor`."""
        params = given(key=key, namespace=namespace, cursor=cursor, limit=limit)
        return read(MemoryEntries, await self._api.json("GET", "/api/memory", params=params))

    @method
    async def add(
        self,
        text: str,
        *,
        namespace: str | None = None,
        tags: Sequence[str] | None = None,
        kind: EntryKind | None = None,
        key: str | None = None,
    ) -> MemoryEntry:
        """Adds an entry; `key` is for an admin, and by default the caller's own."""
        body = given(text=text, namespace=namespace, tags=tags, kind=kind)
        params = given(key=key)
        answer = await self._api.json("POST", "/api/memory", params=params, body=body)
        return read(MemoryEntry, answer)

    @method
    async def change(
        self,
        entry_id: str,
        text: str,
        *,
        namespace: str | None = None,
        tags: Sequence[str] | None = None,
        kind: EntryKind | None = None,
    ) -> MemoryEntry:
        """Replaces all that an entry contains. Raises: NotFoundError."""
        body = given(text=text, namespace=namespace, tags=tags, kind=kind)
        return read(MemoryEntry, await self._api.json("PUT", _at(entry_id), body=body))

    @method
    async def remove(self, entry_id: str) -> MemoryEntry:
        """Forgets an entry. Raises: NotFoundError."""
        return read(MemoryEntry, await self._api.json("DELETE", _at(entry_id)))


def _at(entry_id: str) -> str:
    return f"/api/memory/{segment(entry_id)}"
