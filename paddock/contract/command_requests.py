"""What commands are asked for: to run, to read, to be fed and signalled."""

from typing import Annotated, Self

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
    ToolArguments,
    ToolName,
    Wait,
    Whole,
    sentence,
)
from paddock.contract.requests import (
    CWD_DESCRIPTION,
    LINE_DESCRIPTION,
    Body,
    Query,
    check_names,
    check_not_both,
    check_one,
    exactly_one,
)


class ExecBody(Body):
    """What `POST …/exec` takes: exactly one of `command`, `argv` and `tool`."""

    model_config = ConfigDict(json_schema_extra=exactly_one("command", "argv", "tool"))

    command: CommandLine | None = Field(default=None, description=LINE_DESCRIPTION)
    argv: Argv | None = Field(default=None, description="The words of a command.")
    tool: ToolName | None = Field(
        default=None, description="A oneshot tool: the command is as its manifest has it."
    )
    arguments: ToolArguments = Field(default_factory=dict, description="The tool's, by name.")
    cwd: Directory | None = Field(default=None, description=CWD_DESCRIPTION)
    env: Environment = Field(default_factory=dict, description="Over those of the session.")
    secrets: Secrets = Field(
        default_factory=dict,
        description="Further variables, which are treated as those of the session are.",
    )
    stdin: Annotated[str, MaxBytes(MIB)] | None = Field(
        default=None, description="What its standard input begins with."
    )
    stdin_base64: Base64 | None = Field(
        default=None, description="The same as bytes, in its place."
    )
    stdin_open: bool = Field(
        default=False, description="Its standard input stays open, to be fed later."
    )
    timeout: int | None = Field(
        default=None,
        ge=1,
        description="Seconds, up to the level's maximum; where it is not given, the level's "
        "default, and none in the background.",
    )
    background: bool = Field(
        default=False, description="Answer when it has started; it outlives the request."
    )
    permission_level: PermissionLevel = Field(
        default=None, description="The session's new level from now on; not for a handle."
    )
    wait: Wait = Field(
        default=0, description="Seconds to wait for a person, where `tool` needs one."
    )

    @model_validator(mode="after")
    def _one_command(self) -> Self:
        check_one(self, "command", "argv", "tool")
        if self.tool is None and self.arguments:
            raise sentence("arguments go with tool")
        if self.tool is None and self.wait:
            raise sentence("wait goes with tool")
        if self.tool is not None and self.env:
            raise sentence("env can't be given with tool")
        if self.tool is not None and not all(name.startswith("SECRET_") for name in self.secrets):
            raise sentence("the names of secrets that go with tool must begin with SECRET_")
        check_names(self.env, self.secrets)
        check_not_both(self, "stdin", "stdin_base64")
        return self


class StdinBody(Body):
    """Text, or bytes, for a command's standard input; `close` ends it."""

    data: Annotated[str, MaxBytes(MIB)] | None = None
    data_base64: Base64 | None = None
    close: bool = False

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        check_not_both(self, "data", "data_base64")
        return self

    @property
    def input(self) -> bytes:
        """What is to be fed."""
        return self.data_base64 or (self.data or "").encode()


class SignalBody(Body):
    """A signal by name (with or without SIG) or number."""

    signal: Signal


class OutputQuery(Query):
    """`after` counts bytes of output that are not wanted again."""

    after: Whole = 0
