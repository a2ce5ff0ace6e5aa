"""Named snapshots: copies of workspaces that a key keeps, and from which sessions begin."""

from collections.abc import Mapping

from paddock.client.answers import read
from paddock.client.faces import F, Face, Link, method
from paddock.client.requests import given, segment
from paddock.contract.snapshots import NamedSnapshot
from paddock.contract.snapshots import NamedSnapshots as Page

_SNAPSHOTS = "/api/snapshots"
# Where blocks can't be shared, they are copied.
COPY_SECONDS = 1300.0


class NamedSnapshots(Face[F]):
    """The named snapshots of a key. All methods raise `PaddockAPIError`.

    A session begins as one by `from_snapshot`, its name or its id.
    """

    @method
    async def list(
        self,
        *,
        session: str | None = None,
        key: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page:
        """A page of snapshots; `next` is the next page's `cursor`. `key` is for an admin."""
        params = given(session=session, key=key, cursor=cursor, limit=limit)
        return read(Page, await self._api.json("GET", _SNAPSHOTS, params=params))

    @method
    async def get(self, name: str, *, key: str | None = None) -> NamedSnapshot:
        """The snapshot with that name or id; while it is taken, how far that is.

        Raises: NotFoundError.
        """
        return read(NamedSnapshot, await self._api.json("GET", _at(name), params=given(key=key)))

    @method
    async def change(
        self, name: str, metadata: Mapping[str, str | None], *, key: str | None = None
    ) -> NamedSnapshot:
        """Sets texts of a snapshot by their names, or removes those that are None; others stay.

        Raises: NotFoundError; ConflictError while it is taken.
        """
        body = {"metadata": dict(metadata)}
        changed = await self._api.json("PATCH", _at(name), body=body, params=given(key=key))
        return read(NamedSnapshot, changed)

    @method
    async def remove(self, name: str, *, key: str | None = None) -> NamedSnapshot:
        """Removes a snapshot, and returns it as it was. Sessions that began as it keep their files.

        Raises: NotFoundError; ConflictError while it is taken.
        """
        return read(NamedSnapshot, await self._api.json("DELETE", _at(name), params=given(key=key)))


class SessionSnapshots(Face[F]):
    """The named snapshots of one session. All methods raise `PaddockAPIError`."""

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link)
        self._path = path

    @method
    async def create(
        self, name: str, *, metadata: Mapping[str, str] | None = None, layer: bool = False
    ) -> NamedSnapshot:
        """Keeps a copy of the workspace under a name of the session's key.

        `metadata`: your own texts by name, of any characters, 16 KiB in all; on record. `layer`:
        with what root inside has written over the image.

        The session may be in use; `frozen_ms` says how long what writes to the workspace had to
        wait. Raises: ConflictError if the name is taken, or the session can have no snapshot;
        RateLimitedError for the key's quota; CapacityExhaustedError if the host's disk is full.
        """
        body = {"name": name, **given(metadata=metadata, layer=layer or None)}
        path = f"{self._path}/snapshots"
        return read(
            NamedSnapshot, await self._api.json("POST", path, body=body, timeout=COPY_SECONDS)
        )


def _at(name: str) -> str:
    return f"{_SNAPSHOTS}/{segment(name)}"
