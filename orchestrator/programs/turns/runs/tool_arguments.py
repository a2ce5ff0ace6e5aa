"""The arguments of the tools that every run has. Pure."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic import ValidationError as SchemaError

from orchestrator.programs.turns.operations.patched import MOST_PATCH
from orchestrator.programs.turns.runs.run_tool import ToolArgumentsError
from orchestrator.settings.schema_errors import reason
from orchestrator.work.memory.entries import DEFAULT, MOST_FOUND
from paddock.contract.code import MOST_CODE_BYTES, Language
from paddock.contract.spawns import MOST_LABEL
from paddock.contract.tool_arguments import meant
from paddock.contract.words import SpawnedWorkspace


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    @classmethod
    def described(cls) -> dict[str, Any]:
        """The JSON schema."""
        schema = cls.model_json_schema()
        for name in ("title", "description"):
            schema.pop(name, None)
        return schema

    @classmethod
    def given(cls, members: dict[str, Any]) -> Self:
        """The arguments of a call. Raises: ToolArgumentsError."""
        try:
            return cls.model_validate(meant(cls.described(), members))
        except SchemaError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            field = ".".join(str(part) for part in first["loc"])[:100] or "the object"
            raise ToolArgumentsError(f"{field} {reason(first['type'], first['msg'])}") from None


_Path = Annotated[
    str, Field(min_length=1, max_length=4096, description="Relative to the workspace.")
]


_ShellName = Annotated[str, Field(min_length=1, max_length=64, pattern="^[A-Za-z0-9_-]+$")]
_Expected = Annotated[str, Field(max_length=1024)]


class ExecArguments(_Arguments):
    """Exactly one of them."""

    argv: Annotated[list[str], Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="The program and its words; nothing in them is special."
    )
    command: Annotated[str, Field(min_length=1, max_length=64 * 1024)] | None = Field(
        default=None, description="A command line without pipes, redirections and the like."
    )
    shell: Annotated[str, Field(min_length=1, max_length=64 * 1024)] | None = Field(
        default=None, description="A line for bash, where any program may run."
    )

    @classmethod
    def given(cls, members: dict[str, Any]) -> Self:
        """The arguments of a call. Raises: ToolArgumentsError."""
        found = super().given(members)
        if sum(each is not None for each in (found.argv, found.command, found.shell)) != 1:
            raise ToolArgumentsError("exactly one of argv, command and shell must be given")
        return found


class ShellArguments(_Arguments):
    """A command for a shell that keeps its state."""

    command: Annotated[str, Field(min_length=1, max_length=64 * 1024)] = Field(
        description="Any text for bash, of any number of lines."
    )
    shell: _ShellName = Field(default="main", description="The shell's name.")
    seconds: int = Field(default=60, ge=1, le=3600, description="Then it is interrupted.")
    expect: _Expected = Field(
        default="", description="Return as soon as the output has this text; it runs on."
    )


class ShellInputArguments(_Arguments):
    """Input for the program that runs in a shell."""

    text: Annotated[str, Field(max_length=16 * 1024)] = Field(
        description="As typed: a line ends with a line feed. Empty: only wait."
    )
    shell: _ShellName = Field(default="main", description="The shell's name.")
    seconds: int = Field(default=60, ge=1, le=3600, description="Then it is interrupted.")
    expect: _Expected = Field(default="", description="As for shell.")


class RunCodeArguments(_Arguments):
    """A cell."""

    code: Annotated[str, Field(min_length=1, max_length=MOST_CODE_BYTES)] = Field(
        description="The value of its last line is shown."
    )
    language: Language | None = Field(
        default=None, description="By default python; also bash, javascript, or what there is."
    )
    seconds: int = Field(default=60, ge=1, le=3600, description="Then it is interrupted.")


class ReadOutputArguments(_Arguments):
    """A part of what a command printed."""

    command_id: str = Field(min_length=1, max_length=64, description="As exec returned it.")
    offset: int = Field(default=0, ge=0, description="The byte to begin at, of both streams.")


class ReadFileArguments(_Arguments):
    """A part of a file."""

    path: _Path
    first_line: int = Field(default=1, ge=1, description="Where to begin.")
    lines: int = Field(default=2000, ge=1, le=100_000, description="How many lines.")


class WriteFileArguments(_Arguments):
    """A whole file."""

    path: _Path
    text: str = Field(description="All of the file's new content.")


class PatchFilesArguments(_Arguments):
    """A patch."""

    patch: str = Field(
        min_length=1,
        max_length=MOST_PATCH,
        description="Lines `--- OLD`, `+++ NEW`, and hunks; /dev/null for no file.",
    )


class ListFilesArguments(_Arguments):
    """A directory."""

    path: Annotated[str, Field(min_length=1, max_length=4096)] = Field(
        default=".", description="A directory, relative to the workspace."
    )
    depth: int = Field(default=1, ge=1, le=64, description="How many levels below it.")


class SearchFilesArguments(_Arguments):
    """A literal text."""

    text: str = Field(min_length=1, max_length=4096, description="A literal text.")
    path: Annotated[str, Field(min_length=1, max_length=4096)] = Field(
        default=".", description="A directory, relative to the workspace."
    )


class DeleteFileArguments(_Arguments):
    """A file."""

    path: _Path


class MemorySearchArguments(_Arguments):
    """Words."""

    query: str = Field(
        default="", description="Entries have one of these words; without any, the newest."
    )
    namespace: str = Field(default=DEFAULT, description="A name that sets entries apart.")
    limit: int = Field(default=10, ge=1, le=MOST_FOUND, description="How many entries.")


class MemoryWriteArguments(_Arguments):
    """An entry."""

    text: str = Field(min_length=1, description="What later sessions should know.")
    namespace: str = Field(default=DEFAULT, description="A name that sets entries apart.")
    tags: Annotated[list[str], Field(max_length=16)] = Field(
        default=[], description="Words that a search finds too."
    )


class SpawnArguments(_Arguments):
    """A task for a child."""

    task: str = Field(
        min_length=1, max_length=64 * 1024, description="All that the other model is told."
    )
    label: str = Field(default="", max_length=MOST_LABEL, description="A name for it.")
    workspace: SpawnedWorkspace = Field(
        default="own",
        description="own: an empty workspace; read-only: yours, in which it can't write.",
    )
    permission_level: str = Field(
        default="", description="A permission level that is not above yours; by default yours."
    )
