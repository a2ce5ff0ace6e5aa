"""The Python client: `Paddock` for asyncio, `PaddockSync` without.

It answers with the models of `paddock.contract`.

```python
from paddock import Paddock

async with Paddock(url, key) as p:
    async with await p.sessions.create(permission_level="low") as s:
        result = await s.exec("ls -la")
        async for event in s.exec_stream(argv=["grep", "-r", "TODO", "."]):
            ...
```
"""

from paddock.client.code import CodeEvent, CodeOutput
from paddock.client.errors import (
    ApprovalPendingError,
    ArgumentError,
    AuditUnavailableError,
    BudgetExceededError,
    BusyError,
    CapacityExhaustedError,
    ClusterUnavailableError,
    ConflictError,
    ConnectionLostError,
    EngineUnavailableError,
    GitError,
    InternalServerError,
    InvalidTransitionError,
    LimitError,
    MaxRefinementsError,
    MisdirectedRequestError,
    NoAnswerError,
    NodeUnavailableError,
    NotFoundError,
    NotPaddockError,
    OldServerError,
    OutputLostError,
    PaddockAPIError,
    PaddockError,
    PermissionDeniedError,
    PreconditionFailedError,
    RangeNotSatisfiableError,
    RateLimitedError,
    SandboxUnavailableError,
    SessionTerminatedError,
    SignInUnavailableError,
    TooLargeError,
    UnauthorizedError,
    UnreachableError,
    ValidationError,
)
from paddock.client.faces import Async, Sync
from paddock.client.git_status import GitChange, GitStatus
from paddock.client.live_terminals import LiveTerminal
from paddock.client.packs import pack
from paddock.client.paddock import Paddock, PaddockSync
from paddock.client.results import ExecEvent, StreamedOutput, Transfer
from paddock.client.run_sockets import RunSocket
from paddock.client.session import Session
from paddock.client.shells import Shell
from paddock.client.terminals import Terminal
from paddock.contract.approvals import Approval
from paddock.contract.archives import Archive, ArchiveRun
from paddock.contract.audit import (
    AuditEvent,
    AuditStats,
    AuditVerdict,
    DenialGroup,
    IndexProgress,
)
from paddock.contract.break_glass import GlassAccess
from paddock.contract.budget import Budget
from paddock.contract.cluster import Node
from paddock.contract.code import (
    CodeContext,
    CodeError,
    CodeExit,
    CodeResult,
    CodeStarted,
    CodeValue,
)
from paddock.contract.commands import (
    AuditPosition,
    Command,
    CommandEvidence,
    CommandOutput,
    CommandResult,
    Exit,
    ExitData,
    Output,
    StartData,
)
from paddock.contract.egress import EgressDraft, EgressDrafts, SessionEgress
from paddock.contract.explanations import Explanation, Layer
from paddock.contract.files import FileEntry, FileList
from paddock.contract.hooks import AddedHook, Hook, HookDeliveries, HookDelivery
from paddock.contract.images import Image
from paddock.contract.inspection import InspectedSession, SandboxProcess, SandboxUsage
from paddock.contract.keys import CreatedKey, Key
from paddock.contract.live_terminals import (
    TerminalEnd,
    TerminalExit,
    TerminalLost,
    TerminalResized,
)
from paddock.contract.memory import MemoryBootstrap, MemoryEntries, MemoryEntry
from paddock.contract.models import LanguageModel
from paddock.contract.packs import ContextPack, PackEntry, PackInfo, PackState
from paddock.contract.policies import ListedPolicy, SessionPolicy
from paddock.contract.ports import OpenedPort, Port
from paddock.contract.proposals import Committed, Proposal, Proposals
from paddock.contract.runs import (
    Run,
    RunText,
    RunTick,
    RunToolCall,
    RunToolResult,
    SpawnEnd,
    SpawnStart,
    Timeline,
    TimelineEntry,
)
from paddock.contract.secrets import Secret
from paddock.contract.sessions import Session as SessionInfo
from paddock.contract.sessions import SessionSettings, Termination
from paddock.contract.shells import Shell as ShellInfo
from paddock.contract.shells import ShellAnswer
from paddock.contract.snapshots import NamedSnapshot
from paddock.contract.spawns import SpawnedRun
from paddock.contract.system import (
    Level,
    LevelConfinement,
    LevelRates,
    LevelRequirements,
    Readiness,
)
from paddock.contract.templates import Template, TemplateFailure
from paddock.contract.terminals import Interaction
from paddock.contract.terminals import Terminal as TerminalInfo
from paddock.contract.tools import Tool
from paddock.contract.turns import Outcome, Turn, TurnOperation, TurnSummary
from paddock.contract.usage import SessionUsage, Usages
from paddock.contract.volumes import Volume

