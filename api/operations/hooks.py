"""Hooks: added, listed and removed; their messages that could not be delivered."""

from pydantic import SecretStr

from api.shape import stops
from api.shape.access import Access
from api.shape.answers import Made
from api.shape.context import Context
from api.shape.operation import operation
from api.shape.spread import spread
from api.views.hooks import delivery, hook_members
from orchestrator.operate.hooks.delivery_rows import NONE, Delivery
from orchestrator.operate.hooks.hook_rules import WantedHook
from orchestrator.operate.hooks.hooks import Hooks as HooksService
from paddock.contract.hooks import (
    AddedHook,
    Hook,
    HookBody,
    HookDeliveries,
    HookDelivery,
    HookDeliveryQuery,
    Hooks,
)

_TAG = "Hooks"
_HOOKS = "/api/hooks"
_HOOK = _HOOKS + "/{hook_id}"
_DELIVERIES = _HOOK + "/deliveries"
# Each may have a message of 32 KiB.
_MOST_SHOWN = 100


@operation(
    "GET",
    _HOOKS,
    Access.READ_ALL,
    tag=_TAG,
    summary="List hooks",
    answers="The hooks, without their secrets.",
    errors=("cluster_unavailable",),
)
async def list_hooks(context: Context, hooks: HooksService) -> Hooks:
    """The hooks that the caller's key has added; for an admin all, for a viewer none."""
    shown = [
        Hook(**hook_members(hook, await hooks.counts(hook)))
        for hook in hooks.visible(context.principal)
    ]
    return Hooks(items=shown, next=None)


@operation(
    "POST",
    _HOOKS,
    Access.MANAGE,
    tag=_TAG,
    summary="Add a hook",
    answers="The hook with its secret, which is not shown again.",
    errors=("conflict", "capacity_exhausted", "cluster_unavailable"),
    examples={
        "runs": {"url": "https://ci.example.com/paddock", "events": ["run.completed"]},
    },
)
async def add_hook(context: Context, hooks: HooksService, body: HookBody) -> Made[AddedHook]:
    """The URL gets a signed POST for each of these events from now on.

    Operators' keys add hooks for their own sessions, at URLs that the operator permits.
    """
    wanted = WantedHook(
        body.url,
        tuple(dict.fromkeys(body.events)),
        body.key,
        None if body.secret is None else SecretStr(body.secret),
    )
    added = await context.work.complete(hooks.add(context.principal, wanted))
    secret = added.secret.get_secret_value() if added.secret is not None else ""
    return Made(AddedHook(**hook_members(added, NONE), secret=secret))


@operation(
    "DELETE",
    _HOOK,
    Access.MANAGE,
    tag=_TAG,
    summary="Remove a hook",
    answers="The hook as it was.",
    errors=("not_found", "conflict", "cluster_unavailable"),
    stops=stops.removes_hook,
)
async def remove_hook(context: Context, hooks: HooksService, hook_id: str) -> Hook:
    """Nothing more is sent to it, and its messages are forgotten.

    This holds even if it can't be recorded now: the answer is 503 `audit_unavailable`, and the
    request is to be repeated. Hooks of the configuration are removed there.
    """
    counts = await hooks.counts(hooks.get(context.principal, hook_id))
    removed = await context.work.complete(hooks.remove(context.principal, hook_id))
    return Hook(**hook_members(removed, counts))


@operation(
    "GET",
    _DELIVERIES,
    Access.MANAGE,
    tag=_TAG,
    summary="List a hook's messages",
    answers="A page of messages that are not delivered.",
    errors=("not_found", "cluster_unavailable"),
)
async def list_hook_deliveries(
    context: Context, hooks: HooksService, hook_id: str, query: HookDeliveryQuery
) -> HookDeliveries:
    """Those that are still tried, and those that were given up in the last 7 days."""
    limit = min(query.limit, _MOST_SHOWN)
    found = await hooks.deliveries(
        context.principal, hook_id, query.status, query.cursor or 0, limit
    )
    more = found[-1].number if len(found) == limit else None
    items = await spread(found, lambda one: _shown(context, one))
    return HookDeliveries(items=items, next=more)


@operation(
    "POST",
    _DELIVERIES + "/{delivery_id}/retry",
    Access.MANAGE,
    tag=_TAG,
    summary="Send an undelivered message again",
    answers="The message, which waits again.",
    errors=("not_found", "cluster_unavailable"),
)
async def retry_hook_delivery(
    context: Context, hooks: HooksService, hook_id: str, delivery_id: str
) -> HookDelivery:
    """It is tried as often as a new one, before later ones of its session that still wait."""
    retrying = hooks.retry(context.principal, hook_id, delivery_id)
    return _shown(context, await context.work.complete(retrying))


def _shown(context: Context, stored: Delivery) -> HookDelivery:
    """A message, to an admin who needs break-glass access without what other sessions contain."""
    shown = delivery(stored)
    owner = shown.message["session"]["key"]
    if context.whole_for in (None, owner):
        return shown
    return shown.model_copy(update={"message": {**shown.message, "data": {}}})
