"""Volumes: created, listed, shown, removed."""

from api.operations.placing import check_near
from api.shape.access import Access
from api.shape.answers import Made
from api.shape.context import Context
from api.shape.operation import operation
from api.shape.spread import spread
from api.views.volumes import volume
from orchestrator.ground.errors import NotFoundError
from orchestrator.sandbox.volumes.volumes import Volumes as VolumesService
from orchestrator.sessions.sessions import Sessions
from orchestrator.settings.settings import Settings
from paddock.contract.volumes import (
    Volume,
    VolumeBody,
    VolumeKeyQuery,
    VolumeListQuery,
    Volumes,
)

_TAG = "Volumes"
_VOLUMES = "/api/volumes"
_VOLUME = _VOLUMES + "/{name}"
_EXAMPLES = {"cache": {"name": "cache", "size_bytes": 1073741824}}


@operation(
    "POST",
    _VOLUMES,
    Access.MANAGE,
    tag=_TAG,
    summary="Create a volume",
    answers="The volume, which is empty.",
    errors=("conflict", "capacity_exhausted", "sandbox_unavailable", "cluster_unavailable"),
    examples=_EXAMPLES,
)
async def create_volume(
    context: Context,
    volumes: VolumesService,
    sessions: Sessions,
    settings: Settings,
    body: VolumeBody,
) -> Made[Volume]:
    """Creates files that sessions of the caller's key can mount with `volumes`.

    A volume counts as a workspace of its size, until it is removed.
    """
    check_near(context, sessions, settings, body.placement)
    quota = sessions.shares.quota(context.principal)
    creating = volumes.create(context.principal, body.name, body.size_bytes, quota)
    return Made(volume(await context.work.complete(creating), settings.node))


@operation(
    "GET",
    _VOLUMES,
    Access.READ_ALL,
    tag=_TAG,
    summary="List volumes",
    answers="A page of volumes, by key and name.",
)
async def list_volumes(
    context: Context, volumes: VolumesService, settings: Settings, query: VolumeListQuery
) -> Volumes:
    """The volumes of the caller's key, or of all; `next` is the next page's `cursor`."""
    own = context.principal.sees_owner
    if own is not None and query.key not in (None, own):
        return Volumes(items=[], next=None, missing=[])
    key, _, name = (query.cursor or "/").rpartition("/")
    found = await volumes.page(own or query.key, (key, name), query.limit)
    more = len(found) == query.limit
    last = found[-1].volume if more else None
    return Volumes(
        items=await spread(found, lambda each: volume(each, settings.node)),
        next=None if last is None else f"{last.owner}/{last.name}",
        missing=[],
    )


@operation(
    "GET",
    _VOLUME,
    Access.READ_ALL,
    tag=_TAG,
    summary="Show a volume",
    answers="The volume.",
    errors=("not_found",),
)
async def show_volume(
    context: Context,
    volumes: VolumesService,
    settings: Settings,
    name: str,
    query: VolumeKeyQuery,
) -> Volume:
    """How much it holds, and which sessions have it."""
    return volume(await volumes.show(_owner(context, query, name), name), settings.node)


@operation(
    "DELETE",
    _VOLUME,
    Access.MANAGE,
    tag=_TAG,
    summary="Remove a volume",
    answers="The volume as it was.",
    errors=("not_found", "conflict"),
)
async def remove_volume(
    context: Context,
    volumes: VolumesService,
    settings: Settings,
    name: str,
    query: VolumeKeyQuery,
) -> Volume:
    """Removes a volume that no session has, with all of its files."""
    owner = _owner(context, query, name)
    removing = volumes.remove(context.principal, owner, name)
    return volume(await context.work.complete(removing), settings.node)


def _owner(context: Context, query: VolumeKeyQuery, name: str) -> str:
    """The key whose volume is meant. Raises: NotFoundError for one that the caller can't see."""
    principal = context.principal
    own = principal.sees_owner
    wanted = query.key or own or principal.account
    if own not in (None, wanted):
        raise NotFoundError(f"there is no volume {name}")
    return wanted
