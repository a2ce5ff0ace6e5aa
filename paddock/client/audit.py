"""A session's audit chain."""

from collections.abc import AsyncGenerator

from paddock.client.answers import read, read_items
from paddock.client.faces import F, Face, Link, method, stream
from paddock.contract.audit import AuditEvent, AuditStats, AuditVerdict

_PAGE = 500
_SILENCE_SECONDS = 60.0
# A long chain takes a while to recompute.
_VERIFY_SECONDS = 300.0


class Audit(Face[F]):
    """The audit record of a session; it outlives the session.

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`.
    """

    def __init__(self, link: Link, path: str, incarnation: int | None = None) -> None:
        super().__init__(link)
        self._path = f"{path}/audit"
        self._which = {"incarnation": incarnation}

    @stream
    async def events(
        self,
        *,
        after: int = 0,
        operation: str | None = None,
        decision: str | None = None,
        turn: int | None = None,
    ) -> AsyncGenerator[AuditEvent, None]:
        """The events after that `seq`, fetched page by page.

        A filter that is None is off; `decision` is `allow`, `deny` or `pending`.
        """
        filters = {"operation": operation, "decision": decision, "turn": turn}
        params = {**self._which, **filters, "limit": _PAGE}
        position: int | None = after
        while position is not None:
            page = await self._api.json("GET", self._path, params={**params, "after": position})
            for event in read_items(AuditEvent, page):
                yield event
            position = page.get("next")

    @method
    async def stats(self) -> AuditStats:
        """Numbers of events by operation and by decision."""
        return read(
            AuditStats, await self._api.json("GET", f"{self._path}/stats", params=self._which)
        )

    @stream
    async def export(self) -> AsyncGenerator[str, None]:
        """The current chain: one event's JSON text per line, without its line break.

        The lines are exactly as hashed, so they can be verified anywhere. Raises:
        ConnectionLostError if the export breaks off.
        """
        rest = b""
        async with self._api.open(
            "GET",
            f"{self._path}/export",
            params=self._which,
            content_type="application/jsonl",
            silence=_SILENCE_SECONDS,
        ) as pieces:
            async for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield line.decode()

    @method
    async def verify(self, *, seq: int | None = None, hash: str | None = None) -> AuditVerdict:
        """Makes the control plane recompute the chain.

        With `seq` and `hash` (kept from a result's `audit`), the chain must also contain that
        event, which reveals that the end was cut off.
        """
        params = {**self._which, "seq": seq, "hash": hash}
        answer = await self._api.json(
            "GET", f"{self._path}/verify", params=params, timeout=_VERIFY_SECONDS
        )
        return read(AuditVerdict, answer)
