"""Sessions and commands as the API shows them. Nothing is changed, nobody asked."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from orchestrator.engine.base import ContainerState
from orchestrator.sessions.deadlines import Deadline, deadlines
from orchestrator.sessions.lifecycle import activity
from orchestrator.sessions.processes import Measured
from orchestrator.sessions.session import STREAM_KINDS, Command, Session
from orchestrator.workspace.quota import DiskUsage
from paddock.audit.chain import Event
from paddock.contract.words import Status

# Commands and denials that an inspection shows.
LATEST = 10


def settings_view(session: Session) -> dict[str, Any]:
    """The session's settings: `{permission_level, workspace {mode, root_dir}}`."""
    return {
        "permission_level": session.level.name,
        "workspace": {"mode": "session", "root_dir": session.root_dir},
    }


def session_view(
    session: Session, *, live: bool = False, frozen: bool | None = None
) -> dict[str, Any]:
    """The session's object; `live`: with the state and the limits of its sandbox.

    `frozen` is what the host shows of its processes.
    """
    return {
        "id": session.id,
        "incarnation": session.incarnation,
        "owner": session.owner,
        "status": session.status,
        "activity": activity(session.status, session.at_work),
        **settings_view(session),
        "sandbox": _sandbox_view(session, live, frozen),
        "labels": session.labels,
        "role": session.role,
        "tools": session.tools,
        "secrets": list(session.secrets.names),
        "limits": asdict(session.limits),
        "created_at": session.created_at,
        "last_activity_at": session.last_activity_at,
        "budget": session.budget.view(datetime.now(UTC)),
        "deadlines": deadlines_view(session),
        "termination": None if session.termination is None else asdict(session.termination),
        "commands": [command_view(command) for command in session.running],
    }


def inspection_view(
    session: Session,
    measured: Measured | None,
    disk: DiskUsage | None,
    denials: list[Event],
) -> dict[str, Any]:
    """The session's object, and what goes on in it now.

    `commands` are those that run and the latest that ended (10 in all, unless more run).
    `processes` is every process of the sandbox, the agent's included, and `usage` what they
    use of the session's `limits`; both null where the sandbox has none, or this host can't
    see them. `disk` is how full the workspace is; null where nothing holds it to its size.
    `streams` counts the clients that follow or transfer something: `{events, output,
    downloads, uploads}`. `denials` are the latest refusals, newest first.
    """
    return {
        **session_view(session, live=True, frozen=measured.frozen if measured else None),
        "commands": [command_view(command) for command in _latest_commands(session)],
        "processes": None if measured is None else _processes_view(session, measured),
        "usage": None if measured is None else asdict(measured.usage),
        "disk": None if disk is None else asdict(disk),
        "streams": {kind: session.streams[kind] for kind in STREAM_KINDS},
        "denials": [_denial_view(event) for event in denials],
    }


def _processes_view(session: Session, measured: Measured) -> list[dict[str, Any]]:
    """As the host sees them, without the secrets; without words while those are unknown."""
    hidden: dict[str, Any] = {} if session.secrets.known else {"name": "", "argv": []}
    return [session.secrets.cut_value(asdict(process) | hidden) for process in measured.processes]


def _latest_commands(session: Session) -> list[Command]:
    ended = [command for command in session.commands.values() if command.ended]
    kept = max(0, LATEST - len(session.running))
    wanted = {command.id for command in (*session.running, *ended[len(ended) - kept :])}
    return [command for command in session.commands.values() if command.id in wanted]


def _denial_view(event: Event) -> dict[str, Any]:
    """`args` say what was refused; the audit log has the whole event at `seq`."""
    members = ("seq", "time", "actor", "operation", "rule", "args", "error")
    return {name: event[name] for name in members}


def _sandbox_view(session: Session, live: bool, frozen: bool | None) -> dict[str, Any] | None:
    sandbox = session.sandbox
    if sandbox is None:
        return None
    if frozen is None:
        frozen = session.status is Status.PAUSED
    return {
        "id": sandbox.name,
        "image": session.image,
        "network": sandbox.network or "none",
        "mounts": list(sandbox.mounts),
        "connected": sandbox.link.connected,
        "state": (ContainerState.PAUSED if frozen else ContainerState.RUNNING) if live else None,
        "limits": sandbox.limits if live else None,
    }


def command_view(command: Command) -> dict[str, Any]:
    """One command: what it is, and what it came to once it has ended."""
    return {
        "command_id": command.id,
        "argv": command.argv,
        "background": command.background,
        "status": command_status(command),
        "started_at": command.started_at,
        "exit": command.result,
    }


def command_status(command: Command) -> str:
    """running, exited, or lost when its end is not known."""
    if command.result is None:
        return "running"
    return "lost" if command.result["exit_code"] is None else "exited"


def deadlines_view(session: Session) -> dict[str, str | None]:
    """`{idle_at, wall_at, budget_at}`: when the session ends by itself; null: not for that."""
    found = deadlines(session)
    return {
        f"{name}_at": found[name].strftime("%Y-%m-%dT%H:%M:%S.%fZ") if name in found else None
        for name in Deadline
    }
