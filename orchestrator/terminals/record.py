"""What there is to know of terminals, and of lines that were sent to them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from orchestrator.approvals.approval_rows import Approval
from orchestrator.terminals.evidence import RAW_NAME, Digests
from orchestrator.terminals.spec import TerminalSpec
from orchestrator.terminals.terminal import Status

# The exit code of what has none: it timed out, failed or was refused.
NO_EXIT_CODE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalRecord:
    """A terminal, while it lives and afterwards; times are RFC 3339 UTC.

    `prompt` is the last one, without the space at its end, and `session_state` what it shows.
    What comes with the end is None until then.
    """

    id: str
    tool: str
    manifest_sha256: str
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
        )

    def stored(self) -> dict[str, Any]:
        """What the store keeps, as JSON has it."""
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
    """What a manifest's output schema is about; the prompt without the space at its end."""

    prompt: str
    output: str
    session_state: str
    interaction_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A line, and what came of it: success, timeout, error, or pending while a person thinks.

    `started` is in seconds since the epoch. `output_hash` is of the raw bytes; they are in the
    terminal's `output_file`. `approval` is there where a person was asked.
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
        """When it was started, RFC 3339 UTC."""
        return datetime.fromtimestamp(self.started, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    @property
    def output_file(self) -> str:
        """Where the raw bytes are, in the evidence folder."""
        return f"{self.terminal_id}/{RAW_NAME}"
