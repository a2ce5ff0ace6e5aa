"""What a terminal is opened with, and what decides on its lines."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from orchestrator.access.keys import Principal
from orchestrator.approvals.approval_rows import Approval
from orchestrator.sessions.session import Session
from orchestrator.terminals.framing import PromptPattern
from orchestrator.tools.gates import NamedFile
from orchestrator.tools.manifest import Manifest
from sandbox_agent.pty.sanitize import MAX_LINE_BYTES

# Line editors scroll or wrap a line that reaches the terminal's end, so no line of ours does:
# not the longest one with a prompt of 4,095 bytes, even where bytes are counted as columns.
# Programs keep a terminal's size in 16 bits with a sign.
COLUMNS = 32_767


class Shown(NamedTuple):
    """A prompt, untrimmed, and the state that the tool was in at it."""

    prompt: str
    state: str


class Needs(NamedTuple):
    """What a tool may do besides what its level's commands may: absolute paths, or programs.

    The program of its argv is understood. `writable_code`: memory that is written and executed,
    as just-in-time compilers have it; `ptrace`: tracing what it started.
    """

    execute: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    writable_code: bool = False
    ptrace: bool = False


class TerminalSpec(NamedTuple):
    """A tool as its manifest has it, for one terminal; the manifest may change meanwhile.

    `infer_state` gives the state at a prompt, from what was shown before and the name of the
    command that led there (None: the first prompt). `result_problem` says what of a result does
    not hold to the manifest's schema, without repeating it.
    """

    tool: str
    manifest_sha256: str
    startup_command: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    ready: PromptPattern
    line_terminator: str
    sanitize: tuple[str, ...]
    commands: tuple[str, ...]
    output_max_bytes: int
    output_wait_ms: int
    startup_timeout_seconds: int
    idle_timeout_seconds: int
    session_timeout_seconds: int
    max_interactions: int
    infer_state: Callable[[Shown | None, str, str | None], str]
    result_problem: Callable[[Mapping[str, Any]], str | None]
    # What decides on its lines; None where whoever opened it does.
    manifest: Manifest | None = None
    rows: int = 24
    columns: int = COLUMNS
    needs: Needs = Needs()
    # Whether what the tool says is kept, and a further name of its evidence.
    capture: bool = True
    evidence_name: str | None = None


class SentLine(NamedTuple):
    """A line as a client has sent it, and for which command of the tool: `psql.drop_table`."""

    principal: Principal
    session: Session
    terminal_id: str
    tool: str
    text: str


class Situation(NamedTuple):
    """What a decision on a line may depend on.

    The count is of lines that were written before; `line_bytes` is what the tool takes now.
    """

    session_state: str
    interaction_count: int
    line_bytes: int = MAX_LINE_BYTES


class LineVerdict(Protocol):
    """What was decided of one line."""

    @property
    def decision(self) -> str:
        """allow, deny or pending."""

    @property
    def rule(self) -> str:
        """The rule that decided."""

    @property
    def message(self) -> str:
        """Why, for the client."""

    @property
    def command(self) -> str:
        """The strictest command that the line is; empty when it is none."""

    @property
    def matched(self) -> tuple[str, ...]:
        """All commands that the line is."""

    @property
    def scope(self) -> str | None:
        """ "OK" when a target was checked."""

    @property
    def files(self) -> tuple[NamedFile, ...]:
        """The files whose content a person approves with the line."""


Decide = Callable[[Situation], LineVerdict]


class Copies(NamedTuple):
    """A line as it is written, with paths of copies, and what is in these by path."""

    text: str
    files: Mapping[str, bytes]


class LineApproval(NamedTuple):
    """What a person has said to this very line of this terminal: yes, or nothing yet (`pending`).

    `use` is called when nothing but writing is left to be done, and raises ConflictError where
    another call has written the line. `settle` says afterwards whether it may have been written.
    `copies` are of the files that are approved with it.
    """

    approval: Approval
    use: Callable[[], None]
    settle: Callable[[bool], None]
    copies: Copies | None = None


class NotApprovedError(Exception):
    """A line that a person must approve may not be written; the message says why."""


# Asks a person about a line that waits for one. Raises: NotApprovedError.
Ask = Callable[[LineVerdict], Awaitable[LineApproval]]
