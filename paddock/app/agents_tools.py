"""Function tools of the OpenAI Agents SDK, by their shape; the package is not needed."""

from collections.abc import Awaitable
from typing import Any, Protocol

from paddock.app.agent import AppTool, ToolContext
from paddock.app.tools import text_of


class AgentsFunctionTool(Protocol):
    """What `agents.function_tool` makes."""

    name: str
    description: str
    params_json_schema: dict[str, Any]

    def on_invoke_tool(self, context: Any, arguments: str, /) -> Awaitable[Any]:
        """Does a call with its arguments as JSON text."""


def from_agents(tool: AgentsFunctionTool, *, confirm: bool = False) -> AppTool:
    """The tool for an app. It gets the app's `ToolContext` as its context."""

    async def call(arguments: str, context: ToolContext) -> str:
        return text_of(await tool.on_invoke_tool(context, arguments))

    return AppTool(tool.name, tool.description, tool.params_json_schema, call, confirm)
