"""Named snapshots: copies of workspaces, from which sessions begin."""

from api.shape.access import Access
from api.shape.answers import Made
from api.shape.context import Context
from api.shape.operation import SESSION, operation
from api.shape.spread import spread
from api.views.snapshots import snapshot as view
from orchestrator.ground.errors import NotFoundError
from orchestrator.sandbox.named_snapshots.named_snapshots import (
    NamedSnapshots as NamedSnapshotsService,
)
from orchestrator.settings.settings import Settings
from paddock.contract.snapshots import (
    NamedSnapshot,
    NamedSnapshots,
    SnapshotBody,
    SnapshotChangeBody,
    SnapshotKeyQuery,
    SnapshotListQuery,
)

_TAG = "Snapshots"
_SNAPSHOTS = "/api/snapshots"
_SNAPSHOT = _SNAPSHOTS + "/{name}"


@operation(
    "POST",
    SESSION + "/snapshots",
    Access.MANAGE,
    tag=_TAG,
    summary="Take a named snapshot",
    answers="The snapshot.",
    errors=("session_terminated", "conflict", "capacity_exhausted", "sandbox_unavailable"),
    examples={"base": {"name": "base"}},
)
async def create_snapshot(
    context: Context, named_snapshots: NamedSnapshotsService, settings: Settings, body: SnapshotBody
) -> Made[NamedSnapshot]:
    """Keeps a copy of the session's workspace under a name of its key.

    The session may be in use: what writes to the workspace waits for a moment. The copy shares its
    blocks with the workspace if the host's disk can do that, whatever its size. What is staged is
    not in it. `layer` also keeps what root inside has written over the image.
    """
    taking = named_snapshots.take(
        context.principal, context.session(), body.name, body.metadata, layer=body.layer
    )
    return Made(view(await context.work.complete(taking), settings))


@operation(
    "GET",
    _SNAPSHOTS,
    Access.READ_ALL,
    tag=_TAG,
    summary="List named snapshots",
    answers="A page of snapshots, by key and name.",
)
async def list_snapshots(
    context: Context,
    named_snapshots: NamedSnapshotsService,
    settings: Settings,
    query: SnapshotListQuery,
) -> NamedSnapshots:
    """The snapshots of the caller's key, or of all; `next` is the next page's `cursor`."""
    own = context.principal.sees_owner
    if own is not None and query.key not in (None, own):
        return NamedSnapshots(items=[], next=None, missing=[])
    key, _, name = (query.cursor or "/").rpartition("/")
    found = await named_snapshots.page(own or query.key, query.session, (key, name), query.limit)
    last = found[-1].snapshot if len(found) == query.limit else None
    return NamedSnapshots(
        items=await spread(found, lambda each: view(each, settings)),
        next=None if last is None else f"{last.owner}/{last.name}",
        missing=[],
    )


@operation(
    "GET",
    _SNAPSHOT,
    Access.READ_ALL,
    tag=_TAG,
    summary="Show a named snapshot",
    answers="The snapshot.",
    errors=("not_found",),
)
async def show_snapshot(
    context: Context,
    named_snapshots: NamedSnapshotsService,
    settings: Settings,
    name: str,
    query: SnapshotKeyQuery,
) -> NamedSnapshot:
    """The snapshot with that name or id; while it is taken, how far that is."""
    shown = await named_snapshots.show(_owner(context, query, name), name)
    return view(shown, settings)


@operation(
    "PATCH",
    _SNAPSHOT,
    Access.MANAGE,
    tag=_TAG,
    summary="Change the texts of a named snapshot",
    answers="The snapshot.",
    errors=("not_found", "conflict"),
    examples={"tested": {"metadata": {"tested": "yes", "commit": None}}},
)
async def change_snapshot(
    context: Context,
    named_snapshots: NamedSnapshotsService,
    settings: Settings,
    name: str,
    query: SnapshotKeyQuery,
    body: SnapshotChangeBody,
) -> NamedSnapshot:
    """Sets or removes texts of the snapshot with that name or id; its files stay as they are."""
    owner = _owner(context, query, name)
    changing = named_snapshots.change(context.principal, owner, name, body.metadata)
    return view(await context.work.complete(changing), settings)


@operation(
    "DELETE",
    _SNAPSHOT,
    Access.MANAGE,
    tag=_TAG,
    summary="Remove a named snapshot",
    answers="The snapshot as it was.",
    errors=("not_found", "conflict"),
)
async def remove_snapshot(
    context: Context,
    named_snapshots: NamedSnapshotsService,
    settings: Settings,
    name: str,
    query: SnapshotKeyQuery,
) -> NamedSnapshot:
    """Removes the snapshot with that name or id. Sessions that began as it keep their files."""
    owner = _owner(context, query, name)
    removing = named_snapshots.remove(context.principal, owner, name)
    return view(await context.work.complete(removing), settings)


def _owner(context: Context, query: SnapshotKeyQuery, name: str) -> str:
    """The key whose snapshot is meant. Raises: NotFoundError for one that the caller can't see."""
    principal = context.principal
    own = principal.sees_owner
    wanted = query.key or own or principal.account
    if own not in (None, wanted):
        raise NotFoundError(f"there is no snapshot {name}")
    return wanted
