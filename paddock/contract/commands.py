"""Commands, their output and their results.

Output is text; where that is not all of the bytes, they come as base64, too.
"""

import base64
from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.contract.approvals import APPROVAL, Approval
from paddock.contract.base import WORDS, Count, Model, Sha256, Time, example
from paddock.contract.problem import Problem

_HASH = "a3f5c8e1b2d4069788796a5b4c3d2e1f06b1f0e2d3c4b5a69788796a5b4c3d2e"
_ID = "8d3c0f5a1b2e4967"
_TIME = "2026-03-04T09:30:12.482113Z"
EXIT: dict[str, Any] = {
    "exit_code": 0,
    "signal": None,
    "truncated": False,
    "cut_bytes": 0,
    "stored_bytes": 0,
    "output_bytes": 14,
    "timed_out": False,
    "leftover_killed": 0,
    "duration_ms": 3,
    "reason": None,
    "error": None,
    "rule": None,
    "evidence": None,
    "audit": {"seq": 3, "hash": _HASH},
}
_DATA = "The bytes, if some of them are not UTF-8 and are replaced in `text`; otherwise absent."
_PRINTED_AT = (
    "When the agent read the first byte of it, within 10 ms; absent if that is not known any more, "
    "as after a change of the level."
)
COMMAND: dict[str, Any] = {
    "command_id": _ID,
    "argv": ["sleep", "60"],
    "background": True,
    "status": "running",
    "started_at": _TIME,
    "exit": None,
}


def _printed(text: str, encoded: str | None) -> bytes:
    """The bytes that a command printed."""
    return text.encode() if encoded is None else base64.b64decode(encoded)


class AuditPosition(Model):
    """The audit event that records this."""

    seq: int = Field(ge=1)
    hash: Sha256


class CommandEvidence(Model):
    """The evidence of a oneshot tool's command: the file that it wrote, or its output."""

    bytes: Count
    sha256: str | None = Field(description="`sha256:…` of the evidence; null: none was kept.")
    truncated: bool = Field(description="More was printed than is kept.")
    reason: str | None = Field(description="Why nothing is kept.")
    left: bool = Field(
        description="Something could not be removed from the file's place in the workspace."
    )


class Exit(Model):
    """The result of a command."""

    model_config = example(EXIT)

    exit_code: int | None = Field(description="128 + n after signal n; null if unknown.")
    signal: str | None = Field(description="The signal that ended it.")
    truncated: bool = Field(description="More was printed than was kept.")
    cut_bytes: Count = Field(
        description="Bytes that were not kept: of a foreground command from the middle, in the "
        "background from the beginning."
    )
    stored_bytes: Count = Field(
        description="For long output, the bytes from the beginning that stay readable, by reading "
        "the process with `after`, for the session's life; 0 if nothing was cut. A change of the "
        "level may leave less."
    )
    output_bytes: Count = Field(description="All bytes printed.")
    timed_out: bool
    leftover_killed: Count = Field(
        description="Processes that it left behind, and that were killed."
    )
    duration_ms: Count
    reason: str | None = Field(
        description="Why it was ended, unless it ended by itself; or, if it failed, the limit "
        "of the sandbox that was hit while it ran: `oom`, `pids`, `disk`."
    )
    error: str | None = Field(description="Why it could not run.")
    rule: str | None = Field(description="The rule that refused it inside the sandbox.")
    evidence: CommandEvidence | None = Field(
        description="For a oneshot tool whose manifest keeps evidence, once it is kept; "
        "null after a restart of the control plane."
    )
    audit: AuditPosition

    @property
    def ok(self) -> bool:
        """Whether the command ended by itself with exit code 0."""
        return self.exit_code == 0


class _OfCommand(Model):
    command_id: str


