"""A session's settings."""

from paddock.client.answers import read
from paddock.client.faces import F, Face, Link, method
from paddock.client.requests import ENGINE_SECONDS, given
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
    async def set(
        self,
        *,
        permission_level: str | None = None,
        idle_timeout: int | None = None,
        wall_timeout: int | None = None,
        keep_alive: int | None = None,
    ) -> SessionSettings:
        """Changes the permission level or the time-outs; they apply when this returns.

        A change of the level ends running commands. Time-outs are in seconds: `idle_timeout`
        without activity, `wall_timeout` from the session's creation; `keep_alive` lengthens both so
        that neither ends it for so long from now. The answer's `deadlines` say when it ends now;
        what is due by the new time-outs ends at once. None: as it is.

        Raises: ValidationError for an unknown level, or a time-out above the operator's maximum;
        PermissionDeniedError with a session's handle.
        """
        wanted = given(
            permission_level=permission_level,
            idle_timeout=idle_timeout,
            wall_timeout=wall_timeout,
            keep_alive=keep_alive,
        )
        body = {"settings": wanted}
        answer = await self._api.json("PUT", self._path, body=body, timeout=ENGINE_SECONDS)
        return read(SessionSettings, answer)
