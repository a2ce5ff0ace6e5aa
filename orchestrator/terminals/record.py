"""What clients see of terminals and interactions. Pure."""

import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from orchestrator.terminals.evidence import RAW_NAME
from orchestrator.terminals.spec import TerminalSpec

# The exit code of what has none: it timed out, failed or was refused.
NO_EXIT_CODE = -1


def opened(terminal_id: str, spec: TerminalSpec, opened_at: str) -> dict[str, Any]:
    """A terminal's object at its start; the other members come later."""
    return {
        "id": terminal_id,
        "tool": spec.tool,
        "manifest_sha256": spec.manifest_sha256,
        "startup_command": spec.startup_command,
        "status": "spawning",
        "session_state": None,
        "prompt": None,
        "interaction_count": 0,
        "max_interactions": spec.max_interactions,
        "opened_at": opened_at,
        "ended_at": None,
        "reason": None,
        "exit_code": None,
        "evidence": None,
    }


def results(prompt: str, output: str, session_state: str, count: int) -> dict[str, Any]:
    """What a manifest's output schema is about; the prompt without the space at its end."""
    return {
        "prompt": prompt.rstrip(),
        "output": output,
        "session_state": session_state,
        "interaction_count": count,
    }


def envelope(
    *,
    status: str,
    tool: str,
    command: str,
    session_id: str,
    terminal_id: str,
    started: float,
    exit_code: int,
    output_hash: str | None = None,
    output_bytes: int = 0,
    truncated: bool = False,
    error: str | None = None,
    results: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """An interaction and its evidence; `started` in seconds since the epoch.

    `output_hash` is of the raw bytes; they are in the terminal's `output_file`.
    """
    return {
        "status": status,
        "scan_id": f"{int(started)}-{secrets.token_hex(4)}",
        "tool": tool,
        "command": command,
        "session_id": session_id,
        "pty": terminal_id,
        "duration_ms": max(0, int((time.time() - started) * 1000)),
        "timestamp": datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "exit_code": exit_code,
        "stderr": "",
        "output_file": f"{terminal_id}/{RAW_NAME}",
        "output_hash": output_hash,
        "output_bytes": output_bytes,
        "truncated": truncated,
        "error": error,
        "results": None if results is None else dict(results),
    }