class CommandResult(Exit, _OfCommand):
    """The result and the output of a foreground command; invalid UTF-8 is replaced.

    A stream in which something was replaced has its bytes, too. Of output above the limit, the
    first and the last half are kept, with the number of bytes cut between them.
    """

    SPARSE = True

    model_config = example({"command_id": _ID, **EXIT, "stdout": "notes.txt  src\n", "stderr": ""})

    stdout: str
    stderr: str
    stdout_base64: str | None = Field(
        default=None, description="The bytes of `stdout`; absent if they are its UTF-8."
    )
    stderr_base64: str | None = Field(
        default=None, description="The bytes of `stderr`; absent if they are its UTF-8."
    )

    @property
    def stdout_bytes(self) -> bytes:
        """What was printed to standard output."""
        return _printed(self.stdout, self.stdout_base64)

    @property
    def stderr_bytes(self) -> bytes:
        """What was printed to standard error."""
        return _printed(self.stderr, self.stderr_base64)


class Command(Model):
    """One command of a session."""

    model_config = example(COMMAND)

    command_id: str
    argv: list[str]
    background: bool
    status: Annotated[Literal["running", "exited", "lost"], WORDS] = Field(
        description="`lost` if its end is unknown."
    )
    started_at: Time | Literal[""] = Field(description="Empty until its start is recorded.")
    exit: Exit | None = Field(description="Null while it runs.")


class PendingCommand(Model):
    """A oneshot tool's command that waits for approval; the same request again asks again."""

    model_config = example({"status": "pending", "approval": APPROVAL})

    status: Literal["pending"]
    approval: Approval


class Commands(Model):
    """All running commands and the latest ended ones, oldest first."""

    model_config = example({"items": [COMMAND], "next": None})

    items: list[Command]
    next: None


class Output(Model):
    """A piece of output; `offset` counts the bytes of both streams together."""

    SPARSE = True

    stream: Annotated[Literal["stdout", "stderr"], WORDS]
    offset: Count
    text: str
    data_base64: str | None = Field(default=None, description=_DATA)
    time: Time | None = Field(default=None, description=_PRINTED_AT)

    @property
    def data(self) -> bytes:
        """What was printed."""
        return _printed(self.text, self.data_base64)


class CommandOutput(Command):
    """A command with its output from an offset on."""

    SPARSE = True

    model_config = example(
        {
            **COMMAND,
            "output": [{"stream": "stdout", "offset": 0, "text": "ready\n", "time": _TIME}],
            "next": 6,
            "lost": False,
        }
    )

    output: list[Output]
    next: Count = Field(description="The `after` to continue with.")
    lost: bool = Field(description="This output is no longer available.")


class InputTaken(Model):
    """Input that a command accepted."""

    model_config = example({"command_id": _ID, "bytes": 4, "closed": False})

    command_id: str
    bytes: Count
    closed: bool


class SignalSent(Model):
    """The signal that was sent, by number."""

    model_config = example({"command_id": _ID, "signal": 15})

    command_id: str
    signal: int


class StartData(Model):
    """The command has started."""

    SPARSE = True

    model_config = example({"command_id": _ID, "time": _TIME})

    command_id: str
    time: Time | None = Field(default=None, description="When; absent if it is not known.")


class OutputData(Model):
    """Text that a command printed; `offset` counts the bytes of both streams together."""

    SPARSE = True

    model_config = example({"offset": 0, "text": "notes.txt  src\n", "time": _TIME})

    offset: Count
    text: str
    data_base64: str | None = Field(default=None, description=_DATA)
    time: Time | None = Field(default=None, description=_PRINTED_AT)
    cut: Count = Field(
        default=0,
        description="Bytes directly before it that were not kept; absent if none.",
    )


class ExitData(Exit, _OfCommand):
    """The command's result: the last event."""

    SPARSE = True

    model_config = example({"command_id": _ID, **EXIT, "time": _TIME})

    time: Time | None = Field(default=None, description="When; absent if it is not known.")


# The events of a command's stream, with the model of their `data`.
COMMAND_EVENTS: dict[str, type[Model]] = {
    "start": StartData,
    "stdout": OutputData,
    "stderr": OutputData,
    "exit": ExitData,
    "error": Problem,
}
