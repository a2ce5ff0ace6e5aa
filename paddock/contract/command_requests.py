"""Requests about commands: run, read, send input, signal."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from paddock.contract.fields import (
    MIB,
    Argv,
    Base64,
    CommandLine,
    Directory,
    Environment,
    MaxBytes,
    PermissionLevel,
    Secrets,
    Signal,
    TimeLimit,
    ToolArguments,
    ToolName,
    Wait,
    Whole,
    WorkspacePath,
    sentence,
)
from paddock.contract.requests import (
    CWD_DESCRIPTION,
    LARGEST_BODY,
    LINE_DESCRIPTION,
    Body,
    Query,
    check_names,
    check_not_both,
    check_one,
    exactly_one,
)


class ExecBody(Body):
    """The body of `POST …/exec`: exactly one of `command`, `argv`, `shell` and `tool`."""

    MOST_BYTES = LARGEST_BODY

    model_config = ConfigDict(json_schema_extra=exactly_one("command", "argv", "shell", "tool"))

    command: CommandLine | None = Field(default=None, description=LINE_DESCRIPTION)
    argv: Argv | None = Field(default=None, description="The words of a command.")
    shell: CommandLine | None = Field(
        default=None,
        description="A line that bash runs as it is: pipes, redirections, variables. Only at "
        "levels that permit any command.",
    )
    tool: ToolName | None = Field(
        default=None, description="A oneshot tool, whose manifest defines the command."
    )
    arguments: ToolArguments = Field(
        default_factory=dict, description="The tool's arguments by name."
    )
    cwd: Directory | None = Field(default=None, description=CWD_DESCRIPTION)
    env: Environment = Field(
        default_factory=dict, description="In addition to the session's, with precedence."
    )
    secrets: Secrets = Field(
        default_factory=dict,
        description="Additional secret variables, handled like the session's.",
    )
    stdin: Annotated[str, MaxBytes(MIB)] | None = Field(
        default=None, description="The beginning of its standard input."
    )
    stdin_base64: Base64 | None = Field(
        default=None, description="The same as bytes, instead of `stdin`."
    )
    stdin_open: bool = Field(
        default=False, description="Standard input stays open for later input."
    )
    merge: bool = Field(
        default=False,
        description="Standard error goes where standard output goes: one stream, in order.",
    )
    output_file: WorkspacePath | None = Field(
        default=None,
        description="A file of the workspace that gets what the command prints, both streams in "
        "order, instead of the answer. It is emptied first; its directory must exist.",
    )
    timeout: TimeLimit | None = Field(
        default=None,
        description="Seconds, also fractions, up to the level's maximum; by default the level's "
        "default, and no limit in the background.",
    )
    background: bool = Field(
        default=False, description="Answer when the command has started; it outlives the request."
    )
    permission_level: PermissionLevel = Field(
        default=None, description="Changes the session's level first; not for a handle."
    )
    wait: Wait = Field(
        default=0, description="Seconds to wait for a person, if `tool` needs approval."
    )

    @model_validator(mode="after")
    def _one_command(self) -> Self:
        check_one(self, "command", "argv", "shell", "tool")
        if self.tool is None and self.arguments:
            raise sentence("arguments go with tool")
        if self.tool is None and self.wait:
            raise sentence("wait goes with tool")
        if self.tool is not None and self.output_file is not None:
            raise sentence("output_file can't be given with tool")
        if self.tool is not None and self.env:
            raise sentence("env can't be given with tool")
        if self.tool is not None and not all(name.startswith("SECRET_") for name in self.secrets):
            raise sentence("the names of secrets that go with tool must begin with SECRET_")
        check_names(self.env, self.secrets)
        check_not_both(self, "stdin", "stdin_base64")
        return self


class StdinBody(Body):
    """Text, or bytes, for a command's standard input; `close` ends it."""

    MOST_BYTES = LARGEST_BODY

    data: Annotated[str, MaxBytes(MIB)] | None = None
    data_base64: Base64 | None = None
    close: bool = False

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        check_not_both(self, "data", "data_base64")
        return self

    @property
    def input(self) -> bytes:
        """The input as bytes."""
        return self.data_base64 or (self.data or "").encode()


class SignalBody(Body):
    """A signal by name (with or without SIG) or number."""

    signal: Signal


class OutputQuery(Query):
    """`after` counts bytes of output that are already known."""

    after: Whole = 0


class PrintedQuery(OutputQuery):
    """The place to begin at, and one stream; by default both in order."""

    stream: Literal["stdout", "stderr"] | None = None