__all__ = [
    "AddedHook",
    "Approval",
    "ApprovalPendingError",
    "Archive",
    "ArchiveRun",
    "ArgumentError",
    "Async",
    "AuditEvent",
    "AuditPosition",
    "AuditStats",
    "AuditUnavailableError",
    "AuditVerdict",
    "Budget",
    "BudgetExceededError",
    "BusyError",
    "CapacityExhaustedError",
    "ClusterUnavailableError",
    "CodeContext",
    "CodeError",
    "CodeEvent",
    "CodeExit",
    "CodeOutput",
    "CodeResult",
    "CodeStarted",
    "CodeValue",
    "Command",
    "CommandEvidence",
    "CommandOutput",
    "CommandResult",
    "Committed",
    "ConflictError",
    "ConnectionLostError",
    "ContextPack",
    "CreatedKey",
    "DenialGroup",
    "EgressDraft",
    "EgressDrafts",
    "EngineUnavailableError",
    "ExecEvent",
    "Exit",
    "ExitData",
    "Explanation",
    "FileEntry",
    "FileList",
    "GitChange",
    "GitError",
    "GitStatus",
    "GlassAccess",
    "Hook",
    "HookDeliveries",
    "HookDelivery",
    "Image",
    "IndexProgress",
    "InspectedSession",
    "Interaction",
    "InternalServerError",
    "InvalidTransitionError",
    "Key",
    "LanguageModel",
    "Layer",
    "Level",
    "LevelConfinement",
    "LevelRates",
    "LevelRequirements",
    "LimitError",
    "ListedPolicy",
    "LiveTerminal",
    "MaxRefinementsError",
    "MemoryBootstrap",
    "MemoryEntries",
    "MemoryEntry",
    "MisdirectedRequestError",
    "NamedSnapshot",
    "NoAnswerError",
    "Node",
    "NodeUnavailableError",
    "NotFoundError",
    "NotPaddockError",
    "OldServerError",
    "OpenedPort",
    "Outcome",
    "Output",
    "OutputLostError",
    "PackEntry",
    "PackInfo",
    "PackState",
    "Paddock",
    "PaddockAPIError",
    "PaddockError",
    "PaddockSync",
    "PermissionDeniedError",
    "Port",
    "PreconditionFailedError",
    "Proposal",
    "Proposals",
    "RangeNotSatisfiableError",
    "RateLimitedError",
    "Readiness",
    "Run",
    "RunSocket",
    "RunText",
    "RunTick",
    "RunToolCall",
    "RunToolResult",
    "SandboxProcess",
    "SandboxUnavailableError",
    "SandboxUsage",
    "Secret",
    "Session",
    "SessionEgress",
    "SessionInfo",
    "SessionPolicy",
    "SessionSettings",
    "SessionTerminatedError",
    "SessionUsage",
    "Shell",
    "ShellAnswer",
    "ShellInfo",
    "SignInUnavailableError",
    "SpawnEnd",
    "SpawnStart",
    "SpawnedRun",
    "StartData",
    "StreamedOutput",
    "Sync",
    "Template",
    "TemplateFailure",
    "Terminal",
    "TerminalEnd",
    "TerminalExit",
    "TerminalInfo",
    "TerminalLost",
    "TerminalResized",
    "Termination",
    "Timeline",
    "TimelineEntry",
    "TooLargeError",
    "Tool",
    "Transfer",
    "Turn",
    "TurnOperation",
    "TurnSummary",
    "UnauthorizedError",
    "UnreachableError",
    "Usages",
    "ValidationError",
    "Volume",
    "pack",
]
