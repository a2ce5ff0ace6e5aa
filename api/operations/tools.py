"""The tools that a session can use."""

from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import SESSION, operation
from api.views.tools import tool
from orchestrator.rules.access.keys import KeyRing
from orchestrator.rules.policy.levels import Levels
from orchestrator.work.terminals.session_tools import SessionTools
from paddock.contract.tools import Tools, ToolsQuery


@operation(
    "GET",
    SESSION + "/tools",
    Access.READ,
    tag="Tools",
    name="list_tools",
    summary="List the tools of a session",
    answers="The commands of all tools.",
)
async def list_tools_of(context: Context, session_tools: SessionTools) -> Tools:
    """All commands of all tools, and whether the session's level and policies could allow each."""
    listed = session_tools.of_session(context.principal, context.session())
    return Tools(items=[tool(each) for each in listed], next=None)


@operation(
    "GET",
    "/api/tools",
    Access.READ_ALL,
    tag="Tools",
    name="list_all_tools",
    summary="List the tools of a level",
    answers="The commands of all tools.",
)
async def list_tools_of_level(
    context: Context, keys: KeyRing, levels: Levels, session_tools: SessionTools, query: ToolsQuery
) -> Tools:
    """All commands of all tools, and whether a session of the caller at that level could use each.

    The session would have the usual role, and no mounts but its level's.
    """
    bounds = keys.bounds(context.principal)
    level = levels.named(query.level or bounds.default_level(levels))
    listed = session_tools.of_level(level, bounds)
    return Tools(items=[tool(each) for each in listed], next=None)
