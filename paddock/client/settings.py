"""A session's settings."""

from paddock.client.answers import read
from paddock.client.faces import F, Face, Link, method
from paddock.client.requests import ENGINE_SECONDS
from paddock.contract.sessions import SessionSettings


class Settings(Face[F]):
    """A session's settings."""

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link)
        self._path = f"{path}/settings"

    @method
    async def get(self) -> SessionSettings:
        """The current settings."""
        return read(SessionSettings, await self._api.json("GET", self._path))

    @method
    async def set(self, *, permission_level: str) -> SessionSettings:
        """Changes the permission level; it applies when this returns. Running commands are ended.

        Raises: ValidationError for an unknown level; PermissionDeniedError with a session's handle.
        """
        body = {"settings": {"permission_level": permission_level}}
        answer = await self._api.json("PUT", self._path, body=body, timeout=ENGINE_SECONDS)
        return read(SessionSettings, answer)
