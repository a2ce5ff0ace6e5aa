"""A tool with which a model spawns children."""

from typing import Annotated

from pydantic import Field

from paddock.app.reference import Workspace
from paddock.app.tools import AppTool, ToolContext, tool

Task = Annotated[str, Field(min_length=1, description="All that the other agent is told.")]
Label = Annotated[str, Field(max_length=128, description="A short name of the task.")]


def spawn_tool(workspace: Workspace = "own") -> AppTool:
    """The tool `spawn`, for an app's `tools`. Its children have that workspace."""

    async def spawn(context: ToolContext, task: Task, label: Label | None = None) -> dict[str, str]:
        """Has another agent with the same tools do a task, and waits for its answer."""
        result = await context.spawn(None, task, label=label, workspace=workspace)
        return {"status": result.status, "text": result.text}

    return tool(spawn)
