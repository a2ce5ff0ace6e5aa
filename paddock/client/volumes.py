"""Volumes: files of a key that its sessions mount by name."""

from collections.abc import Mapping
from typing import Any

from paddock.client.answers import read
from paddock.client.faces import F, Face, method
from paddock.client.requests import given, segment
from paddock.contract.volumes import Volume
from paddock.contract.volumes import Volumes as Page

_VOLUMES = "/api/volumes"


class Volumes(Face[F]):
    """The volumes of a key. All methods raise `PaddockAPIError`.

    A session has them by `volumes`, a list of `{"name": …, "path": …, "read_only": …}`.
    """

    @method
    async def create(
        self, name: str, *, size_bytes: int, placement: Mapping[str, Any] | None = None
    ) -> Volume:
        """An empty volume that can hold that much, its file system included.

        `placement`: in a cluster, the `labels` of its node, and the session `near` which it is put.

        Raises: ConflictError if the key has one with that name; RateLimitedError for its quota.
        """
        body = given(name=name, size_bytes=size_bytes, placement=placement)
        return read(Volume, await self._api.json("POST", _VOLUMES, body=body))

    @method
    async def list(
        self, *, key: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> Page:
        """A page of volumes; `next` is the next page's `cursor`. `key` is for an admin."""
        params = given(key=key, cursor=cursor, limit=limit)
        return read(Page, await self._api.json("GET", _VOLUMES, params=params))

    @method
    async def get(self, name: str, *, key: str | None = None) -> Volume:
        """One volume: how much it holds, and which sessions have it. Raises: NotFoundError."""
        return read(Volume, await self._api.json("GET", _at(name), params=given(key=key)))

    @method
    async def remove(self, name: str, *, key: str | None = None) -> Volume:
        """Removes a volume with all of its files, and returns it as it was.

        Raises: NotFoundError; ConflictError while a session has it.
        """
        return read(Volume, await self._api.json("DELETE", _at(name), params=given(key=key)))


def _at(name: str) -> str:
    return f"{_VOLUMES}/{segment(name)}"
