"""Records of terminals, and of lines that were sent to them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from orchestrator.ground.events import time_text
from orchestrator.work.approvals.approval_rows import Approval
from orchestrator.work.terminals.evidence_files import RAW_NAME, Digests
from orchestrator.work.terminals.spec import TerminalSpec
from orchestrator.work.terminals.terminal import Status

# The exit code of an interaction without one: it timed out, failed or was refused.
NO_EXIT_CODE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalRecord:
    """A terminal, during its life and afterwards; times are RFC 3339 UTC.

    `kind` is `tool` or `shell`; a shell has no manifest, and counts nothing.

    `prompt` is the last one without trailing white space, and `session_state` the state that it
    shows. Members about the end are None until then.
    """

    id: str
    tool: str
    manifest_sha256: str | None
    startup_command: str
    status: Status = Status.SPAWNING
    session_state: str | None = None
    prompt: str | None = None
    interaction_count: int = 0
    max_interactions: int
    opened_at: str
    ended_at: str | None = None
    reason: str | None = None
    exit_code: int | None = None
    evidence: Digests | None = None
    kind: str = "tool"

    @classmethod
    def opened(cls, terminal_id: str, spec: TerminalSpec, opened_at: str) -> Self:
        """The terminal at its start."""
        return cls(
            id=terminal_id,
            tool=spec.tool,
            manifest_sha256=spec.manifest_sha256,
            startup_command=spec.startup_command,
            max_interactions=spec.max_interactions,
            opened_at=opened_at,
            kind="shell" if spec.is_shell else "tool",
        )

    def stored(self) -> dict[str, Any]:
        """The stored form, as JSON values."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        evidence = None if self.evidence is None else self.evidence._asdict()
        return {**values, "status": str(self.status), "evidence": evidence}

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> Self:
        """A stored terminal."""
        evidence = values["evidence"]
        own = {"status": Status(values["status"]), "evidence": evidence and Digests(**evidence)}
        return cls(**{**values, **own})


class Results(NamedTuple):
    """The subject of a manifest's output schema; the prompt has no trailing white space."""

    prompt: str
    output: str
    session_state: str
    interaction_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A line and its result: success, timeout, error, or pending while a person decides.

    `started` is in seconds since the epoch. `output_hash` covers the raw bytes, which are in the
    terminal's `output_file`. `approval` is set if one was requested.
    """

    status: str
    scan_id: str
    tool: str
    command: str
    session_id: str
    terminal_id: str
    started: float
    duration_ms: int
    exit_code: int
    output_hash: str | None = None
    output_bytes: int = 0
    truncated: bool = False
    error: str | None = None
    results: Results | None = None
    approval: Approval | None = None

    @property
    def timestamp(self) -> str:
        """The start time, RFC 3339 UTC."""
        return time_text(datetime.fromtimestamp(self.started, UTC))

    @property
    def output_file(self) -> str:
        """The file of the raw bytes, in the evidence folder."""
        return f"{self.terminal_id}/{RAW_NAME}"
