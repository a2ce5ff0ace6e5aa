"""The form of a session policy in files and requests, and the policy that a table describes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic import ValidationError as SchemaError

from orchestrator.rules.policy.session_policy import (
    OPERATIONS,
    SAFE_ANALYSIS,
    SessionPolicy,
)
from orchestrator.settings.schema_errors import reason
from paddock.contract.words import MOST_CALL_TOKENS
from sandbox_agent.decide.globs import GlobError, Globs

Place = tuple[str | int, ...]


class PolicyTableError(ValueError):
    """A policy that can't be used; `place` is the field."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(f"{dotted(place)}: {message}")
        self.place = place
        self.message = message


def _known(value: str) -> str:
    if value not in OPERATIONS:
        raise ValueError(f"must be one of {' '.join(sorted(OPERATIONS))}")
    return value


class _Table(BaseModel):
    """A member that is not given has its value in the policy that this one extends."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    def given(self) -> dict[str, Any]:
        """The members that are given."""
        return {name: value for name, value in self if value is not None}


_Operations = Annotated[list[Annotated[str, AfterValidator(_known)]], Field(max_length=64)]


class WorldRulesTable(_Table):
    """`world_rules`."""

    read_patterns: list[str] | None = None
    write_patterns: list[str] | None = None
    read_only: bool | None = None
    proposal_mode: bool | None = None


class LlmRulesTable(_Table):
    """`llm_rules`."""

    allow_complete: bool | None = None
    allow_intent: bool | None = None
    max_tokens_per_call: Annotated[int, Field(ge=1, le=MOST_CALL_TOKENS)] | None = None


class ExecutionRulesTable(_Table):
    """`execution_rules`."""

    allow_shell_commands: bool | None = None
    allow_network_calls: bool | None = None
    allow_subeval: bool | None = None


class PolicyTable(_Table):
    """The whole policy; `extends` names the policy that has the members not given here."""

    extends: str | None = None
    allowed_operations: _Operations | None = None
    denied_operations: _Operations | None = None
    world_rules: WorldRulesTable = Field(default_factory=WorldRulesTable)
    llm_rules: LlmRulesTable = Field(default_factory=LlmRulesTable)
    execution_rules: ExecutionRulesTable = Field(default_factory=ExecutionRulesTable)
    approvers: Annotated[int, Field(ge=1, le=8)] | None = None


def read_policy(
    values: Mapping[str, Any], name: str | None, policies: Mapping[str, SessionPolicy]
) -> SessionPolicy:
    """The policy of a table, which may extend one of `policies`. Raises: PolicyTableError."""
    try:
        table = PolicyTable.model_validate(dict(values))
    except SchemaError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise PolicyTableError(first["loc"], reason(first["type"], first["msg"])) from None
    base = SAFE_ANALYSIS if table.extends is None else policies.get(table.extends)
    if base is None:
        raise PolicyTableError(("extends",), f"must be one of {' '.join(policies)}")
    allowed, denied = table.allowed_operations, table.denied_operations
    return SessionPolicy(
        name=name,
        allowed_operations=base.allowed_operations if allowed is None else frozenset(allowed),
        denied_operations=base.denied_operations if denied is None else frozenset(denied),
        world_rules=replace(base.world_rules, **_world_rules(table.world_rules)),
        llm_rules=replace(base.llm_rules, **table.llm_rules.given()),
        execution_rules=replace(base.execution_rules, **table.execution_rules.given()),
        approvers=base.approvers if table.approvers is None else table.approvers,
        extends=base.name,
        inherited=_not_given(table),
    )


def _not_given(table: PolicyTable) -> frozenset[str]:
    """The dotted names of the members that it inherits."""
    single = ("allowed_operations", "denied_operations", "approvers")
    found = {name for name in single if getattr(table, name) is None}
    for part in ("world_rules", "llm_rules", "execution_rules"):
        rules: _Table = getattr(table, part)
        found |= {f"{part}.{name}" for name, value in rules if value is None}
    return frozenset(found)


def _world_rules(table: WorldRulesTable) -> dict[str, Any]:
    """The given members, with their patterns read."""
    given = table.given()
    for name in ("read_patterns", "write_patterns"):
        if name in given:
            given[name] = _globs(given[name], ("world_rules", name))
    return given


def _globs(patterns: Sequence[str], place: Place) -> Globs:
    try:
        return Globs(patterns)
    except GlobError as error:
        place = place if error.index is None else (*place, error.index)
        raise PolicyTableError(place, str(error)) from None


def dotted(place: Place) -> str:
    """A field as errors name it: `world_rules.read_patterns.0`."""
    return ".".join(map(str, place))
