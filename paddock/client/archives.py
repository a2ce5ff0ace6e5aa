"""Archived audit chains."""

from collections.abc import AsyncGenerator

from paddock.client.answers import read, read_items
from paddock.client.faces import F, Face, method, stream
from paddock.contract.archives import Archive, ArchiveRun

_PATH = "/api/audit/archives"
# Long chains take time: they are read, compressed and read back.
_SECONDS = 600.0


class Archives(Face[F]):
    """Archived chains of ended sessions, in files of the control plane; for admins' keys."""

    @method
    async def make(self, *, older_than: int = 7 * 86_400) -> ArchiveRun:
        """Archives chains of sessions that ended at least `older_than` seconds ago, oldest first.

        If there are many, `more` is true: call again.
        """
        answer = await self._api.json(
            "POST", _PATH, body={"older_than": older_than}, timeout=_SECONDS
        )
        return read(ArchiveRun, answer)

    @stream
    async def list(self) -> AsyncGenerator[Archive, None]:
        """All archived chains, fetched page by page."""
        after: str | None = ""
        while after is not None:
            page = await self._api.json("GET", _PATH, params={"after": after, "limit": 500})
            for archived in read_items(Archive, page):
                yield archived
            after = page.get("next")
