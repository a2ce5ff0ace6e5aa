"""Models of a session's current activity."""

from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.contract.base import WORDS, Count, Model, Time, example
from paddock.contract.break_glass import GLASS_ACCESS, GlassAccess
from paddock.contract.policies import EXAMPLE as POLICY
from paddock.contract.policies import SessionPolicy
from paddock.contract.sessions import EXAMPLE, Session
from paddock.contract.system import FACILITY, FacilityMeans

_PROCESS = {
    "pid": 7,
    "host_pid": 30631,
    "host_parent_pid": 30612,
    "name": "find",
    "argv": ["find", ".", "-name", "*.py"],
    "state": "running",
    "cpu_seconds": 0.42,
    "cpu_percent": 49.8,
    "memory_bytes": 3145728,
}
_USAGE = {"cpu_seconds": 1.902231, "cpu_percent": 50.1, "memory_bytes": 9437184, "pids": 3}
_DISK = {"used_bytes": 1052672, "limit_bytes": 253886464}
_DENIAL = {
    "seq": 12,
    "time": "2026-03-04T09:30:12.482113Z",
    "actor": "ci",
    "operation": "command.start",
    "rule": "command-allowlist",
    "args": {"argv": ["curl", "https://example.com"], "command_id": "8d3c0f5a1b2e4967"},
    "error": "command not allowed for permission level low: curl",
}
_TELEMETRY = {
    "tool_calls": 14,
    "events_emitted": 43,
    "episode_count": 1,
    "started_at": "2026-03-04T09:30:11.902771Z",
    "duration_ms": 15204,
}
_INSPECTED = {
    **EXAMPLE,
    "policy": POLICY,
    "processes": [_PROCESS],
    "usage": _USAGE,
    "disk": _DISK,
    "streams": {"events": 1, "output": 0, "downloads": 0, "uploads": 0, "terminals": 0},
    "denials": [_DENIAL],
    "telemetry": _TELEMETRY,
    "runtime": "runc",
    "own_link": None,
    "facilities": [FACILITY],
    "break_glass": [GLASS_ACCESS],
}


class SandboxProcess(Model):
    """A process of the sandbox, read on the host; includes its agent and guards."""

    pid: int = Field(description="The pid inside the sandbox.")
    host_pid: int = Field(description="The pid on the host.")
    host_parent_pid: int = Field(
        description="Its parent's pid on the host, which is outside the sandbox for the first."
    )
    name: str
    argv: list[str] = Field(description="The process's own words, cut after 2 KiB.")
    state: Annotated[
        Literal["running", "sleeping", "waiting", "stopped", "traced", "zombie", "idle", "ended"],
        WORDS,
    ]
    cpu_seconds: float
    cpu_percent: float = Field(description="Of one core, since an inspection before, or the start.")
    memory_bytes: Count = Field(description="Resident.")


class SandboxUsage(Model):
    """The sandbox's usage, to compare with the session's `limits`."""

    cpu_seconds: float = Field(description="Since the sandbox started.")
    cpu_percent: float = Field(description="Of one core, since an inspection before, or the start.")
    memory_bytes: Count = Field(description="Without memory that the kernel can reclaim at once.")
    pids: Count


class DiskUsage(Model):
    """Usage of the workspace's file system."""

    used_bytes: Count
    limit_bytes: Count = Field(
        description="Less than `limits.workspace_bytes` by the file system's own overhead."
    )


class OpenStreams(Model):
    """Numbers of clients that follow or transfer something."""

    events: Count
    output: Count
    downloads: Count
    uploads: Count
    terminals: Count


class Denial(Model):
    """A refusal; the audit log has the whole event at `seq`."""

    seq: int
    time: Time
    actor: str | None
    operation: str
    rule: str | None
    args: dict[str, Any]
    error: str | None


class Telemetry(Model):
    """Counters of the session, from its record."""

    tool_calls: Count = Field(
        description="Allowed commands, file operations, opened terminals and lines sent to them."
    )
    events_emitted: Count = Field(description="Events of its chain.")
    episode_count: Count = Field(description="Episodes that it has had.")
    started_at: Time
    duration_ms: Count = Field(description="From the start to the end, or until now.")


class InspectedSession(Session):
    """A session with its current activity, even if its agent does not answer.

    `commands` has the running and the latest ended ones, 10 in all.
    """

    model_config = example(_INSPECTED)

    policy: SessionPolicy = Field(
        description="What its turns may do, as it was when the session was created."
    )
    processes: list[SandboxProcess] | None = Field(
        description="Null without a sandbox, or if the host does not show its processes."
    )
    usage: SandboxUsage | None = Field(description="Null when `processes` is.")
    disk: DiskUsage | None = Field(
        description="Null if the workspace's size is not enforced, or it was purged."
    )
    streams: OpenStreams
    denials: list[Denial] = Field(description="The latest 10, newest first.")
    telemetry: Telemetry
    own_link: bool | None = Field(
        default=None,
        description="Whether its link to the open network was made by the control plane, not by "
        "the engine; null without that network, or if the engine did not say.",
    )
    runtime: str | None = Field(
        default=None,
        description="The engine's runtime of its sandbox; null without one, or if the engine did "
        "not say.",
    )
    facilities: list[FacilityMeans] | None = Field(
        default=None,
        description="By what means its sandbox enforces its level; null without a sandbox.",
    )
    break_glass: list[GlassAccess] = Field(
        default=[],
        description="The admins who have opened access to its content. An admin who needs that and "
        "has not sees no `commands`, `processes`, `usage` and `denials`.",
    )
