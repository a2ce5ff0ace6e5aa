"""What the API tells, as frozen dataclasses; times are aware `datetime`s in UTC."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paddock.client.parsing import Result


@dataclass(frozen=True, kw_only=True)
class Receipt(Result):
    """The audit event that has something on record: its `seq` in the chain, and its hash."""

    seq: int
    hash: str


@dataclass(frozen=True, kw_only=True)
class Start:
    """The command runs."""

    command_id: str


@dataclass(frozen=True, kw_only=True)
class Output(Result):
    """A piece of output; `stream` is `stdout` or `stderr`, invalid UTF-8 is replaced.

    `offset` counts the bytes of both streams that came before; in a stream of events, `cut` says
    how many of those right before are not kept.
    """

    stream: str
    offset: int
    text: str
    cut: int = 0


@dataclass(frozen=True, kw_only=True)
class CommandEvidence(Result):
    """What was kept of a oneshot tool's command: the file that it wrote, or what it printed.

    `sha256` is None, and `reason` says why, where nothing is kept; `left` says that something is
    at the file's place in the workspace still.
    """

    bytes: int
    sha256: str | None
    truncated: bool
    reason: str | None
    left: bool


@dataclass(frozen=True, kw_only=True)
class Exit(Result):
    """What a command came to.

    Attributes:
        exit_code: 128 + n after signal n; None when it is not known.
        signal: name of the signal that ended it.
        truncated: more was printed than was kept.
        cut_bytes: what was not kept of it, from the middle; in the background, the beginning.
        stored_bytes: of long output, so much from the beginning stays readable while the session
            lives: `processes.get` and `processes.follow` give it.
        output_bytes: all that was printed.
        leftover_killed: processes that it had left behind.
        reason: why it was ended, where it did not end by itself; or which limit of the sandbox
            struck while it ran, where it failed: `oom`, `pids` or `disk`.
        error: why it could not run.
        evidence: of a oneshot tool whose manifest keeps evidence, what is kept.
    """

    command_id: str
    exit_code: int | None
    signal: str | None
    truncated: bool
    cut_bytes: int
    stored_bytes: int
    output_bytes: int
    timed_out: bool
    leftover_killed: int
    duration_ms: int
    reason: str | None
    error: str | None
    audit: Receipt
    evidence: CommandEvidence | None = None

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with 0."""
        return self.exit_code == 0


@dataclass(frozen=True, kw_only=True)
class ExecResult(Exit):
    """What a foreground command came to, and what it printed; invalid UTF-8 is replaced."""

    stdout: str
    stderr: str


ExecEvent = Start | Output | Exit


@dataclass(frozen=True, kw_only=True)
class Command(Result):
    """One command; `status` is `running`, `exited`, or `lost` when its end is not known."""

    command_id: str
    argv: tuple[str, ...]
    background: bool
    status: str
    started_at: datetime | None  # None until its start is on record
    exit: Exit | None

    @classmethod
    def adapted(cls, value: dict[str, Any]) -> dict[str, Any]:
        """An end has its command's id, as it has in a stream."""
        ended = value.get("exit")
        if isinstance(ended, dict):
            ended = {"command_id": value.get("command_id"), **ended}
        return {**value, "started_at": value.get("started_at") or None, "exit": ended}


@dataclass(frozen=True, kw_only=True)
class CommandOutput(Command):
    """A command with its output from an offset on.

    `next` is the offset that goes on from here; `lost` says that the sandbox does not
    keep this output any more.
    """

    output: tuple[Output, ...]
    next: int
    lost: bool


@dataclass(frozen=True, kw_only=True)
class Limits(Result):
    """What a session may use: cores, bytes, processes."""

    cpus: float
    memory_bytes: int
    pids: int
    tmp_bytes: int
    shm_bytes: int
    workspace_bytes: int


@dataclass(frozen=True, kw_only=True)
class Entry(Result):
    """What a directory holds.

    `type` is `file`, `directory`, `symlink` or `other`; `size` in bytes; `mode` four octal
    digits; `modified` in seconds since 1970; `target` where a symbolic link leads, None where
    that is not UTF-8. Bytes of a name that are not UTF-8 are shown backslash-escaped.
    """

    path: str
    type: str
    size: int
    mode: str
    modified: float
    target: str | None = None

    @property
    def permissions(self) -> int:
        """The nine bits of `mode`; 0o644 where it is no octal number."""
        octal = re.fullmatch(r"[0-7]+", self.mode)
        return int(self.mode, 8) & 0o777 if octal else 0o644


@dataclass(frozen=True, kw_only=True)
class Listing(Result):
    """A directory's entries, sorted by path; `truncated` when there are more than is told."""

    items: tuple[Entry, ...]
    truncated: bool


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """What a directory's transfer came to; `skipped` names what can't travel."""

    files: int
    bytes: int
    skipped: tuple[str, ...]
    links: int = 0


