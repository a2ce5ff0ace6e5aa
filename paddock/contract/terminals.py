"""Terminals: interactive tools of a session."""

from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.contract.approvals import Approval
from paddock.contract.base import WORDS, Count, Model, Time, example
from paddock.contract.fields import ToolName, Wait
from paddock.contract.requests import Body
from paddock.contract.words import MAX_LINE

_HASH = "sha256:a3f5c8e1b2d4069788796a5b4c3d2e1f06b1f0e2d3c4b5a69788796a5b4c3d2e"
EVIDENCE: dict[str, Any] = {
    "raw_bytes": 1482,
    "raw_hash": _HASH,
    "raw_truncated": False,
    "transcript_bytes": 411,
    "transcript_hash": _HASH,
}
TERMINAL: dict[str, Any] = {
    "id": "pty-8d3c0f5a1b2e4967",
    "tool": "psql_session",
    "manifest_sha256": "a3f5c8e1b2d4069788796a5b4c3d2e1f06b1f0e2d3c4b5a69788796a5b4c3d2e",
    "startup_command": "psql -h localhost -U agent_user -d appdb",
    "status": "ready",
    "session_state": "ready",
    "prompt": "appdb=>",
    "interaction_count": 3,
    "max_interactions": 200,
    "opened_at": "2026-03-04T09:30:12.482113Z",
    "ended_at": None,
    "reason": None,
    "exit_code": None,
    "evidence": None,
}

RESULTS: dict[str, Any] = {
    "prompt": "appdb=>",
    "output": " count \n-------\n     3\n(1 row)",
    "session_state": "ready",
    "interaction_count": 4,
}
INTERACTION: dict[str, Any] = {
    "status": "success",
    "scan_id": "1772616612-9f2d1ea1",
    "tool": "psql_session.select_query",
    "command": "SELECT count(*) FROM logs",
    "session_id": "sess-4f1c0a9be27d3586",
    "pty": "pty-8d3c0f5a1b2e4967",
    "duration_ms": 12,
    "timestamp": "2026-03-04T09:30:12.482113Z",
    "exit_code": 0,
    "stderr": "",
    "output_file": "pty-8d3c0f5a1b2e4967/raw",
    "output_hash": _HASH,
    "output_bytes": 74,
    "truncated": False,
    "error": None,
    "results": RESULTS,
    "approval": None,
}


class Evidence(Model):
    """What is kept of a terminal that has ended: every byte that its tool said, and a transcript.

    Hashes are `sha256:` and 64 hex digits.
    """

    model_config = example(EVIDENCE)

    raw_bytes: Count
    raw_hash: str
    raw_truncated: bool = Field(description="More was said than is kept.")
    transcript_bytes: Count
    transcript_hash: str


class Terminal(Model):
    """One terminal of a session."""

    model_config = example(TERMINAL)

    id: str
    tool: str
    manifest_sha256: str = Field(description="Of the manifest that it was opened with.")
    startup_command: str
    status: Annotated[Literal["spawning", "ready", "busy", "timed_out", "terminated"], WORDS] = (
        Field(description="`timed_out` while the answer to the last line is not complete.")
    )
    session_state: str | None = Field(description="What the prompt shows of the tool's state.")
    prompt: str | None = Field(description="The last prompt, without the space at its end.")
    interaction_count: Count = Field(description="Lines that were written to the tool.")
    max_interactions: Count
    opened_at: Time
    ended_at: Time | None
    reason: str | None = Field(
        description="Why it has ended: exited, closed, idle_timeout, session_timeout, "
        "max_interactions, startup_timeout, level_changed, no_room (nothing more may be recorded), "
        "session_ended, sandbox_ended, control_plane_restarted and others."
    )
    exit_code: int | None = Field(description="Of the tool; 128 + n after signal n.")
    evidence: Evidence | None = Field(description="Null until it has ended.")


class Results(Model):
    """What the tool said, and how it stands."""

    model_config = example(RESULTS)

    prompt: str = Field(description="The prompt after it; empty where there is none.")
    output: str = Field(description="Without the echo of the line and without the prompt.")
    session_state: str
    interaction_count: Count


class Interaction(Model):
    """One line, what was decided of it, and what came back."""

    model_config = example(INTERACTION)

    status: Annotated[Literal["success", "timeout", "error", "pending"], WORDS] = Field(
        description="`timeout`: the prompt did not come in time, and `results` is what was said "
        "until then. `error`: the tool has ended, or what it said is not as its manifest says."
    )
    scan_id: str
    tool: str
    command: str
    session_id: str
    pty: str
    duration_ms: Count
    timestamp: Time
    exit_code: int = Field(description="0 for a success; the tool's where it has ended; else -1.")
    stderr: str = Field(description="Always empty: a terminal has one stream.")
    output_file: str = Field(description="Where the raw bytes are, in the evidence folder.")
    output_hash: str | None = Field(description="Of the raw bytes that came back.")
    output_bytes: Count
    truncated: bool = Field(description="More was said than `results` has.")
    error: str | None
    results: Results | None
    approval: Approval | None = Field(description="Where a person was asked.")

    @property
    def ok(self) -> bool:
        """Whether the tool answered, and is back at its prompt."""
        return self.status == "success"

    @property
    def output(self) -> str:
        """What the tool said; empty where there is nothing."""
        return "" if self.results is None else self.results.output


class Terminals(Model):
    """Every terminal that the session has, and had, oldest first."""

    model_config = example({"items": [TERMINAL], "next": None})

    items: list[Terminal]
    next: None


class TerminalBody(Body):
    """What a terminal is opened for."""

    tool: ToolName = Field(description="The name of a tool that the session lists.")


class InteractionBody(Body):
    """A line for a terminal's tool."""

    tool: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="`<tool>.<command>`: what the line is meant to be."
    )
    command: Annotated[str, Field(min_length=1, max_length=MAX_LINE)] = Field(
        description="The line, without a line break at its end."
    )
    wait: Wait = Field(
        default=0, description="Seconds to wait for a person, where the line needs one."
    )
