"""What is kept of owners: for how long, exported, erased."""

from dataclasses import asdict

from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import operation
from orchestrator.ground.errors import NotFoundError
from orchestrator.operate.privacy.owner_requests import OwnerRequests
from orchestrator.operate.privacy.retention import retention
from orchestrator.rules.access.keys import is_owner_name
from orchestrator.settings.settings import Settings
from paddock.contract.owners import (
    ErasedOwner,
    ErasureBody,
    ExportedFile,
    KeptContent,
    OwnerExport,
    Retention,
)
from paddock.contract.requests import NoBody

_TAG = "Owners"
_OWNER = "/api/owners/{name}"
_ERRORS = ("not_found", "conflict", "audit_unavailable", "cluster_unavailable")


@operation(
    "GET",
    "/api/retention",
    Access.ADMIN,
    tag=_TAG,
    summary="Show what is kept, and for how long",
    answers="All kinds of content.",
)
async def show_retention(context: Context, settings: Settings) -> Retention:
    """What the server keeps of sessions, where, and for how long by its settings."""
    items = [KeptContent(**kept._asdict()) for kept in retention(settings)]
    return Retention(items=items, next=None)


@operation(
    "POST",
    _OWNER + "/export",
    Access.ADMIN,
    tag=_TAG,
    summary="Export everything that is kept of an owner",
    answers="The files.",
    errors=(*_ERRORS, "capacity_exhausted"),
)
async def export_owner(
    context: Context, owner_requests: OwnerRequests, name: str, body: NoBody
) -> OwnerExport:
    """Writes one file on the server's machine with everything that is kept of an owner.

    These are sessions, their chains, approvals and histories of turns, evidence, files, snapshots,
    the memory, and what hooks and secrets there are; values of secrets are not in it. In a cluster,
    each node writes a file on its machine. The owner's sessions must have ended. The export is on
    record. Only admins' keys may do this.
    """
    exporting = owner_requests.export(context.principal, _owner(name))
    found = await context.work.complete(exporting)
    files = [ExportedFile(node=node, **asdict(made)) for node, made in found.parts]
    return OwnerExport(owner=name, files=files, missing=found.missing)


@operation(
    "POST",
    _OWNER + "/erase",
    Access.ADMIN,
    tag=_TAG,
    summary="Erase the content of an owner",
    answers="What was erased.",
    errors=_ERRORS,
    examples={"request": {"reason": "asked for by letter of 3 March"}},
)
async def erase_owner(
    context: Context, owner_requests: OwnerRequests, name: str, body: ErasureBody
) -> ErasedOwner:
    """Erases files, outputs, transcripts, the memory, secrets, hooks, and what events say.

    The owner's sessions must have ended. Chains keep their events with digests of the content, so
    they still verify. In a cluster, all nodes erase their part, and copies in its database are
    erased, too. It continues if the client goes away, and after a restart, and is on record.
    Backups and copies elsewhere are not reached. Only admins' keys may do this.
    """
    erasing = owner_requests.erase(context.principal, _owner(name), body.reason)
    found = await context.work.complete(erasing)
    return ErasedOwner(owner=name, **asdict(found.erasure), missing=found.missing)


def _owner(name: str) -> str:
    """Raises: NotFoundError for what is no name of a key or a user."""
    if not is_owner_name(name):
        raise NotFoundError("there is no such owner")
    return name
