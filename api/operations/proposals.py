"""What a session staged: shown, committed, discarded."""

from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import SESSION, operation
from api.views import proposals as views
from orchestrator.work.proposals.proposals import Proposals as ProposalsService
from paddock.contract.proposals import (
    CommitBody,
    Committed,
    Proposals,
    ProposalsQuery,
    RolledBack,
)
from paddock.contract.requests import NoBody

_TAG = "Proposals"
_PROPOSALS = SESSION + "/proposals"
_CHANGING = (
    *("session_terminated", "invalid_transition", "conflict", "busy", "sandbox_unavailable"),
    *("engine_unavailable", "capacity_exhausted"),
)


@operation(
    "GET",
    _PROPOSALS,
    Access.WORK,
    tag=_TAG,
    summary="List proposals",
    answers="A page of what is staged.",
    errors=("session_terminated", "sandbox_unavailable"),
)
async def list_proposals(
    context: Context, proposals: ProposalsService, query: ProposalsQuery
) -> Proposals:
    """What the session staged, in order of paths, with unified diffs.

    Its sandbox need not run. A session whose policy has no proposal mode stages nothing. The handle
    of a session with a context pack may not list them.
    """
    shown = proposals.show(context.principal, context.session(), query.after, query.limit)
    return views.page(await context.work.complete(shown))


@operation(
    "POST",
    _PROPOSALS + "/commit",
    Access.MANAGE,
    tag=_TAG,
    summary="Commit proposals",
    answers="What was committed.",
    errors=_CHANGING,
    examples={"everything": {}, "a directory": {"paths": ["src"]}},
)
async def commit_proposals(
    context: Context, proposals: ProposalsService, body: CommitBody
) -> Committed:
    """Applies staged changes to the workspace, all or none.

    Nothing may run in the session, which has no sandbox meanwhile, and gets one at its next use. A
    conflict changes nothing and names the paths in `conflicts` and `refused`.
    """
    committing = proposals.commit(
        context.principal, context.session(), body.paths, views.expected(body)
    )
    return views.committed(await context.work.complete(committing))


@operation(
    "POST",
    _PROPOSALS + "/rollback",
    Access.WORK,
    tag=_TAG,
    summary="Discard proposals",
    answers="What was discarded.",
    errors=_CHANGING,
)
async def rollback_proposals(
    context: Context, proposals: ProposalsService, body: NoBody
) -> RolledBack:
    """Discards everything that is staged. Nothing may run in the session."""
    rolling = proposals.rollback(context.principal, context.session())
    return RolledBack(**(await context.work.complete(rolling)).model_dump())
