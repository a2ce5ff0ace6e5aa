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
    "recording_bytes": 2214,
    "recording_hash": _HASH,
    "recording_truncated": False,
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
    "kind": "tool",
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
    """The evidence of an ended terminal: what its program printed, a transcript, a recording.

    A shell's output is in its recording only. Hashes are `sha256:` and 64 hex digits.
    """

    model_config = example(EVIDENCE)

    raw_bytes: Count
    raw_hash: str
    raw_truncated: bool = Field(description="More was printed than is kept.")
    transcript_bytes: Count
    transcript_hash: str
    recording_bytes: Count
    recording_hash: str | None = Field(description="Null if it was not recorded.")
    recording_truncated: bool = Field(description="The recording is incomplete.")


class Terminal(Model):
    """One terminal of a session."""

    model_config = example(TERMINAL)

    id: str
    tool: str
    manifest_sha256: str | None = Field(
        description="Of the manifest with which it was opened; null for a shell."
    )
    startup_command: str
    status: Annotated[Literal["spawning", "ready", "busy", "timed_out", "terminated"], WORDS] = (
        Field(description="`timed_out` while the answer to the last line is incomplete.")
    )
    session_state: str | None = Field(description="The tool's state, as its prompt shows it.")
    prompt: str | None = Field(description="The last prompt, without the space at its end.")
    interaction_count: Count = Field(description="Lines that were written to the tool.")
    max_interactions: Count = Field(description="0 for a shell, which counts none.")
    opened_at: Time
    ended_at: Time | None
    reason: str | None = Field(
        description="Why it has ended: exited, closed, idle_timeout, session_timeout, "
        "max_interactions, startup_timeout, level_changed, no_room (nothing more may be recorded), "
        "session_ended, sandbox_ended, control_plane_restarted, key_revoked and others."
    )
    exit_code: int | None = Field(description="The tool's exit code; 128 + n after signal n.")
    evidence: Evidence | None = Field(description="Null until it has ended.")
    kind: Annotated[Literal["tool", "shell"], WORDS]


class Results(Model):
    """The tool's output and its state."""

    model_config = example(RESULTS)

    prompt: str = Field(description="The prompt after the output; empty if there is none.")
    output: str = Field(description="Without the echo of the line and the prompt.")
    session_state: str
    interaction_count: Count


class Interaction(Model):
    """One line, the decision about it, and the answer."""

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
    exit_code: int = Field(
        description="0 for a success; the tool's exit code if it has ended; otherwise -1."
    )
    stderr: str = Field(description="Always empty: a terminal has one stream.")
    output_file: str = Field(description="The file with the raw bytes in the evidence folder.")
    output_hash: str | None = Field(description="Of the raw bytes of the answer.")
    output_bytes: Count
    truncated: bool = Field(description="More was printed than `results` contains.")
    error: str | None
    results: Results | None
    approval: Approval | None = Field(description="Set if a person was asked.")

    @property
    def ok(self) -> bool:
        """Whether the tool answered and is back at its prompt."""
        return self.status == "success"

    @property
    def output(self) -> str:
        """The tool's output; empty if there is none."""
        return "" if self.results is None else self.results.output


class Terminals(Model):
    """All past and present terminals of the session, oldest first."""

    model_config = example({"items": [TERMINAL], "next": None})

    items: list[Terminal]
    next: None


class TerminalBody(Body):
    """A request to open a terminal."""

    tool: ToolName = Field(description="The name of a tool that the session lists.")


class InteractionBody(Body):
    """A line for a terminal's tool."""

    tool: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="`<tool>.<command>`: the tool's command for this line."
    )
    command: Annotated[str, Field(min_length=1, max_length=MAX_LINE)] = Field(
        description="The line, without a line break at its end."
    )
    wait: Wait = Field(
        default=0, description="Seconds to wait for a person, if the line needs approval."
    )
