"""Terminals: interactive tools of a session."""

from typing import Any, Literal

from pydantic import Field

from api.models.base import Count, Model, Time, example

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
    status: Literal["spawning", "ready", "busy", "timed_out", "terminated"] = Field(
        description="`timed_out` while the answer to the last line is not complete."
    )
    session_state: str | None = Field(description="What the prompt shows of the tool's state.")
    prompt: str | None = Field(description="The last prompt, without the space at its end.")
    interaction_count: Count = Field(description="Lines that were written to the tool.")
    max_interactions: Count
    opened_at: Time
    ended_at: Time | None
    reason: str | None = Field(
        description="Why it has ended: exited, closed, idle_timeout, session_timeout, "
        "max_interactions, startup_timeout, level_changed, session_ended, sandbox_ended, "
        "control_plane_restarted and others."
    )
    exit_code: int | None = Field(description="Of the tool; 128 + n after signal n.")
    evidence: Evidence | None = Field(description="Null until it has ended.")


class Terminals(Model):
    """Every terminal that the session has, and had, oldest first."""

    model_config = example({"items": [TERMINAL], "next": None})

    items: list[Terminal]
    next: None
