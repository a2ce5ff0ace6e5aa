"""Explanations of policies: what would be allowed, what stops it, and what to do instead."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from paddock.contract.base import WORDS, Model, example
from paddock.contract.fields import (
    Argv,
    CommandLine,
    Directory,
    LevelChoice,
    WorkspacePath,
    sentence,
)
from paddock.contract.policies import (
    OperationArgs,
    PolicyChoice,
)
from paddock.contract.remedies import REMEDIES
from paddock.contract.requests import (
    CWD_DESCRIPTION,
    LARGEST_BODY,
    LINE_DESCRIPTION,
    Body,
    check_one,
    exactly_one,
)
from paddock.contract.words import OperationName

LayerName = Annotated[Literal["parser", "mount", "landlock", "seccomp", "network", "policy"], WORDS]


class Layer(Model):
    """A layer that would stop the command or path."""

    layer: LayerName
    message: str
    remedy: str = Field(description="An alternative, or the level's field that allows it.")


class Explanation(Model):
    """The decision about a command or path, by its words alone, or about an operation."""

    model_config = example(
        {
            "allow": False,
            "verdict": "deny",
            "rule": "command-allowlist",
            "layer": "parser",
            "message": "command not allowed for permission level low: curl; allowed are, by bare "
            "name: cat ls pwd",
            "remedy": REMEDIES["command-allowlist"],
            "layers": [
                {
                    "layer": "parser",
                    "message": "command not allowed for permission level low: curl; allowed are, "
                    "by bare name: cat ls pwd",
                    "remedy": REMEDIES["command-allowlist"],
                },
                {
                    "layer": "landlock",
                    "message": "the kernel executes only the programs of low's commands, and curl "
                    "is not one",
                    "remedy": "Name it in `commands` of the level's file; programs that commands "
                    "start, in `confinement.execute`.",
                },
                {
                    "layer": "network",
                    "message": "curl uses the network, and a sandbox at low has none",
                    "remedy": 'Use a level with `network = "open"`, or set that in the level\'s '
                    "file.",
                },
            ],
        }
    )

    allow: bool
    verdict: Annotated[Literal["allow", "deny"], WORDS]
    rule: str = Field(description="The rule that refuses; `allowed` if none does.")
    layer: LayerName = Field(
        description="The first layer that stops it; `policy` decides about operations, and "
        "`parser` also if none stops a command."
    )
    message: str
    remedy: str | None = Field(description="An alternative; null if it is allowed.")
    layers: list[Layer] = Field(
        description="All layers that would stop it, in order. `allow` is the parser's decision: a "
        "later layer may still stop a command that it allows."
    )


class ExplainBody(Body):
    """The body of `POST /api/policies/explain`: whose rules to use, and what to explain.

    Exactly one of `session`, `level` and `policy`, and of `command`, `argv`, `shell`, `path` and
    `operation`. An operation is decided by a session or a policy, the others by a session or level.
    """

    MOST_BYTES = LARGEST_BODY

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                exactly_one("session", "level", "policy"),
                exactly_one("command", "argv", "shell", "path", "operation"),
            ]
        }
    )

    session: Annotated[str, Field(max_length=128)] | None = Field(
        default=None, description="A session's id, for its own level and policy."
    )
    level: LevelChoice = Field(default=None, description="A permission level's name.")
    policy: PolicyChoice | None = Field(
        default=None, description="A session policy's name, or its members."
    )
    command: CommandLine | None = Field(default=None, description=LINE_DESCRIPTION)
    argv: Argv | None = Field(default=None, description="The words of a command.")
    shell: CommandLine | None = Field(
        default=None, description="A line for bash, as in `POST …/exec`."
    )
    path: WorkspacePath | None = Field(default=None, description="A path of the file operations.")
    cwd: Directory | None = Field(default=None, description=CWD_DESCRIPTION)
    operation: OperationName | None = Field(default=None, description="An operation of a turn.")
    args: OperationArgs | None = Field(default=None, description="The operation's arguments.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_one(self, "session", "level", "policy")
        check_one(self, "command", "argv", "shell", "path", "operation")
        if self.cwd is not None and (self.path is not None or self.operation is not None):
            raise sentence("cwd goes with a command: paths are relative to the workspace")
        if self.operation is not None and self.level is not None:
            raise sentence("operation goes with session or policy")
        if self.operation is None and (self.policy is not None or self.args is not None):
            raise sentence("policy and args go with operation")
        return self
