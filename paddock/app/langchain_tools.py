"""Tools of LangChain, by their shape; the package is not needed."""

from collections.abc import Awaitable
from typing import Any, Protocol

from paddock.app.agent import AppTool, ToolContext
from paddock.app.tools import read_object, text_of


class LangChainTool(Protocol):
    """A `BaseTool`."""

    name: str
    description: str

    @property
    def tool_call_schema(self) -> Any:
        """A pydantic model, or a JSON schema."""

    def ainvoke(self, input: dict[str, Any], /) -> Awaitable[Any]:
        """Does a call with its arguments."""


def from_langchain(tool: LangChainTool, *, confirm: bool = False) -> AppTool:
    """The tool for an app."""

    async def call(arguments: str, context: ToolContext) -> str:
        return text_of(await tool.ainvoke(read_object(arguments)))

    form = tool.tool_call_schema
    schema = form if isinstance(form, dict) else form.model_json_schema()
    return AppTool(tool.name, tool.description, schema, call, confirm)
