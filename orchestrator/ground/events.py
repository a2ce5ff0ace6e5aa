"""The members of audit events and their limits. No I/O."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, get_args

from paddock.audit.chain import Event, canonical
from paddock.contract.words import OperationName

SYSTEM_KEY = "system"  # the chain of events without a session

OPERATIONS = frozenset(
    {
        "session.create",
        "session.close",
        "session.settings",
        "session.episode",
        "session.pause",
        "session.resume",
        "session.suspended",
        "session.restored",
        "session.fenced",
        "session.unfenced",
        "access.break_glass",
        "access.end",
        "session.moving",
        "session.moved",
        "session.stayed",
        "session.arrived",
        "session.snapshot",
        "session.spawn",
        "session.spawn_end",
        "session.terminated",
        "command.start",
        "command.exec",
        "command.exit",
        "command.oom",
        "command.evidence",
        "code.start",
        "code.exit",
        "file.read",
        "file.write",
        "file.list",
        "file.delete",
        "file.mkdir",
        "file.move",
        "file.symlink",
        "file.pack",
        "file.unpack",
        "file.stat",
        "file.search",
        "file.patch",
        "file.copy",
        "file.chmod",
        "file.watch",
        "pty.open",
        "pty.interaction",
        "pty.result",
        "pty.output",
        "pty.exit",
        "pty.close",
        "shell.run",
        "shell.input",
        "shell.result",
        "egress.request",
        "egress.close",
        "read",
        "proposal.commit",
        "proposal.end",
        "proposal.rollback",
        "coordination.context_refinement_request",
        "port.open",
        "port.close",
        "memory.search",
        "memory.write",
        "memory.remove",
        "secret.set",
        "secret.remove",
        "key.create",
        "key.revoke",
        "key.rotate",
        "user.revoke",
        "user.sign_in",
        "user.sign_out",
        "hook.create",
        "hook.remove",
        "template.start",
        "template.end",
        "snapshot.start",
        "snapshot.end",
        "snapshot.change",
        "snapshot.remove",
        "session.fork",
        "session.fork_end",
        "volume.create",
        "volume.remove",
        "turn.start",
        "turn.end",
        "turn.queue",
        "tool.request",
        "budget.exceeded",
        "budget.usage",
        "approval.request",
        "approval.decision",
        "policy.reloaded",
        "recovery",
        "agent.violation",
        "audit.gap",
        "audit.archived",
        "audit.erased",
        "owner.erase",
        "owner.erased",
        "owner.export",
        "state.restored",
        *get_args(OperationName),
        # Policies permit it as `shell`.
        "world.code",
    }
)
SOURCES = frozenset({"control-plane", "agent", "engine"})
DECISIONS = frozenset({"allow", "deny", "pending"})

MAX_TEXT_BYTES = 8 * 1024  # one string
MAX_OBJECT_BYTES = 64 * 1024  # args, or result, as canonical text
MAX_DEPTH = 16
_MARKER_BYTES = 40  # room for the note of how much was cut
_MAX_INTEGER = 2**63 - 1
# A dict is found without asking Mapping, which takes ten times as long.
_OBJECTS = (dict, Mapping)
_ARRAYS = (list, tuple)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z", re.ASCII)


class EventError(ValueError):
    """An event that can't be recorded in this form; the message names the member."""


class Made(NamedTuple):
    """Members of `args` and `result` that the control plane created: ids, digests, sizes.

    They contain nothing chosen by a client, so no secret is removed from them. A secret that equals
    the beginning of a digest would otherwise make the recorded evidence impossible to find.
    """

    args: Mapping[str, Any] = {}
    result: Mapping[str, Any] = {}


NOTHING_MADE = Made()


class EventDraft(NamedTuple):
    """An event before the ledger gives it a place in its chain.

    A draft for a session lacks the session's identity, which the `Recorder` adds. Without it, the
    event belongs to no session.

    `args` and `result` hold JSON values without floats: numbers are integers (microseconds where
    needed). `made` has more members of both. `agent` is the sandbox agent's (boot_id, seq). `time`
    is the time of the event, RFC 3339 UTC with microseconds; the default is the time of the append.
    `stop`: the event stops something or is an end, so it may use the space reserved for that on a
    full disk, and may follow the session's end.
    """

    operation: str
    actor: str
    source: str = "control-plane"
    decision: str | None = None
    rule: str | None = None
    args: Mapping[str, Any] = {}
    result: Mapping[str, Any] | None = None
    made: Made = NOTHING_MADE
    error: str | None = None
    duration_ms: int | None = None
    command_id: str | None = None
    agent: tuple[str, int] | None = None
    turn: int | None = None
    tokens_used: int | None = None
    time: str | None = None
    stop: bool = False
    # The session's identity.
    session_key: str = SYSTEM_KEY
    session_id: str | None = None
    # The number of the session among those with its id, from 1.
    incarnation: int | None = None
    permission_level: str | None = None
    workspace_root: str | None = None


def now() -> str:
    """The time in the form of events and records: RFC 3339, UTC, microseconds."""
    return time_text(datetime.now(UTC))


