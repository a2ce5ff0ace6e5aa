"""The context pack of a session that is limited to one."""

from contextlib import aclosing

from paddock.client.answers import read
from paddock.client.faces import F, Face, Link, method
from paddock.client.requests import given
from paddock.contract.packs import PackState

_SILENCE_SECONDS = 120.0


class Consume(Face[F]):
    """What a session may read.

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`.
    """

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link)
        self._path = path

    @method
    async def get(self) -> PackState:
        """The pack, and the reads that were denied; also long after the session's end.

        Raises: NotFoundError if there is no pack.
        """
        return read(PackState, await self._api.json("GET", f"{self._path}/consume"))

    @method
    async def read(self, path: str, *, content_hash: str | None = None) -> bytes:
        """A file of the pack, at most 16 MiB; `content_hash` is the hash that it must have.

        Raises: PermissionDeniedError with the `rule` for anything else; by default the session has
        then ended, with the rationale `CONTEXT_MISS`.
        """
        body = given(path=path, hash=content_hash)
        content = bytearray()
        async with (
            self._api.open(
                "POST",
                f"{self._path}/reads",
                json=body,
                content_type="application/octet-stream",
                silence=_SILENCE_SECONDS,
            ) as arriving,
            aclosing(arriving) as pieces,
        ):
            async for piece in pieces:
                content += piece
        return bytes(content)
