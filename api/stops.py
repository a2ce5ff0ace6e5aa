"""Requests that stop something: they are answered however much the caller has asked for before.

Each function says whether a request has an effect of that kind now. What stops nothing (any more)
counts as any other request does, so that nobody gets requests for free.
"""

from api.call import Call
from api.schemas import NoBody, SettingsBody, SignalBody
from api.tool_schemas import ApprovalBody
from orchestrator.errors import PaddockError
from orchestrator.sessions.session import Session
from paddock.contract.words import Status

# HUP, INT, QUIT, KILL, TERM and STOP.
_ENDING_SIGNALS = frozenset({1, 2, 3, 9, 15, 19})


def ends_session(call: Call, body: NoBody | None = None) -> bool:
    """The session lives."""
    session = _session(call)
    return session is not None and session.live


def pauses_session(call: Call, body: NoBody) -> bool:
    """The session is active."""
    session = _session(call)
    return session is not None and session.status is Status.ACTIVE


def interrupts(call: Call, body: NoBody) -> bool:
    """A command runs that nobody has ended yet."""
    session = _session(call)
    return session is not None and any(not command.ending for command in session.running)


def lowers_level(call: Call, body: SettingsBody) -> bool:
    """The session is at a higher level."""
    session = _session(call)
    wanted = call.plane.levels.get(body.permission_level or "")
    return (
        session is not None
        and session.live
        and wanted is not None
        and wanted.rank < session.level.rank
    )


def signals_command(call: Call, body: SignalBody) -> bool:
    """The command runs, and has not had this signal yet, which ends or stops a program."""
    session = _session(call)
    command = session and session.commands.get(call.request.match_info["command_id"])
    if not command or command.ended or body.signal not in _ENDING_SIGNALS:
        return False
    return body.signal not in command.signals


def closes_terminal(call: Call, body: None = None) -> bool:
    """The terminal has not ended, and is not ending."""
    session = _session(call)
    if session is None:
        return False
    terminal_id = call.request.match_info["terminal_id"]
    live = call.plane.terminals.live(session)
    return any(each.id == terminal_id and each.reason is None for each in live)


def denies_approval(call: Call, body: ApprovalBody) -> bool:
    """The approval waits for its decision."""
    approval_id = call.request.match_info["approval_id"]
    return body.decision == "deny" and call.plane.approvals.waits(call.principal, approval_id)


def _session(call: Call) -> Session | None:
    try:
        return call.session()
    except PaddockError:
        return None
