"""Break-glass access of admins to sessions of other keys."""

from api.shape.access import Access, Glass
from api.shape.answers import Made
from api.shape.context import Context
from api.shape.operation import SESSION, operation
from api.views.sessions import glass_access
from orchestrator.record.audit.glass_accesses import GlassAccesses
from paddock.contract.break_glass import GlassAccess, GlassBody

_TAG = "Sessions"
_PATH = SESSION + "/break-glass"


@operation(
    "POST",
    _PATH,
    Access.ADMIN,
    tag=_TAG,
    summary="Open break-glass access to a session",
    answers="The access, which is on record.",
    errors=("session_terminated", "conflict", "busy"),
    examples={
        "hour": {"reason": "the build hangs: incident 4711"},
        "short": {"reason": "asked by its owner", "seconds": 600},
    },
    glass=Glass.OUTSIDE,
)
async def open_break_glass(
    context: Context, accesses: GlassAccesses, body: GlassBody
) -> Made[GlassAccess]:
    """Lets the caller touch the content of another key's session, where admins need that.

    The reason is recorded first, and the session's owner is told: in its record and stream, by
    hooks, and by `GET …`. Another request replaces the access. It ends at its time, by `DELETE`,
    with the session, and with this control plane's process. Only admins' keys may do this.
    """
    session = context.session()
    opening = accesses.open(context.principal, session, body.reason, body.seconds)
    return Made(glass_access(await context.work.complete(opening)))


@operation(
    "DELETE",
    _PATH,
    Access.ADMIN,
    tag=_TAG,
    summary="End break-glass access to a session",
    answers="The access that has ended.",
    glass=Glass.OUTSIDE,
)
async def close_break_glass(context: Context, accesses: GlassAccesses) -> GlassAccess:
    """Ends the caller's access, with the streams and terminals that it has opened."""
    session = context.session()
    return glass_access(await context.work.complete(accesses.close(context.principal, session)))
