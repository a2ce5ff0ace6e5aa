"""The tools that a session can use."""

from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import SESSION, operation
from api.views.tools import tool
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
async def list_tools_of(context: Context) -> Tools:
    """All commands of all tools, and whether the session's level and policies could allow each."""
    listed = context.plane.session_tools.of_session(context.principal, context.session())
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
async def list_tools_of_level(context: Context, query: ToolsQuery) -> Tools:
    """All commands of all tools, and whether a session of the caller at that level could use each.

    The session would have the usual role, and no mounts but its level's.
    """
    plane, bounds = context.plane, context.plane.keys.bounds(context.principal)
    level = plane.levels.named(query.level or bounds.default_level(plane.levels))
    listed = plane.session_tools.of_level(level, bounds)
    return Tools(items=[tool(each) for each in listed], next=None)
