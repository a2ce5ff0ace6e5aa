"""Tools as their manifests have them: what starts, and every line that may be sent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.tools.arguments import Argument
from orchestrator.tools.patterns import Pattern

RISK_TIERS = ("info", "low", "medium", "high", "critical")  # in order
# Always for a person to approve.
CRITICAL = "critical"
# Of a command of a tool whose lines are parsed: its pattern alone says what it is.
UNPARSED = "unparsed"


@dataclass(frozen=True, slots=True)
class ToolCommand:
    """A permitted operation: a line of input whose whole text `pattern` matches."""

    name: str
    pattern: Pattern
    description: str
    risk_tier: str
    human_approval: bool
    extract_target: bool
    state: str | None  # the session's state after it
    args: tuple[Argument, ...]
    # What its statements may do and call, where the tool's lines are parsed.
    statements: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CedarNames:
    """What Cedar policies know a tool by; `principal` is None for the session's role."""

    resource: str
    action: str
    principal: str | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A tool, and everything that may be done with it."""

    name: str
    description: str
    risk_tier: str
    version: str | None
    cedar: CedarNames | None
    startup_command: str
    argv: tuple[str, ...]  # the same, split as a shell would
    ready_pattern: Pattern
    startup_timeout_seconds: int
    idle_timeout_seconds: int
    session_timeout_seconds: int
    max_interactions: int
    sanitize_injection: bool
    output_max_bytes: int
    output_wait_ms: int
    line_terminator: str
    dialect: str | None  # of the SQL that its lines are; None: they are not parsed
    states: tuple[tuple[Pattern, str], ...]  # by prompt; the first match counts
    commands: Mapping[str, ToolCommand]
    capture: bool  # what the tool says is kept
    evidence_name: str | None  # a further name of its evidence, with {session_id} in it
    output_schema: Mapping[str, Any] | None
    allow_ptrace: bool  # it needs a level that allows ptrace
    mounts: tuple[str, ...]  # names of the operator's list
    env: Mapping[str, str]
    read: tuple[str, ...]  # paths that it needs besides those of the level
    execute: tuple[str, ...]
    writable_code: bool  # memory that is written and executed
    sha256: str  # of the file: terminals are pinned to it
    source: str = field(repr=False)  # the file's text

    @property
    def declared_states(self) -> tuple[str, ...] | None:
        """The states that the output schema allows; None for any."""
        return declared_states(self.output_schema)

    def tool_name(self, command: str) -> str:
        """The id of one of its commands as a tool."""
        return f"{self.name}.{command}"


def declared_states(schema: Mapping[str, Any] | None) -> tuple[str, ...] | None:
    """The states that an output schema allows; None for any."""
    state = (schema or {}).get("properties", {}).get("session_state")
    known = state.get("enum") if isinstance(state, Mapping) else None
    return None if known is None else tuple(known)
