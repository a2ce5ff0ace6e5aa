"""What is staged, as the helper reports it: validated, because it has read a session's files."""

from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.ground.events import time_text
from orchestrator.host.workspace.staged.commit_steps import parents
from orchestrator.host.workspace.staged_work import ProposalsError
from orchestrator.rules.policy.session_policy import WorldRules

M = TypeVar("M", bound=BaseModel)

MOST_ITEMS = 1000
_FINGERPRINT = r"^sha256:[0-9a-f]{64}$"


class _Report(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class Refusal(_Report):
    """An entry that can't be proposed, and why."""

    ref: str = Field(max_length=32_768)
    reason: str = Field(max_length=1000)


class Proposal(_Report):
    """A staged change; see the contract's model of that name. `removes`: entries of a directory."""

    type: Literal["write", "delete"]
    ref: str = Field(max_length=8192)
    kind: str = Field(max_length=32)
    mode: int | None
    old_mode: int | None
    replaces: bool
    removes: int
    size: int
    binary: bool
    diff: str | None
    diff_truncated: bool
    fingerprint: str | None = Field(pattern=_FINGERPRINT)
    expected_fingerprint: str | None = Field(pattern=_FINGERPRINT)
    base_changed: bool
    renamed_from: str | None
    timestamp_ns: int

    @property
    def timestamp(self) -> str:
        """When it was changed last, RFC 3339; a time that no calendar has becomes 1970."""
        try:
            moment = datetime.fromtimestamp(self.timestamp_ns / 1e9, UTC)
        except (ValueError, OverflowError, OSError):
            moment = datetime.fromtimestamp(0, UTC)
        return time_text(moment)


class StagedCounts(_Report):
    """How much is staged in all."""

    write: int = 0
    delete: int = 0
    refused: int = 0


class ProposalPage(_Report):
    """A page of proposals in order of paths; `more`: there are others after it."""

    items: list[Proposal] = Field(default=[], max_length=MOST_ITEMS)
    refused: list[Refusal] = Field(default=[], max_length=1000)
    counts: StagedCounts = StagedCounts()
    more: bool = False


class Conflict(_Report):
    """A change that is not what it was expected to be, or whose base is not."""

    ref: str
    expected: str | None
    actual: str | None


class Prepared(_Report):
    """A commit as it would be made, and what prevents it.

    `made` are those of `refs` that are new directories, `removed` what goes with removed ones.
    """

    counts: StagedCounts
    refs: list[str]
    made: list[str]
    removed: list[str]
    conflicts: list[Conflict]
    refused: list[Refusal]
    missing: list[str]
    lacking: list[str]
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")


def page_of(answer: dict[str, Any]) -> ProposalPage:
    """Raises: ProposalsError."""
    return _checked(ProposalPage, answer)


def prepared_of(answer: dict[str, Any]) -> Prepared:
    """Raises: ProposalsError."""
    return _checked(Prepared, answer)


def _checked(model: type[M], answer: dict[str, Any]) -> M:
    try:
        return model.model_validate(answer)
    except ValidationError:
        raise ProposalsError("what is staged can't be shown: reading it failed") from None


def forbidden(rules: WorldRules, prepared: Prepared) -> list[Refusal]:
    """The staged paths that these rules do not allow: commands can stage what no turn could.

    A new directory is allowed if something new in it is.
    """
    if rules.read_only:
        return [Refusal(ref=ref, reason="the policy is read-only") for ref in prepared.refs]
    made = set(prepared.made)
    every = [*prepared.refs, *prepared.removed]
    allowed = {ref for ref in every if rules.may_write(ref)}
    leading = {parent for ref in allowed for parent in parents(ref)}
    return [
        Refusal(ref=ref, reason="the policy's write patterns don't match it")
        for ref in every
        if ref not in allowed and not (ref in made and ref in leading)
    ]
