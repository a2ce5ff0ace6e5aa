"""What a session's cluster knows of it: what it claims, what it uses, and what lists show. Pure."""

from orchestrator.cluster.base import Claim, Summary
from orchestrator.ground.limits import KeyLimits, KeyUsage
from orchestrator.rules.policy.levels import SessionLimits
from orchestrator.state.session import Session
from paddock.contract.words import Status


def claim_of(session: Session, quota: KeyLimits) -> Claim:
    """The place that the session needs."""
    return Claim(
        session.id,
        session.key,
        session.owner,
        amounts_of(session, session.limits),
        quota,
        summary_of(session),
        session.terms.recovery or "none",
    )


def amounts_of(
    session: Session, limits: SessionLimits, workspace_bytes: int | None = None
) -> KeyUsage:
    """What the session uses with these limits; its workspace may have another size than theirs.

    A workspace that is its parent's is counted there.
    """
    size = limits.workspace_bytes if workspace_bytes is None else workspace_bytes
    own = not session.family.shares
    return KeyUsage(1, limits.cpus, limits.memory_bytes, int(own), size if own else 0)


def most_of(some: KeyUsage, others: KeyUsage) -> KeyUsage:
    """The larger one of each two amounts."""
    return KeyUsage(
        max(some.sessions, others.sessions),
        max(some.cpus, others.cpus),
        max(some.memory_bytes, others.memory_bytes),
        max(some.workspaces, others.workspaces),
        max(some.workspace_bytes, others.workspace_bytes),
    )


def summary_of(
    session: Session, *, status: Status | None = None, level: str | None = None
) -> Summary:
    """What lists show of it, with the status or the level that it is about to have."""
    origin = session.family.origin
    return Summary(
        str(status or session.status),
        level or session.level.name,
        session.created_at,
        session.terms.labels,
        session.terms.work_id,
        None if origin is None else origin.parent_id,
    )
