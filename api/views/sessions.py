"""Views of sessions, and of requests to create them."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from api.shape.objects import members
from api.views.commands import command_members
from api.views.facilities import facilities_of
from api.views.packs import pack_of
from api.views.policies import named_or_given, policy
from orchestrator.ground.events import time_text
from orchestrator.host.engine.base import ContainerState
from orchestrator.host.node.processes import Measured
from orchestrator.rules.access import break_glass
from orchestrator.rules.access.keys import Principal
from orchestrator.sessions.deadlines import Deadline, deadlines
from orchestrator.sessions.inspection import LATEST, Inspection, telemetry
from orchestrator.state import session as domain
from orchestrator.state.lifecycle import activity
from orchestrator.state.requests import NewSession, Registered
from orchestrator.state.terms import Terms
from paddock.audit.chain import Event
from paddock.contract.break_glass import GlassAccess
from paddock.contract.budget import Budget
from paddock.contract.egress import body_rules
from paddock.contract.inspection import InspectedSession
from paddock.contract.session_requests import SessionBody
from paddock.contract.sessions import CreatedSession, Session, SessionSettings, Spawn
from paddock.contract.system import LevelLimits
from paddock.contract.words import Status

# Not shown as given: instead of these, what holds is shown.
_TERMS = Terms.names() & Session.model_fields.keys() - {
    *("limits", "idle_action", "workspace_path")
}

# The members of a session that have content, and what is shown instead.
WITHOUT_CONTENT: dict[str, Any] = {"commands": []}
INSPECTED_WITHOUT_CONTENT: dict[str, Any] = {
    **WITHOUT_CONTENT,
    "processes": None,
    "usage": None,
    "denials": [],
}


def settings(shown: domain.Session) -> SessionSettings:
    """The session's settings."""
    terms = shown.terms
    return SessionSettings.model_validate(
        {
            **_settings(shown),
            "idle_timeout": terms.idle_timeout,
            "wall_timeout": terms.wall_timeout,
            "deadlines": _deadlines(shown),
        }
    )


def session(shown: domain.Session, *, live: bool = False, veiled: bool = False) -> Session:
    """The session; with `live`, including its sandbox's state and limits.

    `veiled`: without its content.
    """
    without = WITHOUT_CONTENT if veiled else {}
    return Session.model_validate({**session_members(shown, live=live), **without})


def created(registered: Registered, principal: Principal) -> CreatedSession:
    """The new session, as its creator sees it."""
    gave_way = [
        session.id
        for session in registered.gave_way
        if principal.may_see(session.key, session.owner)
    ]
    members = session_members(registered.session, live=True)
    return CreatedSession.model_validate(
        members | {"handle": registered.handle, "gave_way": gave_way}
    )


def budget(shown: domain.Session) -> Budget:
    """The session's budget: limits, consumption, and what is left."""
    return Budget.model_validate(_budget(shown))


def session_members(
    shown: domain.Session, *, live: bool, frozen: bool | None = None
) -> dict[str, Any]:
    """The members of `Session`; those that are not listed have the domain's name and value.

    `frozen` is whether the host shows its processes as frozen.
    """
    return members(
        Session,
        shown,
        **_settings(shown),
        **_terms(shown),
        activity=activity(shown.status, works=shown.works, suspended=shown.suspended),
        sandbox=_sandbox(shown, live, frozen),
        secrets=list(shown.secrets.names),
        policy={"name": shown.policy.name, "sha256": shown.policy.sha256},
        consume=_consume(shown),
        limits=members(LevelLimits, shown.limits),
        budget=_budget(shown),
        deadlines=_deadlines(shown),
        termination=None if shown.termination is None else asdict(shown.termination),
        commands=[command_members(command) for command in shown.running],
        **_family(shown),
    )


def _terms(shown: domain.Session) -> dict[str, Any]:
    """The terms that are shown as they are."""
    return {name: value for name, value in shown.terms.stored().items() if name in _TERMS}


def _family(shown: domain.Session) -> dict[str, Any]:
    origin = shown.family.origin
    spawn = None if origin is None else members(Spawn, origin)
    return {
        "parent": None if origin is None else origin.parent_id,
        "children": [child.id for child in shown.family.children.values() if child.live],
        "depth": shown.family.depth,
        "spawn": spawn,
    }


