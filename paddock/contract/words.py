"""Words and bounds of the API that are the domain's, too."""

from enum import StrEnum

LEVEL_PATTERN = r"[a-z][a-z0-9-]{0,31}"
MAX_LINE = 8192  # characters of one line that a tool is sent


class Status(StrEnum):
    """Where a session is in its life; the last three are final."""

    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    ABORTED = "aborted"
    BUDGET_EXCEEDED = "budget-exceeded"


class Activity(StrEnum):
    """What a session does right now."""

    IDLE = "idle"
    RUNNING = "running"
    CLOSED = "closed"


class Rationale(StrEnum):
    """Why a session ended; the only codes that are ever reported."""

    NORMAL = "normal"
    CRASH = "crash"
    TIMEOUT = "timeout"
    QUARANTINED = "quarantined"
    BUDGET_EXHAUSTED = "budget_exhausted"
    CONTEXT_MISS = "CONTEXT_MISS"
