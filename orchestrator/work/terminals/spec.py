"""How a terminal is opened, and how its lines are decided."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from orchestrator.rules.access.keys import Principal
from orchestrator.rules.tools.gates import Verdict
from orchestrator.rules.tools.manifest import Manifest
from orchestrator.rules.tools.states import PromptState
from orchestrator.state.session import Session
from orchestrator.work.approvals.approval_rows import Approval
from orchestrator.work.terminals.framing import PromptPattern
from sandbox_agent.decide.sanitize import MAX_LINE_BYTES

# Line editors scroll or wrap a line that reaches the terminal's end. No line of ours does: not even
# the longest one after a prompt of 4,095 bytes, with bytes counted as columns. Programs store a
# terminal's size in signed 16-bit numbers.
COLUMNS = 32_767


class Needs(NamedTuple):
    """What a tool needs beyond its level's commands: absolute paths, or programs.

    The program of its argv is implied. `writable_code`: memory that is writable and executable, for
    just-in-time compilers; `ptrace`: tracing its children.
    """

    execute: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    writable_code: bool = False
    ptrace: bool = False


class TerminalSpec(NamedTuple):
    """A tool of a manifest, for one terminal; the manifest may change meanwhile.

    A shell has no `commands` and no manifest, and nothing here concerns its lines.

    `infer_state` returns the state at a prompt, from what was shown before and the name of the
    command that led there (None: the first prompt). `result_problem` says how a result violates the
    manifest's schema, without repeating it.
    """

    tool: str
    manifest_sha256: str | None
    startup_command: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    ready: PromptPattern
    line_terminator: str
    sanitize: tuple[str, ...]
    commands: tuple[str, ...] | None
    output_max_bytes: int
    output_wait_ms: int
    startup_timeout_seconds: int
    idle_timeout_seconds: int
    session_timeout_seconds: int
    max_interactions: int
    infer_state: Callable[[PromptState | None, str, str | None], str]
    result_problem: Callable[[Mapping[str, Any]], str | None]
    # Decides about its lines; None if the code that opened it does.
    manifest: Manifest | None = None
    rows: int = 24
    columns: int = COLUMNS
    needs: Needs = Needs()
    # Whether the program's raw output is kept, whether it is recorded with its times, and an
    # additional name of its evidence.
    capture: bool = True
    recorded: bool = True
    evidence_name: str | None = None
    # The directory where a shell begins that runs commands one by one; None for all others.
    kept_cwd: str | None = None
    # Whether such a shell is bash; otherwise it may be any POSIX shell.
    kept_bash: bool = True

    @property
    def is_shell(self) -> bool:
        """Whether any bytes may be written to it."""
        return self.commands is None


class SentLine(NamedTuple):
    """A line that a client sent, and the tool's command for it: `psql.drop_table`."""

    principal: Principal
    session: Session
    terminal_id: str
    tool: str
    text: str


class Situation(NamedTuple):
    """The facts on which a decision about a line may depend.

    The count is of lines written before; `line_bytes` is the longest line that the tool accepts
    now.
    """

    session_state: str
    interaction_count: int
    line_bytes: int = MAX_LINE_BYTES


Decide = Callable[[Situation], Verdict]


class Copies(NamedTuple):
    """A line as it is written, with paths of copies, and their contents by path."""

    text: str
    files: Mapping[str, bytes]


class LineApproval(NamedTuple):
    """A person's decision about exactly this line of this terminal: yes, or none yet (`pending`).

    `use` is called immediately before writing, and raises ConflictError if another call has written
    the line. `settle` is told afterwards whether it may have been written. `copies` are of the
    files that are approved with it.
    """

    approval: Approval
    use: Callable[[], None]
    settle: Callable[[bool], None]
    copies: Copies | None = None


class NotApprovedError(Exception):
    """A line that needs an approval may not be written; the message says why."""


# Requests a person's decision about a line. Raises: NotApprovedError.
Ask = Callable[[Verdict], Awaitable[LineApproval]]
