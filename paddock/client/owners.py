"""What is kept of owners, for admins' keys."""

from paddock.client.answers import read, read_items
from paddock.client.faces import F, Face, method
from paddock.client.requests import segment
from paddock.contract.owners import ErasedOwner, KeptContent, OwnerExport

_OWNERS = "/api/owners"
# Files and long chains take time.
_SECONDS = 3600.0


class Owners(Face[F]):
    """Content of owners: how long it is kept, exported, erased. All need an admin's key."""

    @method
    async def retention(self) -> tuple[KeptContent, ...]:
        """What is kept, where, and for how long."""
        return read_items(KeptContent, await self._api.json("GET", "/api/retention"))

    @method
    async def export(self, name: str) -> OwnerExport:
        """Writes everything that is kept of an owner to a file on each server's machine.

        Raises: ConflictError while a session of the owner has not ended.
        """
        path = f"{_OWNERS}/{segment(name)}/export"
        return read(OwnerExport, await self._api.json("POST", path, body={}, timeout=_SECONDS))

    @method
    async def erase(self, name: str, *, reason: str) -> ErasedOwner:
        """Erases the content of an owner; chains still verify. `reason` is on record.

        Raises: ConflictError while a session of the owner has not ended.
        """
        path, body = f"{_OWNERS}/{segment(name)}/erase", {"reason": reason}
        return read(ErasedOwner, await self._api.json("POST", path, body=body, timeout=_SECONDS))
