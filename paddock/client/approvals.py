"""Approvals: what waits for a person's word."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from paddock.client.errors import ConnectionLostError
from paddock.client.faces import F, Face, method, stream
from paddock.client.parsing import read, read_items
from paddock.client.requests import segment
from paddock.client.retry import PASSING, Patience
from paddock.contract.approvals import Approval

_APPROVALS = "/api/approvals"
_EVENTS = "/api/events"
_PAGE = 500


class Approvals(Face[F]):
    """The approvals of this key's sessions (an admin's: of everybody's).

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`; a session's handle may use none of them.
    """

    @method
    async def list(
        self,
        *,
        status: str | None = None,
        session: str | None = None,
        incarnation: int | None = None,
    ) -> tuple[Approval, ...]:
        """The approvals, newest first, perhaps of one `status`, perhaps of one session.

        Of several sessions of that id, one after the other, those of the latest, or of the one of
        that number, from 1. Raises: NotFoundError where there is no such session, ValidationError
        for a number without a session.
        """
        return await self._all(status, session=session, incarnation=incarnation)

    @method
    async def approve(self, id: str, *, reason: str | None = None) -> Approval:
        """Lets the command be sent, once. Raises: ConflictError when it is decided already."""
        return await self._decide(id, "approve", reason)

    @method
    async def deny(self, id: str, *, reason: str | None = None) -> Approval:
        """Has the command refused. Raises: ConflictError when it is decided already."""
        return await self._decide(id, "deny", reason)

    @stream
    async def watch(self) -> AsyncGenerator[Approval, None]:
        """What waits now, and what comes to wait, each once and oldest first, without end.

        Goes on over broken connections, for the client's `reconnect` seconds.
        """
        seen: set[str] = set()
        patience = Patience(self._api.options.reconnect)
        while True:
            try:
                # What the list does not have yet, the open stream will tell.
                async with self._api.events("GET", _EVENTS) as events:
                    for approval in await self._unseen(seen):
                        yield approval
                    async for event in events:
                        patience.renew()
                        if event.name == "approval.request":
                            for approval in await self._unseen(seen):
                                yield approval
                delay = patience.delay(ConnectionLostError(f"GET {_EVENTS}: it ends too soon"))
            except PASSING as error:
                delay = patience.delay(error)
            await asyncio.sleep(delay)

    async def _unseen(self, seen: set[str]) -> tuple[Approval, ...]:
        waiting = await self._all("pending")
        new = tuple(approval for approval in reversed(waiting) if approval.id not in seen)
        # What does not wait any more can't come again.
        seen.intersection_update(approval.id for approval in waiting)
        seen.update(approval.id for approval in new)
        return new

    async def _all(self, status: str | None, **of_session: Any) -> tuple[Approval, ...]:
        params = {"status": status, **of_session, "limit": _PAGE, "cursor": None}
        found: tuple[Approval, ...] = ()
        while True:
            page = await self._api.json("GET", _APPROVALS, params=params)
            found += read_items(Approval, page)
            params["cursor"] = page.get("next")
            if params["cursor"] is None:
                return found

    async def _decide(self, id: str, decision: str, reason: str | None) -> Approval:
        body = {"decision": decision, "reason": reason}
        path = f"{_APPROVALS}/{segment(id)}"
        return read(Approval, await self._api.json("POST", path, body=body))