def time_text(moment: datetime) -> str:
    """A time in UTC, in that form."""
    # A tenth of what strftime takes, which every event would pay for.
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def members(draft: EventDraft) -> Event:
    """The event's members that do not depend on its place. Raises: EventError."""
    _one_of("operation", draft.operation, OPERATIONS)
    _one_of("source", draft.source, SOURCES)
    if draft.decision is not None:
        _one_of("decision", draft.decision, DECISIONS)
    if draft.time is not None and not _TIME.fullmatch(draft.time):
        raise EventError("time must be RFC 3339 in UTC with microseconds")
    if not draft.session_key:
        raise EventError("session_key must not be empty")
    result = draft.result
    if draft.made.result:
        result = {**(result or {}), **draft.made.result}
    args = _object("args", {**draft.args, **draft.made.args} if draft.made.args else draft.args)
    if draft.command_id is not None:
        args["command_id"] = _string("command_id", draft.command_id)
    return {
        "time": draft.time or now(),
        "session_id": _string("session_id", draft.session_id),
        "incarnation": _integer("incarnation", draft.incarnation),
        "turn": _integer("turn", draft.turn),
        "source": draft.source,
        "actor": _string("actor", draft.actor),
        "operation": draft.operation,
        "decision": draft.decision,
        "rule": _string("rule", draft.rule),
        "permission_level": _string("permission_level", draft.permission_level),
        "workspace_root": _string("workspace_root", draft.workspace_root),
        "args": args,
        "result": None if result is None else _object("result", result),
        "error": _string("error", draft.error),
        "duration_ms": _integer("duration_ms", draft.duration_ms),
        "tokens_used": _integer("tokens_used", draft.tokens_used),
        "agent": None if draft.agent is None else _agent(draft.agent),
    }


def written(event: Event) -> tuple[Event, str]:
    """The event with `args` and `result` within MAX_OBJECT_BYTES, and its canonical text.

    All readers of the event share this text. It is made again only if something was too large.
    """
    text = canonical(event)
    # Only a long text can contain an object that is too large: a character has at most 4 bytes.
    if len(text) > MAX_OBJECT_BYTES // 4:
        event = event | {"args": _fitted_args(event["args"])}
        if event["result"] is not None:
            event["result"] = _fitted(event["result"])
        text = canonical(event)
    return event, text


def printable(value: Any) -> Any:
    """A JSON value in its recorded form; applying it twice changes nothing.

    Lone surrogates and NUL become backslash escapes. Strings longer than MAX_TEXT_BYTES are cut,
    with a note at their end. Raises: EventError for floats, integers over 64 bits, values without a
    JSON form, and nesting deeper than MAX_DEPTH.
    """
    return _printable(value, MAX_DEPTH)


def _printable(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _bounded(value)
    if depth == 0:
        raise EventError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, _OBJECTS):
        return {_key(key): _printable(item, depth - 1) for key, item in value.items()}
    if isinstance(value, _ARRAYS):
        return [_printable(item, depth - 1) for item in value]
    raise EventError(f"{type(value).__name__} values are not recorded")


def _text(value: str) -> str:
    if len(value) <= MAX_TEXT_BYTES and value.isascii() and "\0" not in value:
        return value
    data = value.encode("utf-8", "backslashreplace").replace(b"\0", b"\\x00")
    if len(data) <= MAX_TEXT_BYTES:
        return data.decode()
    kept = data[: MAX_TEXT_BYTES - _MARKER_BYTES].decode("utf-8", "ignore")
    return f"{kept}[{len(data) - len(kept.encode())} more bytes]"


def _key(value: Any) -> str:
    if not isinstance(value, str):
        raise EventError("names of members must be strings")
    return _text(value)


def _bounded(value: int) -> int:
    if not -_MAX_INTEGER <= value <= _MAX_INTEGER:
        raise EventError("integers may have 64 bits")
    return value


def _object(name: str, value: Mapping[str, Any]) -> Event:
    if not isinstance(value, _OBJECTS):
        raise EventError(f"{name} must be an object")
    try:
        members: Event = printable(value)
    except EventError as error:
        raise EventError(f"{name}: {error}") from None
    return members


def _fitted_args(args: Event) -> Event:
    """The arguments within the limit; `command_id` stays, however large the others are."""
    if "command_id" not in args:
        return _fitted(args)
    others = {name: value for name, value in args.items() if name != "command_id"}
    return _fitted(others) | {"command_id": args["command_id"]}


def _fitted(value: Event) -> Event:
    """Limits the object to MAX_OBJECT_BYTES: large members become the start of their text."""
    if _size(value) <= MAX_OBJECT_BYTES:
        return value
    cut = {name: _excerpt(item) for name, item in value.items()}
    return cut if _size(cut) <= MAX_OBJECT_BYTES else {"truncated": _excerpt(value)}


def _excerpt(value: Any) -> Any:
    text = canonical(value)
    return value if len(text.encode()) <= MAX_TEXT_BYTES else _text(text)


def _size(value: Any) -> int:
    return len(canonical(value).encode())


def _one_of(name: str, value: str, known: frozenset[str]) -> None:
    if value not in known:
        raise EventError(f"{name} {value!r} is not known")


def _string(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise EventError(f"{name} must be a string")
    return _text(value)


def _integer(name: str, value: int | None) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_INTEGER:
        raise EventError(f"{name} must be an integer that is not negative")
    return value


def _agent(value: tuple[str, int]) -> Event:
    boot_id, seq = value
    if not isinstance(boot_id, str) or not 1 <= len(boot_id) <= 64:
        raise EventError("agent: boot_id must be a string of 1 to 64 characters")
    if isinstance(seq, bool) or not isinstance(seq, int) or not 1 <= seq <= _MAX_INTEGER:
        raise EventError("agent: seq must be a positive integer")
    return {"boot_id": _text(boot_id), "seq": seq}
