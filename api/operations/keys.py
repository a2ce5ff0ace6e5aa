"""API keys: listed, created and revoked by admins."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from api.shape.access import Access
from api.shape.answers import Made, Removed
from api.shape.context import Context
from api.shape.operation import operation
from api.views import keys as views
from orchestrator.cluster.base import ClusterUsage
from orchestrator.ground.errors import NotFoundError, ValidationError
from orchestrator.ground.limits import KeyUsage
from orchestrator.operate.operator.key_edits import KeyEdits
from orchestrator.rules.access.key_scopes import check_covers
from orchestrator.rules.access.keys import KeyRing, Principal
from orchestrator.rules.access.last_uses import LastUses
from orchestrator.rules.policy.levels import Levels
from orchestrator.sessions.sessions import Sessions
from paddock.contract.keys import CreatedKey, Key, KeyBody, Keys, RotationBody

_TAG = "Keys"
_KEYS = "/api/keys"


@operation(
    "GET",
    _KEYS,
    Access.ADMIN,
    tag=_TAG,
    summary="List API keys",
    answers="The keys.",
    errors=("conflict", "cluster_unavailable"),
)
async def list_keys(
    context: Context,
    keys: KeyRing,
    key_edits: KeyEdits,
    sessions: Sessions,
    cluster_usage: ClusterUsage,
    last_uses: LastUses,
) -> Keys:
    """The keys in force with their limits and what they use, without themselves.

    In a cluster that is what they use on all nodes.
    """
    used, caller = _use_of(sessions, await cluster_usage.used()), context.principal

    def shown(key: Principal) -> dict[str, Any]:
        return views.key(key, used(key.name), caller, last_uses.of(key.name))

    return Keys(
        items=[
            Key(**views.key(each, used(each.name), context.principal, last_uses.of(each.name)))
            for each in keys.all
        ],
        next=None,
        file=key_edits.file,
        obstacle=await key_edits.obstacle(),
    )


@operation(
    "POST",
    _KEYS,
    Access.ADMIN,
    tag=_TAG,
    summary="Create an API key",
    answers="The key, which is not shown again.",
    errors=("conflict", "cluster_unavailable"),
    examples={
        "operator": {"name": "ci", "max_sessions": 8, "max_level": "medium"},
        "viewer": {"name": "dashboard", "role": "viewer", "scope": "all"},
    },
)
async def create_key(
    context: Context,
    levels: Levels,
    keys: KeyRing,
    key_edits: KeyEdits,
    sessions: Sessions,
    cluster_usage: ClusterUsage,
    last_uses: LastUses,
    body: KeyBody,
) -> Made[CreatedKey]:
    """Adds a key to the keys file; it is in force at once. Only this answer contains it."""
    if body.max_level is not None and body.max_level not in levels:
        raise ValidationError(f"max_level must be {'|'.join(levels)}", field="max_level")
    new = views.new_key(body)
    check_covers(keys.scopes(context.principal), new.scopes)
    used = _use_of(sessions, await cluster_usage.used())
    key = await context.work.complete(key_edits.create(context.principal.name, new))
    return Made(
        CreatedKey(
            **views.key(new, used(new.name), context.principal, last_uses.of(new.name)), key=key
        )
    )


@operation(
    "POST",
    _KEYS + "/{name}/rotation",
    Access.ADMIN,
    tag=_TAG,
    summary="Rotate an API key",
    answers="The new secret, which is not shown again.",
    errors=("not_found", "conflict", "cluster_unavailable"),
    examples={"day": {"overlap_seconds": 86400}},
)
async def rotate_key(
    context: Context,
    keys: KeyRing,
    key_edits: KeyEdits,
    sessions: Sessions,
    cluster_usage: ClusterUsage,
    last_uses: LastUses,
    name: str,
    body: RotationBody,
) -> CreatedKey:
    """Gives a key another secret; both are valid until the overlap ends, and are the same key.

    There are never more than two: while the old one is valid, a rotation needs an overlap of 0.
    """
    known = keys.named(name)
    if known is not None:
        check_covers(keys.scopes(context.principal), known.scopes)
    overlap = timedelta(seconds=body.overlap_seconds)
    rotation = key_edits.rotate(context.principal.name, name, overlap)
    key = await context.work.complete(rotation)
    new = keys.named(name)
    if new is None:
        raise NotFoundError("there is no key with this name")
    used = _use_of(sessions, await cluster_usage.used())
    return CreatedKey(**views.key(new, used(name), context.principal, last_uses.of(name)), key=key)


@operation(
    "DELETE",
    _KEYS + "/{name}",
    Access.ADMIN,
    tag=_TAG,
    summary="Revoke an API key",
    answers="It is refused from now on.",
    errors=("not_found", "conflict", "cluster_unavailable"),
)
async def revoke_key(context: Context, key_edits: KeyEdits, name: str) -> Removed:
    """Removes a key from the keys file: it is refused at once, and its streams end.

    Its sessions continue, with their handles and within the same limits, until they end.
    """
    await context.work.complete(key_edits.revoke(context.principal.name, name))
    return Removed()


def _use_of(
    sessions: Sessions, everywhere: Mapping[str, KeyUsage] | None
) -> Callable[[str], KeyUsage]:
    """What the key with a name uses: on all nodes of a cluster, or here."""
    if everywhere is None:
        return sessions.registry.usage
    return lambda name: everywhere.get(name, KeyUsage())
