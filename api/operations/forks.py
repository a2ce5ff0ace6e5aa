"""Forks: several sessions from one."""

from api.operations.sessions import CREATING
from api.shape.access import Access
from api.shape.answers import Made
from api.shape.context import Context
from api.shape.operation import SESSION, operation
from api.views.snapshots import forks as view
from orchestrator.programs.spawning.forks import Forked
from orchestrator.programs.spawning.forks import Forks as ForksService
from orchestrator.sessions.sessions import Sessions
from paddock.contract.snapshots import ForkBody, Forks


@operation(
    "POST",
    SESSION + "/fork",
    Access.MANAGE,
    tag="Sessions",
    summary="Make several sessions of one",
    answers="The new sessions, with their handles.",
    errors=(*CREATING, "session_terminated", "permission_denied"),
    examples={"three": {"count": 3}},
)
async def fork_session(
    context: Context, forks: ForksService, sessions: Sessions, body: ForkBody
) -> Made[Forks]:
    """Creates sessions that begin with the files that the session has now: all of them, or none.

    They belong to the caller, and have the session's level, image, labels, variables, limits,
    time-outs, policy and the limits of its budget, unused. They have none of its secrets, turns and
    open ports. They have what root inside has written over the image. It may be in use meanwhile.
    """
    principal, work = context.principal, context.work

    def leave(forked: Forked) -> None:
        for registered in forked.made:
            work.detach(sessions.close(principal, registered.session, purge=True))

    forking = forks.fork(principal, context.session(), body.count)
    return Made(view(await work.complete(forking, leave), principal))
