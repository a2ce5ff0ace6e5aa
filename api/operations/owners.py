"""What is kept of owners: for how long, exported, erased."""

from dataclasses import asdict

from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import operation
from orchestrator.ground.errors import NotFoundError
from orchestrator.operate.privacy.erasure import Erasing
from orchestrator.operate.privacy.owner_export import OwnerExports
from orchestrator.operate.privacy.retention import retention
from orchestrator.rules.access.keys import is_key_name
from orchestrator.settings.settings import Settings
from paddock.contract.owners import ErasedOwner, ErasureBody, KeptContent, OwnerExport, Retention
from paddock.contract.requests import NoBody

_TAG = "Owners"
_OWNER = "/api/owners/{name}"
_ERRORS = ("not_found", "conflict", "audit_unavailable")


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
    answers="The file.",
    errors=(*_ERRORS, "capacity_exhausted"),
)
async def export_owner(
    context: Context, owner_exports: OwnerExports, name: str, body: NoBody
) -> OwnerExport:
    """Writes one file on the server's machine: sessions, their chains, evidence, files, memory.

    The owner's sessions must have ended. The export is on record. Only admins' keys may do this.
    """
    exporting = owner_exports.export(context.principal, _owner(name))
    return OwnerExport(**asdict(await context.work.complete(exporting)))


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
    context: Context, erasing: Erasing, name: str, body: ErasureBody
) -> ErasedOwner:
    """Erases files, outputs, transcripts, the memory, and what events say of an owner's sessions.

    The owner's sessions must have ended. Chains keep their events with digests of the content, so
    they still verify. It continues if the client goes away, and after a restart, and is on record.
    Backups and copies elsewhere are not reached. Only admins' keys may do this.
    """
    erased = erasing.erase(context.principal, _owner(name), body.reason)
    return ErasedOwner(**asdict(await context.work.complete(erased)))


def _owner(name: str) -> str:
    """Raises: NotFoundError for what is no name of a key."""
    if not is_key_name(name):
        raise NotFoundError("there is no such owner")
    return name