def inspected(
    shown: domain.Session,
    inspection: Inspection,
    accesses: Sequence[break_glass.GlassAccess] = (),
    *,
    veiled: bool = False,
) -> InspectedSession:
    """The session and its current activity, with the open accesses to it.

    `veiled`: without its content.
    """
    measured, disk = inspection.measured, inspection.disk
    return InspectedSession.model_validate(
        {
            **session_members(shown, live=True, frozen=measured.frozen if measured else None),
            "policy": policy(shown.policy),
            "commands": [command_members(command) for command in shown.latest(LATEST)],
            "processes": None if measured is None else _processes(shown, measured),
            "usage": None if measured is None else asdict(measured.usage),
            "disk": None if disk is None else asdict(disk),
            "streams": {kind: shown.streams[kind] for kind in domain.STREAM_KINDS},
            "denials": [_denial(event) for event in inspection.denials],
            "telemetry": telemetry(shown, inspection.counts, datetime.now(UTC))._asdict(),
            "runtime": None if shown.sandbox is None else shown.sandbox.runtime,
            "own_link": None if shown.sandbox is None else shown.sandbox.own_link,
            "facilities": facilities_of(shown, inspection.host),
            "break_glass": [access_members(access) for access in accesses],
            **(INSPECTED_WITHOUT_CONTENT if veiled else {}),
        }
    )


def glass_access(shown: break_glass.GlassAccess) -> GlassAccess:
    """One open access."""
    return GlassAccess(**access_members(shown))


def access_members(shown: break_glass.GlassAccess) -> dict[str, Any]:
    """The members of an access."""
    return {
        "id": shown.id,
        "key": shown.key,
        "reason": shown.reason,
        "opened_at": time_text(shown.opened_at),
        "until": time_text(shown.until),
    }


def new_session(body: SessionBody, session_id: str | None = None) -> NewSession:
    """The domain's request to create a session, for the id in the path if there is one."""
    return NewSession(
        id=session_id or body.id,
        permission_level=body.permission_level,
        terms=_asked_terms(body),
        secrets=body.secrets,
        budget=body.budget.model_dump(exclude_none=True),
        egress=None if body.egress is None else body_rules(body.egress),
        lease_id=body.lease_id,
        consume=None if body.consume is None else pack_of(body.consume),
        policy=named_or_given(body.policy),
        from_snapshot=body.from_snapshot,
    )


def _asked_terms(body: SessionBody) -> Terms:
    members = body.model_dump(include=Terms.names(), exclude_none=True)
    if body.recovery == "none":
        del members["recovery"]
    return Terms.restored(members)


def _consume(shown: domain.Session) -> dict[str, Any] | None:
    if shown.pack is None:
        return None
    return {**shown.pack.recorded(), "refinement_count": shown.reissues}


def _budget(shown: domain.Session) -> dict[str, Any]:
    return shown.budget.view(datetime.now(UTC))._asdict()


def _settings(shown: domain.Session) -> dict[str, Any]:
    return {
        "permission_level": shown.level.name,
        "workspace": {"mode": "session", "root_dir": shown.root_dir},
    }


def _sandbox(shown: domain.Session, live: bool, frozen: bool | None) -> dict[str, Any] | None:
    sandbox = shown.sandbox
    if sandbox is None:
        return None
    if frozen is None:
        frozen = shown.status is Status.PAUSED
    return {
        "id": sandbox.name,
        "image": shown.terms.image,
        "network": sandbox.network or "none",
        "mounts": list(sandbox.mounts),
        "start": sandbox.start,
        "connected": sandbox.link.connected,
        "state": (ContainerState.PAUSED if frozen else ContainerState.RUNNING) if live else None,
        "limits": sandbox.limits if live else None,
    }


def _deadlines(shown: domain.Session) -> dict[str, str | None]:
    """The times at which the session ends by itself; null if there is none."""
    found = deadlines(shown)
    return {f"{name}_at": time_text(found[name]) if name in found else None for name in Deadline}


def _processes(shown: domain.Session, measured: Measured) -> list[dict[str, Any]]:
    """Processes as the host sees them, without secrets; without words while secrets are unknown."""
    if not shown.secrets.known:
        return [asdict(process) | {"name": "", "argv": []} for process in measured.processes]
    # Only text from the sandbox is searched: the rest comes from the host in a fixed form.
    cut = shown.secrets.cut_value
    return [
        asdict(process) | {"name": cut(process.name), "argv": cut(process.argv)}
        for process in measured.processes
    ]


def _denial(event: Event) -> dict[str, Any]:
    """A denial; `args` has what was refused, and the audit log has the whole event at `seq`."""
    names = ("seq", "time", "actor", "operation", "rule", "args", "error")
    return {name: event[name] for name in names}
