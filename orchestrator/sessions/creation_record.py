"""What is recorded of a session's creation."""

from typing import Any

from orchestrator.rules.egress.session_rules import NO_OWN_RULES
from orchestrator.state.restored_session import Carried
from orchestrator.state.session import Session


def told_of(session: Session, carried: Carried | None) -> dict[str, Any]:
    """The members of the event; `carried` is what a restored session brings along."""
    return {
        **session.terms.recorded(),
        "secrets": list(session.secrets.names),
        "mounts": [*session.level.mounts, *session.terms.mounts],
        "tools": session.terms.tools,
        "policy": session.policy.recorded(),
        **_narrowed(session),
        **_consumed(session),
        **({} if carried is None else carried.recorded()),
        **_spawned(session),
    }


def _spawned(session: Session) -> dict[str, Any]:
    """How it was spawned, for the record; nothing if it was not."""
    origin = session.family.origin
    if origin is None:
        return {}
    return {
        "spawn_id": origin.spawn_id,
        "parent": origin.parent_id,
        "depth": origin.depth,
        "workspace": origin.workspace,
    }


def _narrowed(session: Session) -> dict[str, Any]:
    """The rules that narrow its way out, for the record; nothing if there are none."""
    own = session.own_rules
    return {} if own == NO_OWN_RULES else {"egress_only": own.recorded()["only"]}


def _consumed(session: Session) -> dict[str, Any]:
    """Its pack, for the record; nothing if there is none."""
    pack = session.pack
    if pack is None:
        return {}
    return {
        **pack.recorded(),
        "refinement_count": session.reissues,
        "profile_id": pack.profile_id,
        "entries": len(pack.files),
        "tool_allowlist": sorted(pack.tools),
        "write_allowlist": list(pack.writes),
        "shell_allowlist": list(pack.commands),
    }
