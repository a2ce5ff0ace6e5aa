"""Break-glass access of an admin to another key's session."""

from paddock.client.answers import read
from paddock.client.faces import F, Face, Link, method
from paddock.client.requests import given
from paddock.contract.break_glass import GlassAccess


class BreakGlass(Face[F]):
    """The caller's access to a session's content, where admins need one.

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`.
    """

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link)
        self._path = f"{path}/break-glass"

    @method
    async def open(self, reason: str, *, seconds: int | None = None) -> GlassAccess:
        """Opens it for an hour, or for that time; the session's owner is told the reason."""
        body = given(reason=reason, seconds=seconds)
        return read(GlassAccess, await self._api.json("POST", self._path, body=body))

    @method
    async def close(self) -> GlassAccess:
        """Ends it, with the streams and terminals that it has opened."""
        return read(GlassAccess, await self._api.json("DELETE", self._path))
