"""Values and bounds of the API that the domain shares."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Literal, get_args

LEVEL_PATTERN = r"[a-z][a-z0-9-]{0,31}"
LEVEL_NAMES = ("low", "medium", "high")  # the ones that always exist
# With this alphabet an id is a single path segment on every file system, is never `.`, `..` or
# hidden, and fits a directory entry's 255 bytes.
ID_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
MODEL_NAME = r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}"
POLICY_PATTERN = r"[A-Za-z][A-Za-z0-9_-]{0,63}"
MOUNT_NAME = r"^[A-Za-z0-9_-]{1,64}$"
TEMPLATE_NAME = r"[a-z0-9][a-z0-9._-]{0,63}"
VOLUME_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
SNAPSHOT_NAME = VOLUME_NAME
MOST_SIDE = 500  # columns or rows of a terminal that is shown
MAX_LINE = 8192  # characters of one line sent to a tool
SECRET_BYTES = (8, 32 * 1024)  # bytes of a secret's value, minimum and maximum
OUTSIDE_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"  # of one that only the proxy has
# What a program of a turn can do; each is recorded under its name.
OperationName = Literal[
    "world.read",
    "world.list",
    "world.search",
    "world.fingerprint",
    "world.write",
    "world.patch",
    "world.delete",
    "world.run",
    "world.exec",
    "world.tool",
    "shell",
    "llm.complete",
    "llm.intent",
    "eval",
    "subeval",
    "memo",
    "fixpoint",
    "assert",
    "fact?",
    "facts",
    "recall",
    "remember",
    "tool.call",
    "spawn",
]
# What hooks are told about.
HookEvent = Literal[
    "session.created",
    "session.closed",
    "run.completed",
    "approval.requested",
    "budget.exceeded",
    "context.miss",
    "access.break_glass",
]
HOOK_EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
HOOK_URL = 2048  # characters of a hook's URL
HOOK_SECRET = (16, 256)  # characters of the secret that signs its messages
SpawnedWorkspace = Literal["own", "read-only"]  # a child's: a new one, or its parent's
SecretScope = Literal["instance", "key", "session"]  # whose sessions may use a secret
OUTSIDE_SECRET = (8, 8192)  # characters of one that only the proxy has
MAX_WALL_SECONDS = 10**9  # the longest life of a session: no deadline leaves the calendar
# The largest limit of a budget, in internal units: no sum exceeds 64 bits, no deadline the
# calendar.
MOST_BUDGET = 10**15
# The most tokens that a policy lets one call of a model ask for.
MOST_CALL_TOKENS = 10_000_000
# The limit for a program's words and variables together, in bytes: each counts with its terminator
# and the pointer to it. The kernel's is 2 MiB; the rest is for what the sandbox adds: its own
# variables, options of some commands, and the program's path.
MAX_ARGUMENT_BYTES = (2 * 1024 - 16) * 1024
ARGUMENT_COST = 9


class Status(StrEnum):
    """A session's status; the last three are final."""

    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    ABORTED = "aborted"
    BUDGET_EXCEEDED = "budget-exceeded"


class Start(StrEnum):
    """When a session's sandbox was started: before the session was known, or for it."""

    WARM = "warm"
    COLD = "cold"


class Activity(StrEnum):
    """A session's current activity; suspended: it has no sandbox until its next use."""

    IDLE = "idle"
    RUNNING = "running"
    SUSPENDED = "suspended"
    CLOSED = "closed"


class IdleAction(StrEnum):
    """What happens to a session that was idle for its time-out."""

    END = "end"
    SUSPEND = "suspend"


class Rationale(StrEnum):
    """Why a session ended; the only codes that are ever reported."""

    NORMAL = "normal"
    CRASH = "crash"
    TIMEOUT = "timeout"
    QUARANTINED = "quarantined"
    BUDGET_EXHAUSTED = "budget_exhausted"
    CONTEXT_MISS = "CONTEXT_MISS"
    MOVED = "moved"


class Kind(StrEnum):
    """What a budget limits, in the order in which exhaustion is checked."""

    TIME = "time"
    ITERATIONS = "iterations"
    COMMANDS = "commands"
    CPU_SECONDS = "cpu_seconds"
    OUTPUT_BYTES = "output_bytes"
    AUDIT_BYTES = "audit_bytes"
    TOKENS = "tokens"
    COST = "cost"
    EGRESS_BYTES = "egress_bytes"


def argument_bytes(words: Iterable[str], variables: Mapping[str, str]) -> int:
    """The size that the kernel counts for a program's words and variables."""
    pairs = (f"{name}={value}" for name, value in variables.items())
    return sum(len(text.encode()) + ARGUMENT_COST for text in (*words, *pairs))
