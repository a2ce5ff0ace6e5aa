"""Requests that stop something: they are answered regardless of the caller's request rate.

Each function returns whether a request has such an effect now. A request that stops nothing (any
more) counts like any other, so that it is not free. Services are named by type, as operations do.
"""

from datetime import UTC, datetime

from api.shape.context import Context
from orchestrator.ground.errors import PaddockError
from orchestrator.operate.hooks.hooks import Hooks
from orchestrator.record.secrets.proxy_secrets import ProxySecrets, holder_of
from orchestrator.rules.access.keys import Role
from orchestrator.rules.policy.levels import Levels
from orchestrator.sessions.deadlines import changed, due
from orchestrator.state.requests import NewTimeouts
from orchestrator.state.secret import Holder
from orchestrator.state.session import Session
from orchestrator.work.approvals.approvals import Approvals
from orchestrator.work.code.context import CodeContext
from orchestrator.work.code.contexts import Contexts
from orchestrator.work.shells.kept_shells import KeptShells
from orchestrator.work.terminals.terminals import Terminals
from paddock.contract.approvals import ApprovalBody
from paddock.contract.command_requests import SignalBody
from paddock.contract.requests import NoBody
from paddock.contract.runs import InterruptBody
from paddock.contract.session_requests import SettingsBody
from paddock.contract.words import Status

# HUP, INT, QUIT, KILL, TERM and STOP.
_ENDING_SIGNALS = frozenset({1, 2, 3, 9, 15, 19})


def ends_session(context: Context, body: NoBody | None = None) -> bool:
    """Whether the session is alive."""
    session = _session(context)
    return session is not None and session.live


def pauses_session(context: Context, body: NoBody) -> bool:
    """Whether the session is active."""
    session = _session(context)
    return session is not None and session.status is Status.ACTIVE


def interrupts(context: Context, body: InterruptBody) -> bool:
    """Whether a command runs that is not being ended yet."""
    session = _session(context)
    return session is not None and any(not command.ending for command in session.running)


def by_settings(context: Context, body: SettingsBody, levels: Levels) -> bool:
    """Whether the session is lowered, or ended by its time-outs, and nothing else is asked for."""
    session, asked = _session(context), body.settings
    if session is None or not session.live or asked.workspace.given:  # may be refused for that
        return False
    wanted = levels.get(asked.permission_level or "")
    if not asked.sets_time:
        return wanted is not None and wanted.rank < session.level.rank
    times, now = NewTimeouts(*asked.times), datetime.now(UTC)
    return wanted is None and due(session, now, changed(session, times, now)) is not None


def signals_command(context: Context, body: SignalBody) -> bool:
    """Whether the command runs and has not yet received this signal, which ends or stops it."""
    session = _session(context)
    command = session and session.commands.get(context.path["command_id"])
    if not command or command.ended or body.signal not in _ENDING_SIGNALS:
        return False
    return body.signal not in command.signals


def closes_terminal(context: Context, body: None, terminals: Terminals) -> bool:
    """Whether the terminal has not ended and is not ending."""
    session = _session(context)
    if session is None:
        return False
    terminal_id = context.path["terminal_id"]
    live = terminals.live(session)
    return any(each.id == terminal_id and each.reason is None for each in live)


def interrupts_shell(context: Context, body: NoBody, kept_shells: KeptShells) -> bool:
    """Whether a command runs in the shell."""
    session = _session(context)
    shells = [] if session is None else kept_shells.list(session)
    return any(each.name == context.path["name"] and each.running for each in shells)


def closes_shell(context: Context, body: None, kept_shells: KeptShells) -> bool:
    """Whether the shell has not ended and is not ending."""
    session = _session(context)
    shells = [] if session is None else kept_shells.list(session)
    return any(each.name == context.path["name"] for each in shells)


def closes_port(context: Context, body: None = None) -> bool:
    """Whether the port is open."""
    session = _session(context)
    if session is None:
        return False
    return any(str(number) == context.path["port"] for number in session.ports.open)


def interrupts_code(context: Context, body: NoBody, contexts: Contexts) -> bool:
    """Whether the context executes a cell that is not being stopped yet."""
    cell = next((each.cell for each in _code_contexts(context, contexts)), None)
    return cell is not None and not cell.stopping.done()


def removes_code_context(context: Context, body: None, contexts: Contexts) -> bool:
    """Whether the context's program runs."""
    return any(each.alive for each in _code_contexts(context, contexts))


def _code_contexts(context: Context, contexts: Contexts) -> list[CodeContext]:
    """The context of the path, if there is one."""
    session = _session(context)
    found = [] if session is None else contexts.listed(session)
    return [each for each in found if each.name == context.path["name"]]


def removes_secret(context: Context, body: None, secrets: ProxySecrets) -> bool:
    """Whether requests may have the secret: one of the caller's key, or any for an admin."""
    principal = context.principal
    holders = secrets.holders if principal.role is Role.ADMIN else [Holder(principal.name)]
    return any(_is_usable(context, secrets, holder) for holder in holders if not holder.session_key)


def removes_session_secret(context: Context, body: None, secrets: ProxySecrets) -> bool:
    """Whether the session's requests may have the secret, which is its own."""
    session = _session(context)
    if session is None:
        return False
    return _is_usable(context, secrets, holder_of(session))


def _is_usable(context: Context, secrets: ProxySecrets, holder: Holder) -> bool:
    found = secrets.get(holder, context.path["name"])
    return found is not None and found.value is not None


def removes_hook(context: Context, body: None, hooks: Hooks) -> bool:
    """Whether the caller may remove the hook, and something may still be sent to it."""
    hook_id = context.path["hook_id"]
    managed = any(hook.id == hook_id for hook in hooks.visible(context.principal))
    return managed and hooks.sends(hook_id)


def denies_approval(context: Context, body: ApprovalBody, approvals: Approvals) -> bool:
    """Whether the approval waits for its decision."""
    approval_id = context.path["approval_id"]
    return body.decision == "deny" and approvals.waits(context.principal, approval_id)


def _session(context: Context) -> Session | None:
    try:
        return context.session()
    except PaddockError:
        return None
