"""Apps: sessions in which a model of yours works, with sandboxes as its hands.

```python
async with Paddock(url, key) as paddock, App(paddock, model=model, level="low") as app:
    session = await app.session("user-123")
    result = await session.send("What is in this workspace?")
```
"""

from paddock.app.agent import (
    Agent,
    AppTool,
    ModelInput,
    Runner,
    SessionRef,
    SpawnDepthError,
    SpawnError,
    ToolContext,
    ToolResult,
)
from paddock.app.app import App
from paddock.app.execution import AppEvent, AppResult, Execution
from paddock.app.hooks import AppHooks
from paddock.app.local_runner import LevelDiffersError, LocalRunner
from paddock.app.messages import Entry, Reply, TokenUsage, ToolCall
from paddock.app.registry import AppBusyError
from paddock.app.session import AppSession, SessionClosedError
from paddock.app.state import Inspection
from paddock.app.store import AppSnapshot, FileStore, MemoryStore, SessionStore, SnapshotError
from paddock.app.tools import ToolInputError, spawn_tool, tool

__all__ = [
    "Agent",
    "App",
    "AppBusyError",
    "AppEvent",
    "AppHooks",
    "AppResult",
    "AppSession",
    "AppSnapshot",
    "AppTool",
    "Entry",
    "Execution",
    "FileStore",
    "Inspection",
    "LevelDiffersError",
    "LocalRunner",
    "MemoryStore",
    "ModelInput",
    "Reply",
    "Runner",
    "SessionClosedError",
    "SessionRef",
    "SessionStore",
    "SnapshotError",
    "SpawnDepthError",
    "SpawnError",
    "TokenUsage",
    "ToolCall",
    "ToolContext",
    "ToolInputError",
    "ToolResult",
    "spawn_tool",
    "tool",
]
