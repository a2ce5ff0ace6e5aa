"""The tools that a session can use."""

from api.access import Access
from api.context import Context
from api.operation import SESSION, operation
from api.views.tools import tool
from orchestrator.sessions.session import Session
from orchestrator.tools.listing import Asker, list_tools
from paddock.contract.tools import Tools


@operation(
    "GET",
    SESSION + "/tools",
    Access.READ,
    tag="Tools",
    name="list_tools",
    summary="List the tools of a session",
    answers="The commands of all tools.",
)
async def list_tools_of(context: Context) -> Tools:
    """All commands of all tools, and whether the session's level and policies could allow each."""
    session = context.session()
    level = session.level
    asker = Asker(
        level.risk_tier,
        level.name,
        session.role,
        session.tools,
        level.confinement.ptrace,
        _mounts(session),
        context.plane.keys.bounds(context.principal),
    )
    listed = list_tools(context.plane.reload.tools, asker)
    return Tools(items=[tool(each) for each in listed], next=None)


def _mounts(session: Session) -> tuple[str, ...]:
    """The operator's mounts that it has, or will have when it is restored."""
    if session.suspended:
        return (*session.level.mounts, *session.mounts)
    return () if session.sandbox is None else session.sandbox.mounts
