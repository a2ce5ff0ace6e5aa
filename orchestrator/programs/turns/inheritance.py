"""What a child gets from its parent, and what the request may change of it. Pure."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from orchestrator.ground.errors import ConflictError, InvalidTransitionError
from orchestrator.rules.egress.session_rules import NO_OWN_RULES, OwnRules
from orchestrator.rules.policy.levels import Level, Levels
from orchestrator.rules.policy.policy_files import SessionPolicies
from orchestrator.rules.policy.session_policy import SessionPolicy
from orchestrator.state.child_bounds import child_budget, child_level, child_policy, covers
from orchestrator.state.family import Origin
from orchestrator.state.requests import Child, NewSession
from orchestrator.state.session import Session
from orchestrator.state.terms import Terms
from paddock.contract.words import SpawnedWorkspace, Status
from sandbox_agent.decide.variables import allowed_variable


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A child to spawn; None means that the child has what its parent has.

    `budget` has limits by kind, in the units of the API; `idle_timeout` is in seconds. `among` is
    how many children are spawned at once, which share what is left of the parent's budget.
    """

    label: str | None = None
    workspace: SpawnedWorkspace = "own"
    permission_level: str | None = None
    budget: Mapping[str, int | float] = field(default_factory=dict)
    policy: str | Mapping[str, Any] | None = None
    idle_timeout: int | None = None
    among: int = 1


def check_parent(parent: Session) -> None:
    """Raises: the errors of `Session.check_not_ending` and `Family.check_room`; ConflictError for a
    session with a context pack, or while its level is changed; InvalidTransitionError if paused.
    """
    parent.check_not_ending()
    if parent.status is Status.PAUSED:
        raise InvalidTransitionError("the session is paused: resume it first")
    if parent.gate is not None:
        raise ConflictError(parent.gate)
    if parent.pack is not None:
        raise ConflictError("a session with a context pack can't spawn: a child has no pack")
    parent.family.check_room()


def _check_lending(parent: Session) -> None:
    """Raises: ConflictError for a session with secrets.

    Its files may contain them, and they are cut out of its own record only, not out of the child's.
    """
    parent.secrets.check_known()
    if parent.secrets.message() is not None:
        raise ConflictError(
            "a session with secrets lends its workspace to no child, whose record could have them"
        )


def new_child(
    parent: Session,
    wanted: SpawnRequest,
    levels: Levels,
    policies: SessionPolicies,
    *,
    runs: bool,
) -> tuple[NewSession, Child]:
    """The request for a child, whose budget is not reserved yet, and what it has from its parent.

    Raises: ValidationError, PermissionDeniedError, ConflictError.
    """
    if wanted.workspace != "own":
        _check_lending(parent)
    named = wanted.permission_level
    level = child_level(parent.level, None if named is None else levels.named(named))
    policy = _policy(parent, wanted, policies)
    origin = Origin(
        spawn_id=f"spawn-{uuid4()}",
        parent_key=parent.key,
        parent_id=parent.id,
        depth=parent.family.depth + 1,
        label=wanted.label,
        workspace=wanted.workspace,
        runs=runs,
    )
    child = Child(
        parent,
        origin,
        level,
        child_budget(parent.budget, wanted.budget, level, datetime.now(UTC), wanted.among),
        _own_rules(parent, level),
        _checking(parent, level),
    )
    request = NewSession(
        id=f"sess-{secrets.token_hex(8)}",
        terms=_terms(parent, wanted, level),
        policy=policy,
        child=child,
    )
    return request, child


def _terms(parent: Session, wanted: SpawnRequest, level: Level) -> Terms:
    """The parent's terms, without its volumes and the names that the host has for its own work."""
    return replace(
        parent.terms,
        labels={},
        metadata={},
        volumes=(),
        env={
            name: value
            for name, value in parent.terms.env.items()
            if allowed_variable(name, level.environment)
        },
        idle_timeout=wanted.idle_timeout or 0,
        wall_timeout=None,
        work_id=None,
        policy_resolved_ref=None,
        episode_id=None,
    )


def _policy(parent: Session, wanted: SpawnRequest, policies: SessionPolicies) -> SessionPolicy:
    """The parent's policy, or one that permits no more; without writes if it only reads."""
    policy = parent.policy
    if wanted.policy is not None:
        policy = child_policy(policy, policies.resolve(wanted.policy, "policy"))
    world = policy.world_rules
    if wanted.workspace == "own" or world.read_only:
        return policy
    rules = replace(world, read_only=True, proposal_mode=False)
    return replace(policy, name=None, world_rules=rules)


def _own_rules(parent: Session, level: Level) -> OwnRules:
    """The parent's narrowing of the way out; what an admin has added holds for the parent only."""
    return OwnRules(only=parent.own_rules.only) if level.network == "egress" else NO_OWN_RULES


def _checking(parent: Session, level: Level) -> Callable[[], None]:
    def check() -> None:
        parent.check_not_ending()
        if not covers(parent.level, level):
            raise ConflictError("the level of the parent was lowered meanwhile: try again")

    return check
