"""Sessions' budgets: shown, and charged for calls of models that hosts make themselves."""

from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import SESSION, operation
from api.views import sessions as views
from orchestrator.sessions.sessions import Sessions
from paddock.contract.budget import Budget, UsageBody

_TAG = "Sessions"


@operation(
    "GET",
    SESSION + "/budget",
    Access.READ,
    tag=_TAG,
    summary="Show a session's budget",
    answers="The budget.",
)
async def show_budget(context: Context) -> Budget:
    """The session's budget: limits, consumption, and what is left; also after its end."""
    return views.budget(context.session())


@operation(
    "POST",
    SESSION + "/usage",
    Access.MANAGE,
    tag=_TAG,
    summary="Report tokens and dollars that were used for a session",
    answers="The budget with them.",
    errors=("session_terminated", "budget_exceeded", "conflict"),
    examples={"call": {"tokens": 1500, "cost": 0.0021}},
)
async def report_usage(context: Context, sessions: Sessions, body: UsageBody) -> Budget:
    """Counts what language models used that the session's host has called itself.

    The session ends if that uses its budget up.
    """
    session = context.session()
    work = sessions.report_usage(context.principal, session, body.tokens, body.microdollars)
    await context.work.complete(work)
    return views.budget(session)