@dataclass(frozen=True, kw_only=True)
class AuditEvent(Result):
    """One event of the audit ledger.

    `id` counts in all chains, `seq` in the session's; `incarnation` says which session of that id
    it is, from 1; `source` is `control-plane`, `agent` or `engine`; `decision` is `allow`,
    `deny`, `pending` or None.
    """

    id: int
    seq: int
    time: datetime
    session_id: str | None
    incarnation: int | None = None
    turn: int | None
    source: str
    actor: str
    operation: str
    decision: str | None
    rule: str | None
    permission_level: str | None
    workspace_root: str | None
    args: dict[str, Any]
    result: dict[str, Any] | None
    error: str | None
    duration_ms: int | None
    tokens_used: int | None
    agent: dict[str, Any] | None
    prev_hash: str
    hash: str


@dataclass(frozen=True, kw_only=True)
class AuditStats(Result):
    """Counts over a session's chain."""

    total_operations: int
    operation_counts: dict[str, int]
    decisions: dict[str, int]
    total_tokens: int


@dataclass(frozen=True, kw_only=True)
class Verdict(Result):
    """Whether a chain is whole.

    `index` (from 0) and `reason` are of the first event that is not as it was recorded,
    `seq` and `hash` of the last one that is.
    """

    ok: bool
    index: int | None
    reason: str | None
    seq: int
    hash: str


@dataclass(frozen=True, kw_only=True)
class Archived(Result):
    """A chain in a file of the archive; `seq` and `hash` are those of its last event."""

    session_key: str
    session_id: str
    owner: str
    file: str
    sha256: str
    bytes: int
    seq: int
    hash: str
    archived_at: datetime


@dataclass(frozen=True, kw_only=True)
class ArchiveRun(Result):
    """What was archived, and why what could not be was not, by session; `more`: ask again."""

    items: tuple[Archived, ...]
    refused: dict[str, str]
    more: bool


@dataclass(frozen=True, kw_only=True)
class LevelRequirements(Result):
    """What the host must offer, or sessions are refused; `landlock` 0: not needed."""

    landlock: int
    seccomp: bool
    mounts: bool
    quota: bool


@dataclass(frozen=True, kw_only=True)
class LevelRates(Result):
    """The most that one session moves, in bytes per second; None: whatever it can."""

    disk_read: int | None
    disk_write: int | None
    network_receive: int | None
    network_send: int | None


@dataclass(frozen=True, kw_only=True)
class LevelConfinement(Result):
    """What the kernel holds a level's commands to.

    With `paths` only the commands' programs are executable and only what they need readable,
    and what `read` and `execute` name of the image.
    """

    paths: bool
    read: tuple[str, ...]
    execute: tuple[str, ...]
    writable_code: bool
    ptrace: bool
    record_execs: bool


@dataclass(frozen=True, kw_only=True)
class Level(Result):
    """A permission level. `commands` and `environment` are None for any; times in seconds.

    `rank` is the order of levels; `risk_tier` is `info`, `low`, `medium`,
    `high` or `critical`.
    """

    name: str
    rank: int
    risk_tier: str
    commands: tuple[str, ...] | None
    network: str
    limits: Limits
    timeout_default: int
    timeout_max: int
    output_bytes: int
    audit_bytes: int
    noexec: bool
    guard_writes: bool
    rates: LevelRates
    environment: tuple[str, ...] | None
    requires: LevelRequirements
    confinement: LevelConfinement
    home: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Layer(Result):
    """One of the layers that would stop something; `remedy` says how to allow it."""

    layer: str
    message: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Explanation(Result):
    """What would come of a command or path, by its words.

    `remedy` is how to do it otherwise, None where it is allowed. `layers` are all that would
    stop it, in that order: what is allowed to start may be stopped by the kernel.
    """

    allow: bool
    verdict: str
    rule: str | None
    layer: str
    message: str
    remedy: str | None
    layers: tuple[Layer, ...]


@dataclass(frozen=True, kw_only=True)
class Tool(Result):
    """One command of a tool, as a session sees it.

    `input_schema` is the JSON Schema of what it takes; `rule` names the gate that no line could
    pass, None where the session could be `allowed` to use it; `sha256` is the manifest's.
    """

    name: str
    tool: str
    command: str
    description: str
    pattern: str
    input_schema: dict[str, Any]
    risk_tier: str
    human_approval: bool
    allowed: bool
    rule: str | None
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Check(Result):
    """One thing that sessions need."""

    ok: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class Readiness(Result):
    """Whether sessions can be created: `status` is `ready` or `not ready`."""

    status: str
    checks: dict[str, Check]

    @property
    def ready(self) -> bool:
        """Whether they can."""
        return self.status == "ready"
