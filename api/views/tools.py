"""Tools as the API shows them."""

from api.shape.objects import members
from orchestrator.rules.tools.listing import ListedTool
from paddock.contract.tools import Tool


def tool(listed: ListedTool) -> Tool:
    """One command of a tool."""
    return Tool.model_validate(members(Tool, listed))
