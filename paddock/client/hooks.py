"""Hooks: URLs that receive a signed POST for each event of sessions.

`paddock.webhooks.verify` is for their receivers.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from paddock.client.answers import read, read_items
from paddock.client.faces import F, Face, method
from paddock.client.requests import given, segment
from paddock.contract.hooks import AddedHook, Hook, HookDeliveries, HookDelivery
from paddock.contract.words import HookEvent

DeliveryStatus: TypeAlias = Literal["waiting", "undelivered"]
_HOOKS = "/api/hooks"


class Hooks(Face[F]):
    """The hooks of a key, and for an admin all. All methods raise `PaddockAPIError`."""

    @method
    async def add(
        self,
        url: str,
        events: Sequence[HookEvent],
        *,
        key: str | None = None,
        secret: str | None = None,
    ) -> AddedHook:
        """Adds a hook, which is told of these events from now on.

        Args:
            url: for a key that is no admin's, one that the operator permits.
            events: `session.created`, `session.closed`, `run.completed`, `approval.requested`,
                `budget.exceeded`, `context.miss`.
            key: for an admin: the key whose sessions it is told of; None: all sessions.
            secret: the key of the signatures, 16 to 256 visible ASCII characters; None: one is
                made. Only the answer has it.

        Raises: PermissionDeniedError, ValidationError naming the field; ConflictError if there are
        too many.
        """
        body = given(url=url, events=list(events), key=key, secret=secret)
        return read(AddedHook, await self._api.json("POST", _HOOKS, body=body))

    @method
    async def list(self) -> tuple[Hook, ...]:
        """The hooks, without their secrets."""
        return read_items(Hook, await self._api.json("GET", _HOOKS))

    @method
    async def remove(self, hook_id: str) -> Hook:
        """Removes a hook and its messages. Raises: NotFoundError."""
        return read(Hook, await self._api.json("DELETE", f"{_HOOKS}/{segment(hook_id)}"))

    @method
    async def deliveries(
        self,
        hook_id: str,
        *,
        status: DeliveryStatus | None = None,
        cursor: int | None = None,
        limit: int | None = None,
    ) -> HookDeliveries:
        """A page of messages that are not delivered; `next` is the next page's `cursor`."""
        params = given(status=status, cursor=cursor, limit=limit)
        path = f"{_HOOKS}/{segment(hook_id)}/deliveries"
        return read(HookDeliveries, await self._api.json("GET", path, params=params))

    @method
    async def retry(self, hook_id: str, delivery_id: str) -> HookDelivery:
        """Sends an undelivered message again. Raises: NotFoundError."""
        path = f"{_HOOKS}/{segment(hook_id)}/deliveries/{segment(delivery_id)}/retry"
        return read(HookDelivery, await self._api.json("POST", path))
