"""Session policies: what a session's turns may do."""

from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from paddock.contract.base import WORDS, Count, Model, Sha256, example
from paddock.contract.fields import WorkspacePath
from paddock.contract.requests import Body
from paddock.contract.words import MOST_CALL_TOKENS, POLICY_PATTERN, OperationName

PolicyName = Annotated[str, Field(pattern=f"^{POLICY_PATTERN}$", max_length=64)]
EXAMPLE: dict[str, Any] = {
    "name": "SAFE_ANALYSIS",
    "allowed_operations": [
        *("assert", "eval", "fact?", "facts", "fixpoint", "llm.complete", "memo", "subeval"),
        *("world.fingerprint", "world.list", "world.read", "world.search"),
    ],
    "denied_operations": ["shell", "world.exec", "world.run"],
    "world_rules": {
        "read_patterns": ["**/*"],
        "write_patterns": [],
        "read_only": True,
        "proposal_mode": False,
    },
    "llm_rules": {"allow_complete": True, "allow_intent": True, "max_tokens_per_call": 4000},
    "execution_rules": {
        "allow_shell_commands": False,
        "allow_network_calls": False,
        "allow_subeval": True,
    },
    "sha256": "9f2d1ea1f4a1d6f0b4b6b1e5d1a7c0e2f3948d7c6b5a49382716f5e4d3c2b1a0",
}


class WorldRules(Model):
    """The files of the workspace."""

    read_patterns: list[str] = Field(description="Globs of the files that may be read.")
    write_patterns: list[str] = Field(
        description="Globs of the files that may be written and deleted."
    )
    read_only: bool = Field(description="Nothing may be written, whatever the patterns are.")
    proposal_mode: bool = Field(
        description="What is written is a proposal until the session's owner commits it."
    )


class LlmRules(Model):
    """Calls of models."""

    allow_complete: bool
    allow_intent: bool
    max_tokens_per_call: Count


class ExecutionRules(Model):
    """Commands and nested programs."""

    allow_shell_commands: bool
    allow_network_calls: bool
    allow_subeval: bool


class PolicyVersion(Model):
    """Which policy a session has."""

    name: str | None = Field(description="Null: it is the session's own.")
    sha256: Sha256 = Field(description="Of its rules.")


class SessionPolicy(PolicyVersion):
    """What a session's turns may do."""

    model_config = example(EXAMPLE)

    allowed_operations: list[Annotated[OperationName, WORDS]]
    denied_operations: list[Annotated[OperationName, WORDS]] = Field(
        description="These are denied even if they are allowed."
    )
    world_rules: WorldRules
    llm_rules: LlmRules
    execution_rules: ExecutionRules
    approvers: int = Field(
        default=1,
        ge=1,
        description="How many people must approve a line that needs an approval, if the level does "
        "not demand more; with several, nobody who asked.",
    )


LISTED_EXAMPLE: dict[str, Any] = {
    **EXAMPLE,
    "extends": None,
    "inherited": [],
    "commands_refused": "Operation not allowed: world.run. Use an allowed operation, or create the "
    "session with a policy that allows it.",
}


class ListedPolicy(SessionPolicy):
    """A policy that sessions may have, and where its members come from."""

    model_config = example(LISTED_EXAMPLE)

    extends: str | None = Field(description="The policy from which it inherits; null: none.")
    inherited: list[str] = Field(
        description="The members that it does not give itself, like `denied_operations`."
    )
    commands_refused: str | None = Field(
        description="Why turns and runs with it can't run commands, and what to do; null: they may."
    )


_Patterns = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=1024)]], Field(max_length=256)
]
_Operations = Annotated[list[OperationName], Field(max_length=64)]


class WorldRulesBody(Body):
    """Globs are as in minimatch, without dotfiles."""

    read_patterns: _Patterns | None = None
    write_patterns: _Patterns | None = None
    read_only: bool | None = None
    proposal_mode: bool | None = None


class LlmRulesBody(Body):
    """Calls of models."""

    allow_complete: bool | None = None
    allow_intent: bool | None = None
    max_tokens_per_call: Annotated[int, Field(ge=1, le=MOST_CALL_TOKENS)] | None = None


class ExecutionRulesBody(Body):
    """Commands and nested programs."""

    allow_shell_commands: bool | None = None
    allow_network_calls: bool | None = None
    allow_subeval: bool | None = None


class SessionPolicyBody(Body):
    """A policy of the session's own; what is not given is taken from the one that it extends."""

    extends: PolicyName | None = Field(default=None, description="Default: `SAFE_ANALYSIS`.")
    allowed_operations: _Operations | None = None
    denied_operations: _Operations | None = None
    world_rules: WorldRulesBody | None = None
    llm_rules: LlmRulesBody | None = None
    execution_rules: ExecutionRulesBody | None = None
    approvers: Annotated[int, Field(ge=1, le=8)] | None = None


_MOST_ARGUMENTS = 16


def _alternative(value: Any) -> str:
    return "[name]" if isinstance(value, str) else "[members]"


# A name in brackets is left out of the places that errors name.
PolicyChoice = Annotated[
    Annotated[PolicyName, Tag("[name]")] | Annotated[SessionPolicyBody, Tag("[members]")],
    Discriminator(_alternative),
]


class OperationArgs(Body):
    """The arguments of an operation by which a policy decides; others are ignored."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"maxProperties": _MOST_ARGUMENTS})

    ref: WorkspacePath | None = Field(default=None, description="A path in the workspace.")
    max_tokens: Annotated[int, Field(ge=0, le=MOST_CALL_TOKENS)] | None = None
    network: bool = Field(default=False, description="Whether a command uses the network.")

    @model_validator(mode="before")
    @classmethod
    def _few(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > _MOST_ARGUMENTS:
            raise ValueError(f"must have at most {_MOST_ARGUMENTS} members")
        return value
