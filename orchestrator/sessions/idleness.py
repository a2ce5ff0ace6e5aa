"""Whether a session could do without its sandbox. Pure."""

from collections.abc import Iterable

from orchestrator.state.command import Command
from orchestrator.state.session import Session
from paddock.contract.words import Status

# Streams that read or write the workspace.
_TRANSFERS = ("downloads", "uploads")


def why_busy(session: Session, own_uses: int = 0, *, waiting_ends: bool = False) -> str | None:
    """What would be interrupted without the session's sandbox; None if nothing would.

    `own_uses`: how often the caller itself is using the session. `waiting_ends`: the caller ends
    what only waits for work, as the programs of code contexts do.
    """
    used = session.at_work > 0 or session.uses > own_uses
    left = session.commands.unsettled
    if used or not all(waiting_ends and command in waiting(session) for command in left):
        return "commands or requests run in the session: wait for them, or interrupt them"
    if session.terminals:
        return "terminals are open in the session: close them"
    if session.ports.open:
        return "ports of the session are open: close them"
    if any(session.streams[kind] for kind in _TRANSFERS):
        return "files are being sent to or from the session"
    return None


def waiting(session: Session) -> list[Command]:
    """The commands that run and only wait for work."""
    return [command for command in session.running if command.waits]


def can_be_suspended(session: Session) -> bool:
    """Whether nothing of the session would be interrupted or forgotten without its sandbox.

    Open terminals and open ports count as running. A session with secrets keeps its sandbox:
    without it, a restart of the control plane would lose the values. So does one that may change
    files of its context pack, because they are compared with it whenever a sandbox starts.
    """
    sandbox, secrets = session.sandbox, session.secrets
    return (
        sandbox is not None
        and sandbox.link.connected
        and is_untouched(session)
        and session.suspension is None
        and not session.lock.locked()
        and why_busy(session, waiting_ends=True) is None
        and (session.pack is None or session.pack.constant)
        and secrets.known
        and secrets.message() is None
    )


def least_recently_used(sessions: Iterable[Session]) -> Session | None:
    """The session to suspend first; None if none can be."""
    idle = (session for session in sessions if can_be_suspended(session))
    return min(idle, key=lambda session: (session.last_activity_at, session.key), default=None)


def is_untouched(session: Session) -> bool:
    """Whether no other change of the session has begun."""
    return (
        session.status is Status.ACTIVE
        and session.gate is None
        and not session.ending
        and not session.fenced
        and session.budget.exceeded is None
        and session.sandbox is not None
        and session.sandbox.freezing is None
    )
