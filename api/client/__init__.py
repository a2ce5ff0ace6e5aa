"""The Python client: `Paddock` for asyncio, `PaddockSync` without; it needs aiohttp only.

```python
async with Paddock(url, key) as p:
    async with await p.sessions.create(permission_level="low") as s:
        result = await s.exec("ls -la")
        async for event in s.exec_stream(argv=["grep", "-r", "TODO", "."]):
            ...
```
"""

from api.client.approvals import Approval
from api.client.errors import (
    AuditUnavailableError,
    BusyError,
    CapacityExhaustedError,
    ConflictError,
    ConnectionLostError,
    EngineUnavailableError,
    InternalServerError,
    InvalidTransitionError,
    LimitError,
    NoAnswerError,
    NotFoundError,
    NotPaddockError,
    OldServerError,
    PaddockAPIError,
    PaddockError,
    PermissionDeniedError,
    RateLimitedError,
    SandboxUnavailableError,
    SessionTerminatedError,
    TooLargeError,
    UnauthorizedError,
    UnreachableError,
    ValidationError,
)
from api.client.faces import Async, Sync
from api.client.paddock import Paddock, PaddockSync
from api.client.results import (
    AuditEvent,
    AuditStats,
    Command,
    CommandOutput,
    Entry,
    ExecEvent,
    ExecResult,
    Exit,
    Explanation,
    Level,
    Listing,
    Output,
    Readiness,
    Receipt,
    Start,
    Tool,
    Transfer,
    Verdict,
)
from api.client.session import Session
from api.client.session_info import Process, SessionInfo, SessionSettings, Termination, Usage

__all__ = [
    "Approval",
    "Async",
    "AuditEvent",
    "AuditStats",
    "AuditUnavailableError",
    "BusyError",
    "CapacityExhaustedError",
    "Command",
    "CommandOutput",
    "ConflictError",
    "ConnectionLostError",
    "EngineUnavailableError",
    "Entry",
    "ExecEvent",
    "ExecResult",
    "Exit",
    "Explanation",
    "InternalServerError",
    "InvalidTransitionError",
    "Level",
    "LimitError",
    "Listing",
    "NoAnswerError",
    "NotFoundError",
    "NotPaddockError",
    "OldServerError",
    "Output",
    "Paddock",
    "PaddockAPIError",
    "PaddockError",
    "PaddockSync",
    "PermissionDeniedError",
    "Process",
    "RateLimitedError",
    "Readiness",
    "Receipt",
    "SandboxUnavailableError",
    "Session",
    "SessionInfo",
    "SessionSettings",
    "SessionTerminatedError",
    "Start",
    "Sync",
    "Termination",
    "TooLargeError",
    "Tool",
    "Transfer",
    "UnauthorizedError",
    "UnreachableError",
    "Usage",
    "ValidationError",
    "Verdict",
]
