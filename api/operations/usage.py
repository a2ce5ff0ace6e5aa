"""What sessions and the host use."""

from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import operation
from api.shape.spread import spread
from api.views import usage
from orchestrator.operate.observe.usage import INTERVAL_SECONDS, UsageHistory
from orchestrator.sessions.sessions import Sessions
from orchestrator.state.registry import Registry
from orchestrator.state.session import Session
from paddock.contract.usage import UsageQuery, Usages


@operation(
    "GET",
    "/api/usage",
    Access.READ_ALL,
    tag="Sessions",
    summary="Show what live sessions and the host use",
    answers="The samples.",
)
async def show_usage(
    context: Context, history: UsageHistory, sessions: Sessions, query: UsageQuery
) -> Usages:
    """What the caller's live sessions used in the last ten minutes, in samples.

    With `after`, only what was sampled since. The host is shown to callers that see all sessions.
    """
    principal = context.principal
    new = max(0, history.round - query.after)
    live = [
        one
        for one in _candidates(sessions.registry, principal.sees_owner, query.session)
        if one.live and principal.may_see(one.key, one.owner)
    ]
    return Usages(
        round=history.round,
        sampled_at=history.at,
        interval=INTERVAL_SECONDS,
        host=usage.host(history, new) if principal.sees_owner is None else None,
        items=await spread(live, lambda one: usage.session(one, history.of(one), new)),
        next=None,
    )


def _candidates(registry: Registry, owner: str | None, session_id: str | None) -> list[Session]:
    """Sessions among which the wanted ones are: no more than the answer could show."""
    if session_id is not None:
        found = registry.get(session_id)
        return [] if found is None else [found]
    return registry.live if owner is None else registry.owned(owner)
