"""Users who sign in by an issuer of tokens, for admins."""

from paddock.client.answers import read_items
from paddock.client.faces import F, Face, method
from paddock.client.requests import segment
from paddock.contract.sign_in import User

_USERS = "/api/users"


class Users(Face[F]):
    """The users who have signed in. All methods raise `PaddockAPIError`, and need an admin."""

    @method
    async def list(self) -> tuple[User, ...]:
        """The users by name."""
        return read_items(User, await self._api.json("GET", _USERS))

    @method
    async def revoke(self, name: str) -> None:
        """Refuses tokens, and handles of sessions, of a user from before now, or of `@issuer`.

        Raises: ValidationError.
        """
        await self._api.json("DELETE", f"{_USERS}/{segment(name)}")
