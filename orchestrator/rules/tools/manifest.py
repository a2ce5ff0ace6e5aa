"""Tools as their manifests define them: the program to start, and every line that may be sent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.rules.tools.arguments import Argument
from orchestrator.rules.tools.patterns import Pattern

RISK_TIERS = ("info", "low", "medium", "high", "critical")  # in ascending order
# Always needs a person's approval.
CRITICAL = "critical"
# For a command of a tool whose lines are parsed: only its pattern defines it.
UNPARSED = "unparsed"


@dataclass(frozen=True, slots=True)
class ToolCommand:
    """A permitted operation: `pattern` must match the whole line of input."""

    name: str
    pattern: Pattern
    description: str
    risk_tier: str
    human_approval: bool
    extract_target: bool
    state: str | None  # the session's state after the command
    args: tuple[Argument, ...]
    # What its statements may do and call, if the tool's lines are parsed.
    statements: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CedarNames:
    """The names of a tool in Cedar policies; `principal` is None for the session's role."""

    resource: str
    action: str
    principal: str | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A tool and every operation that it permits."""

    name: str
    description: str
    risk_tier: str
    version: str | None
    cedar: CedarNames | None
    startup_command: str
    argv: tuple[str, ...]  # the same, split into words like in a shell
    ready_pattern: Pattern
    startup_timeout_seconds: int
    idle_timeout_seconds: int
    session_timeout_seconds: int
    max_interactions: int
    sanitize_injection: bool
    output_max_bytes: int
    output_wait_ms: int
    line_terminator: str
    dialect: str | None  # the SQL dialect of its lines; None: lines are not parsed
    states: tuple[tuple[Pattern, str], ...]  # by prompt; the first match counts
    commands: Mapping[str, ToolCommand]
    capture: bool  # whether the tool's output is kept
    evidence_name: str | None  # an additional name of its evidence, with {session_id} in it
    output_schema: Mapping[str, Any] | None
    allow_ptrace: bool  # whether it needs a level that allows ptrace
    mounts: tuple[str, ...]  # names on the operator's list
    env: Mapping[str, str]
    read: tuple[str, ...]  # paths that it needs in addition to the level's
    execute: tuple[str, ...]
    writable_code: bool  # memory that is both writable and executable
    sha256: str  # of the file, to which terminals are pinned
    source: str = field(repr=False)  # the file's text

    @property
    def declared_states(self) -> tuple[str, ...] | None:
        """The states that the output schema allows; None for any."""
        return declared_states(self.output_schema)

    def tool_name(self, command: str) -> str:
        """The tool id of one of its commands."""
        return f"{self.name}.{command}"


def declared_states(schema: Mapping[str, Any] | None) -> tuple[str, ...] | None:
    """The states that an output schema allows; None for any."""
    state = (schema or {}).get("properties", {}).get("session_state")
    known = state.get("enum") if isinstance(state, Mapping) else None
    return None if known is None else tuple(known)
