"""What a child may be at most: its level, policy and budget, from its parent's. Pure."""

from collections.abc import Mapping
from datetime import datetime

from orchestrator.ground.errors import ConflictError, PermissionDeniedError, ValidationError
from orchestrator.rules.policy.levels import Level
from orchestrator.rules.policy.session_policy import OPERATIONS, SessionPolicy
from orchestrator.state.budget import Budget, limits_of, outside
from paddock.contract.words import Kind

# The rules that refuse spawns.
LEVEL, POLICY = "parent-level", "parent-policy"


def covers(parent: Level, child: Level) -> bool:
    """Whether a session at the first level may have a child at the other one.

    Two versions of a level's file have the same rank, so only the same version will do.
    """
    same = (parent.rank, parent.sha256) == (child.rank, child.sha256)
    return child.rank < parent.rank or same


def check_level(parent: Level, wanted: Level) -> None:
    """Raises: PermissionDeniedError for a level at which the parent may not have a child."""
    if not covers(parent, wanted):
        raise PermissionDeniedError(
            f"permission_level may permit no more than the parent's, {parent.name}",
            field="permission_level",
            rule=LEVEL,
        )


def child_level(parent: Level, wanted: Level | None) -> Level:
    """The level of a child; by default its parent's, in the version that the parent has.

    Raises: PermissionDeniedError above the parent's.
    """
    if wanted is None or wanted.name == parent.name:
        return parent
    check_level(parent, wanted)
    return wanted


def child_policy(parent: SessionPolicy, wanted: SessionPolicy) -> SessionPolicy:
    """The policy of a child. Raises: PermissionDeniedError if the parent's does not permit it."""
    wider = _wider(parent, wanted)
    if wider is not None:
        raise PermissionDeniedError(
            f"policy may not permit more than the parent's: {wider}", field="policy", rule=POLICY
        )
    return wanted


def _wider(outer: SessionPolicy, inner: SessionPolicy) -> str | None:
    """A part of the inner policy that permits something which the outer one does not.

    Patterns are compared as they are written: each must be one of the outer policy's.
    """
    more = sorted(n for n in OPERATIONS if inner.permits(n) and not outer.permits(n))
    if more:
        return f"operation {more[0]}"
    ours, theirs = outer.world_rules, inner.world_rules
    if not set(theirs.read_patterns.patterns) <= set(ours.read_patterns.patterns):
        return "world_rules.read_patterns"
    if not theirs.read_only:
        if ours.read_only:
            return "world_rules.read_only"
        if ours.proposal_mode and not theirs.proposal_mode:
            return "world_rules.proposal_mode"
        if not set(theirs.write_patterns.patterns) <= set(ours.write_patterns.patterns):
            return "world_rules.write_patterns"
    if inner.approvers < outer.approvers:
        return "approvers"
    return _wider_rules(outer.rules(), inner.rules())


def _wider_rules(outer: Mapping[str, Mapping[str, int]], inner: Mapping[str, object]) -> str | None:
    """A switch or a limit of the inner rules that permits more than the outer one."""
    for part in ("llm_rules", "execution_rules"):
        theirs = inner[part]
        assert isinstance(theirs, Mapping)  # noqa: S101 - as `rules` gives it
        for name, most in outer[part].items():
            if theirs[name] > most:
                return f"{part}.{name}"
    return None


def child_budget(
    parent: Budget, asked: Mapping[str, int | float], level: Level, now: datetime, among: int = 1
) -> Budget:
    """The budget of a child: every limit is at most what its parent has left.

    Where it asks for no limit and its parent has one, it gets a share of what is left: `among`
    children are spawned at once, and the parent keeps a share, too. Time is not shared: it passes
    for all. Raises: ValidationError above what is left; ConflictError if there is no share.
    """
    limits = limits_of(asked)
    for kind in Kind:
        left = parent.remaining(kind, now)
        if kind is Kind.AUDIT_BYTES:
            left = level.audit_bytes if left is None else left
        if left is None:
            continue
        share = left if kind is Kind.TIME else left // (among + 1)
        if kind is Kind.AUDIT_BYTES:
            share = min(share, level.audit_bytes)
        limit = limits.setdefault(kind, share)
        if limit > left:
            raise ValidationError(
                f"budget.{kind} may be at most {outside(kind, left)}, which its parent has left",
                field=f"budget.{kind}",
            )
        if not limit:
            raise ConflictError(f"too little is left of the session's {kind} to spawn a child")
    return Budget(now, limits)
