"""Shells that keep their state between commands."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, StringConstraints, Tag

from paddock.contract.base import WORDS, Count, Model, Time, example
from paddock.contract.fields import KIB, Directory, Environment, MaxBytes
from paddock.contract.requests import CWD_DESCRIPTION, LARGEST_BODY, Body

DEFAULT_SHELL = "default"
DEFAULT_RUN_SECONDS = 60.0
MOST_RUN_SECONDS = 3600
MOST_SHELL_COMMAND = 256 * KIB
SHELL_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

_SHELL: dict[str, Any] = {
    "name": "main",
    "pty": "pty-8d3c0f5a1b2e4967",
    "running": False,
    "cwd": "/workspace/site",
    "opened_at": "2026-03-04T09:30:12.482113Z",
}
_ANSWER: dict[str, Any] = {
    "shell": "main",
    "pty": "pty-8d3c0f5a1b2e4967",
    "status": "finished",
    "output": "4 passed\n",
    "output_bytes": 9,
    "cut_bytes": 0,
    "matched": None,
    "exit_code": 0,
    "running": False,
    "cwd": "/workspace/site",
    "duration_ms": 1204,
    "error": None,
    "ended": None,
}


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain NUL")
    return text


ShellName = Annotated[str, StringConstraints(pattern=SHELL_NAME, max_length=64)]
_Text = Annotated[str, MaxBytes(MOST_SHELL_COMMAND), AfterValidator(_no_nul)]
_Expected = Annotated[str, Field(min_length=1), MaxBytes(4 * KIB), AfterValidator(_no_nul)]
_Seconds = Annotated[float, Field(gt=0, le=MOST_RUN_SECONDS, allow_inf_nan=False)]
_MOST_EXPECTED = 16

_EXPECT = (
    "Answer as soon as the output that no answer has had contains this text, or one of these. They "
    "are no patterns. Without it, the answer also comes when a program waits for input; with an "
    "empty list, it does not."
)
_TIMEOUT = "Seconds, also fractions. `at_timeout` says what follows."
_AT_TIMEOUT = (
    "`stop`: the command is interrupted; if it has not ended a second later, its foreground is "
    "killed; if that does not help within 5 seconds, the shell ends. `continue`: it goes on."
)


class Shell(Model):
    """A shell of a session."""

    model_config = example(_SHELL)

    name: str
    pty: str = Field(description="The terminal that it runs on: its record and its recording.")
    running: bool = Field(description="Whether a command runs.")
    cwd: str = Field(description="Its directory after the latest command.")
    opened_at: Time


class Shells(Model):
    """The shells of a session that have not ended, oldest first."""

    model_config = example({"items": [_SHELL], "next": None})

    items: list[Shell]
    next: None


class ShellAnswer(Model):
    """What has come of a command since the last answer."""

    model_config = example(_ANSWER)

    shell: str
    pty: str
    status: Annotated[
        Literal["finished", "matched", "waiting", "timed_out", "syntax_error", "ended"], WORDS
    ] = Field(
        description="Why the answer came: the command has finished; the output has the expected "
        "text; a program of the command waits for input; the time was over; the text is no valid "
        "command and nothing of it ran; the shell has ended."
    )
    output: str = Field(
        description="What the shell's programs printed since the last answer, in order, both "
        "streams together. Bytes that are not UTF-8 are U+FFFD."
    )
    output_bytes: Count = Field(description="Of all of it.")
    cut_bytes: Count = Field(description="So many bytes are missing in the middle of `output`.")
    matched: str | None = Field(description="The text of `expect` that the output has.")
    exit_code: int | None = Field(
        description="The command's, or the shell's if it has ended; null while it runs."
    )
    running: bool = Field(
        description="Whether the command still runs: `input` continues it, `interrupt` ends it."
    )
    cwd: str = Field(description="The shell's directory after the latest command.")
    duration_ms: Count = Field(description="Since the command's start.")
    error: str | None = Field(description="What is wrong with the syntax.")
    ended: str | None = Field(
        description="Why the shell has ended, if it has: exited, timeout, closed, level_changed "
        "and others, as for terminals. The next command needs a new shell."
    )

    @property
    def ok(self) -> bool:
        """Whether the command has finished with exit code 0."""
        return self.status == "finished" and self.exit_code == 0


class ShellBody(Body):
    """The shell to create."""

    name: ShellName = DEFAULT_SHELL
    cwd: Directory | None = Field(default=None, description=CWD_DESCRIPTION)
    env: Environment = Field(
        default_factory=dict, description="In addition to the session's, with precedence."
    )


def _alternative(value: object) -> str:
    return "[several]" if isinstance(value, list) else "[one]"


_OneOrSeveral = Annotated[
    Annotated[_Expected, Tag("[one]")]
    | Annotated[list[_Expected], Field(max_length=_MOST_EXPECTED), Tag("[several]")],
    Discriminator(_alternative),
]


class ShellUntil(Body):
    """When a command in a shell is answered, if it has not finished before."""

    timeout: _Seconds = Field(default=DEFAULT_RUN_SECONDS, description=_TIMEOUT)
    expect: _OneOrSeveral | None = Field(default=None, description=_EXPECT)
    at_timeout: Literal["stop", "continue"] = Field(default="stop", description=_AT_TIMEOUT)


class ShellRunBody(ShellUntil):
    """A command for a shell."""

    MOST_BYTES = LARGEST_BODY

    command: _Text = Field(
        description="Any text for bash: lines, here-documents and comments included; or nothing."
    )


class ShellInputBody(ShellUntil):
    """Input for the program that runs in a shell."""

    MOST_BYTES = LARGEST_BODY

    text: Annotated[str, MaxBytes(64 * KIB)] = Field(
        description="As it would be typed: a line ends with a line feed. Empty: only wait."
    )
