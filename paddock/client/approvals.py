"""Approvals: requests that wait for a person's decision."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from paddock.client.answers import read, read_items
from paddock.client.errors import ConnectionLostError
from paddock.client.faces import F, Face, method, stream
from paddock.client.requests import segment
from paddock.client.retry import PASSING, Patience
from paddock.contract.approvals import Approval

_APPROVALS = "/api/approvals"
_EVENTS = "/api/events"
_PAGE = 500


class Approvals(Face[F]):
    """The approvals of this key's sessions (for an admin, of all sessions).

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`. A session's handle can use none of them.
    """

    @method
    async def list(
        self,
        *,
        status: str | None = None,
        session: str | None = None,
        incarnation: int | None = None,
    ) -> tuple[Approval, ...]:
        """The approvals, newest first, optionally of one `status` or of one session.

        If several sessions had the id, `incarnation` selects one, from 1; the default is the
        latest. Raises: NotFoundError if there is no such session, ValidationError for an
        incarnation without a session.
        """
        return await self._all(status, session=session, incarnation=incarnation)

    @method
    async def approve(self, id: str, *, reason: str | None = None) -> Approval:
        """Approves the command, once. Raises: ConflictError if it is already decided."""
        return await self._decide(id, "approve", reason)

    @method
    async def deny(self, id: str, *, reason: str | None = None) -> Approval:
        """Denies the command. Raises: ConflictError if it is already decided."""
        return await self._decide(id, "deny", reason)

    @stream
    async def watch(self) -> AsyncGenerator[Approval, None]:
        """Pending approvals, present and future, each once and oldest first, without end.

        Survives broken connections, for the client's `reconnect` seconds.
        """
        seen: set[str] = set()
        patience = Patience(self._api.options.reconnect)
        while True:
            try:
                # The open stream reports what the list does not contain yet.
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
        # An approval that is no longer pending can't return.
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
