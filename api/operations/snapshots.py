"""Snapshots of sessions: taken, and restored on a control plane that does not know the session."""

from collections.abc import Collection
from contextlib import ExitStack
from functools import partial
from typing import Any

from api.operations.sessions import CREATING
from api.shape.access import Access
from api.shape.answers import Created, Upload
from api.shape.byte_answers import Packed
from api.shape.context import Context
from api.shape.objects import validated
from api.shape.operation import SESSION, SESSIONS, operation
from api.views import sessions as views
from api.views import turns
from orchestrator.ground import strict_json
from orchestrator.ground.errors import ValidationError
from orchestrator.ground.strict_json import JsonError
from orchestrator.ground.threads import Aside
from orchestrator.operate.snapshots.snapshots import Snapshots
from orchestrator.rules.policy.levels import Levels
from orchestrator.state.requests import NewSession
from paddock.contract.session_requests import RestoreQuery, SessionBody
from paddock.contract.sessions import CreatedSession

_TAG = "Snapshots"


@operation(
    "POST",
    SESSION + "/snapshot",
    Access.MANAGE,
    tag=_TAG,
    summary="Take a session's snapshot",
    answers="The archive's bytes; if the connection breaks off, it is incomplete.",
    errors=(
        *("session_terminated", "invalid_transition", "conflict", "busy", "too_large"),
        *("sandbox_unavailable", "engine_unavailable", "capacity_exhausted"),
    ),
)
async def take_snapshot(context: Context, snapshots: Snapshots) -> Packed:
    """A tar of the session: its turns, budget and policy, its workspace, and what it staged.

    Nothing may run in the session, which has no sandbox meanwhile, and gets one at its next use.
    Secrets are left out, and so is what archives of directories leave out.
    """
    session = context.session()
    taken = await context.work.complete(
        snapshots.take(context.principal, session), lambda abandoned: abandoned.close()
    )
    held = ExitStack()
    held.callback(taken.close)
    return Packed(taken.chunks(), len(taken.skipped), taken.skipped, held)


@operation(
    "POST",
    SESSIONS + "/restore",
    Access.MANAGE,
    tag=_TAG,
    summary="Restore a session",
    answers="The restored session, with a new handle.",
    errors=(*CREATING, "permission_denied", "too_large", "budget_exceeded"),
)
async def restore_session(
    context: Context,
    snapshots: Snapshots,
    levels: Levels,
    aside: Aside,
    query: RestoreQuery,
    upload: Upload,
) -> Created[CreatedSession]:
    """Creates the session of a snapshot, with its id or another one; the caller owns it.

    What it may have is checked as for a new session. The archive must be complete and unaltered,
    and the id unknown here. If anything fails, nothing is created. It continues if the client
    goes away.
    """
    principal = context.principal
    received = await snapshots.receive(principal, upload, turns.summary)
    try:
        asked = partial(request_in, levels, received.manifest.session)
        request = await aside.call(received.manifest_bytes, asked)
    except BaseException:
        received.close()
        raise
    # It closes what was received, because it outlives a client that has gone.
    restoring = snapshots.restore(principal, received, request, query.id)
    registered = await context.work.complete(restoring)
    return Created(views.created(registered, principal), f"{SESSIONS}/{registered.session.id}")


def request_in(levels: Collection[str], session: dict[str, Any]) -> NewSession:
    """The request in a snapshot, read as the body of a new session is.

    Raises: ValidationError naming the member.
    """
    try:
        strict_json.check(session, "session")
    except JsonError as error:
        raise ValidationError(str(error), field=error.field) from None
    body = validated(SessionBody, session, {"levels": levels})
    left_out = (body.secrets, body.lease_id, body.consume, body.from_snapshot, body.template)
    if body.id is None or any(left_out):
        raise ValidationError(
            "session must have an id, and no secrets, lease_id, consume, from_snapshot or template",
            field="session",
        )
    return views.new_session(body)
