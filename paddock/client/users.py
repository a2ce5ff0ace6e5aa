"""Users who sign in by an issuer of tokens, for admins."""

from paddock.client.answers import read
from paddock.client.faces import F, Face, method
from paddock.client.requests import given, segment
from paddock.contract.sign_in import UserList

_USERS = "/api/users"


class Users(Face[F]):
    """The users who have signed in. All methods raise `PaddockAPIError`, and need an admin."""

    @method
    async def list(self, *, cursor: str | None = None, limit: int | None = None) -> UserList:
        """A page of the users by name; `next` is the next page's `cursor`.

        Of a cluster, it has a user once for each node that knows them.
        """
        return read(
            UserList, await self._api.json("GET", _USERS, params=given(cursor=cursor, limit=limit))
        )

    @method
    async def revoke(self, name: str) -> None:
        """Refuses tokens, and handles of sessions, of a user from before now, or of `@issuer`.

        Raises: ValidationError.
        """
        await self._api.json("DELETE", f"{_USERS}/{segment(name)}")
