"""Secrets that only the proxy has: a control plane's, and those of one session."""

from collections.abc import Sequence
from typing import Any

from paddock.client.answers import read, read_items
from paddock.client.faces import F, Face, Link, method
from paddock.client.requests import given, segment
from paddock.contract.secrets import Secret


class Secrets(Face[F]):
    """Secrets that the proxy puts into requests that have `paddock:NAME`, for their hosts only.

    A client's are those of its key, and of the instance for an admin; a session's end with it. All
    methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`.
    """

    def __init__(self, link: Link, path: str) -> None:
        """`path` is that of the control plane, or of a session."""
        super().__init__(link)
        self._path = f"{path}/secrets"

    @method
    async def set(
        self,
        name: str,
        value: str,
        *,
        hosts: Sequence[str],
        levels: Sequence[str] | None = None,
        variable: str | None = None,
        headers: Sequence[str] | None = None,
        key: str | None = None,
    ) -> Secret:
        """Sets a secret, from the next request on; an earlier one of that name is replaced.

        Args:
            value: 8 to 8192 visible ASCII characters; no answer contains it.
            hosts: exact names of the hosts that receive it.
            levels: whose sessions may use it; None: all.
            variable: in which commands get the placeholder.
            headers: the fields into which it is put; None: `authorization` and `x-api-key`.
            key: for an admin: the key whose sessions may use it; None: all. Not for a session's.

        Raises: ConflictError if the name or the variable is taken, or there are too many;
        PermissionDeniedError, ValidationError naming the field.
        """
        body = given(value=value, hosts=hosts, levels=levels, variable=variable, headers=headers)
        return read(Secret, await self._api.json("PUT", self._at(name), params=_of(key), body=body))

    @method
    async def list(self) -> tuple[Secret, ...]:
        """The secrets, without their values; of a session, those that it may use."""
        return read_items(Secret, await self._api.json("GET", self._path))

    @method
    async def remove(self, name: str, *, key: str | None = None) -> Secret:
        """Removes a secret: no later request has it. Raises: NotFoundError."""
        return read(Secret, await self._api.json("DELETE", self._at(name), params=_of(key)))

    def _at(self, name: str) -> str:
        return f"{self._path}/{segment(name)}"


def _of(key: str | None) -> dict[str, Any]:
    return given(key=key)
