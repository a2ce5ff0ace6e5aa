"""Commands: what they are, what they print, what they come to."""

from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.contract.approvals import APPROVAL, Approval
from paddock.contract.base import WORDS, Count, Model, Sha256, Time, example
from paddock.contract.problem import Problem

_HASH = "a3f5c8e1b2d4069788796a5b4c3d2e1f06b1f0e2d3c4b5a69788796a5b4c3d2e"
_ID = "8d3c0f5a1b2e4967"
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
COMMAND: dict[str, Any] = {
    "command_id": _ID,
    "argv": ["sleep", "60"],
    "background": True,
    "status": "running",
    "started_at": "2026-03-04T09:30:12.482113Z",
    "exit": None,
}


class AuditPosition(Model):
    """The audit event that has this on record."""

    seq: int = Field(ge=1)
    hash: Sha256


class CommandEvidence(Model):
    """What was kept of a oneshot tool's command: the file that it wrote, or what it printed."""

    bytes: Count
    sha256: str | None = Field(description="`sha256:…` of what is kept; null: nothing is.")
    truncated: bool = Field(description="More was printed than is kept.")
    reason: str | None = Field(description="Why nothing is kept.")
    left: bool = Field(description="Something is left at the file's place in the workspace.")


class Exit(Model):
    """What a command came to."""

    model_config = example(EXIT)

    exit_code: int | None = Field(description="128 + n after signal n; null when it is not known.")
    signal: str | None = Field(description="The signal that ended it.")
    truncated: bool = Field(description="More was printed than was kept.")
    cut_bytes: Count = Field(
        description="What was not kept of it: of a foreground command from the middle, in the "
        "background from the beginning."
    )
    stored_bytes: Count = Field(
        description="Of long output, so much from the beginning stays readable with `after`, by "
        "reading the process, for the session's life; 0 of output that was not cut. A change of "
        "the level may leave less."
    )
    output_bytes: Count = Field(description="All that was printed.")
    timed_out: bool
    leftover_killed: Count = Field(description="Processes that it had left behind.")
    duration_ms: Count
    reason: str | None = Field(
        description="Why it was ended, where it did not end by itself. Or which limit of the "
        "sandbox struck while it ran, where it failed: `oom`, `pids`, `disk`."
    )
    error: str | None = Field(description="Why it could not run.")
    rule: str | None = Field(description="The rule that refused it inside the sandbox.")
    evidence: CommandEvidence | None = Field(
        description="Of a oneshot tool whose manifest keeps evidence, once it is kept."
    )
    audit: AuditPosition

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with 0."""
        return self.exit_code == 0


class _OfCommand(Model):
    command_id: str


class CommandResult(Exit, _OfCommand):
    """What a foreground command came to, and what it printed; invalid UTF-8 is replaced.

    Of more than is kept, the first and the last half; between them stands how much was cut.
    """

    model_config = example({"command_id": _ID, **EXIT, "stdout": "notes.txt  src\n", "stderr": ""})

    stdout: str
    stderr: str


class Command(Model):
    """One command of a session."""

    model_config = example(COMMAND)

    command_id: str
    argv: list[str]
    background: bool
    status: Annotated[Literal["running", "exited", "lost"], WORDS] = Field(
        description="`lost` when its end is not known."
    )
    started_at: Time | Literal[""] = Field(description="Empty until its start is on record.")
    exit: Exit | None = Field(description="Null while it runs.")


class PendingCommand(Model):
    """A oneshot tool's command that waits for a person; the same request again asks again."""

    model_config = example({"status": "pending", "approval": APPROVAL})

    status: Literal["pending"]
    approval: Approval


class Commands(Model):
    """Every command that runs, and the latest that have ended, oldest first."""

    model_config = example({"items": [COMMAND], "next": None})

    items: list[Command]
    next: None


class Output(Model):
    """A piece of output; `offset` counts the bytes of both streams together."""

    stream: Annotated[Literal["stdout", "stderr"], WORDS]
    offset: Count
    text: str


class CommandOutput(Command):
    """A command with its output from an offset on."""

    model_config = example(
        {
            **COMMAND,
            "output": [{"stream": "stdout", "offset": 0, "text": "ready\n"}],
            "next": 6,
            "lost": False,
        }
    )

    output: list[Output]
    next: Count = Field(description="The `after` that goes on from here.")
    lost: bool = Field(description="The session does not keep this output any more.")


class InputTaken(Model):
    """What was fed to a command."""

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

    model_config = example({"command_id": _ID})

    command_id: str


class OutputData(Model):
    """Text that a command printed; `offset` counts the bytes of both streams together."""

    SPARSE = True

    model_config = example({"offset": 0, "text": "notes.txt  src\n"})

    offset: Count
    text: str
    cut: Count = Field(
        default=0,
        description="So many bytes before it are not kept; left out where there are none.",
    )


class ExitData(Exit, _OfCommand):
    """What the command came to: the last event."""

    model_config = example({"command_id": _ID, **EXIT})


# The events of a command's stream: what `data` holds.
COMMAND_EVENTS: dict[str, type[Model]] = {
    "start": StartData,
    "stdout": OutputData,
    "stderr": OutputData,
    "exit": ExitData,
    "error": Problem,
}
