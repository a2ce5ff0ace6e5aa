"""Validates the form of an agent's messages before they are used. Pure functions."""

import re
from dataclasses import dataclass, field
from typing import Any

from orchestrator.ground.errors import (
    AuditUnavailableError,
    BudgetExceededError,
    BusyError,
    ConflictError,
    NotFoundError,
    PaddockError,
    PermissionDeniedError,
    PreconditionFailedError,
    RangeNotSatisfiableError,
    SandboxUnavailableError,
    TooLargeError,
    ValidationError,
)
from orchestrator.host.link.chunks import Chunk, end_output
from orchestrator.host.link.frames import MOST_HELLO_REST, size_of
from orchestrator.host.link.held_secrets import HeldSecrets, parse_secrets
from sandbox_agent.decide.excerpts import MOST_PATHS
from sandbox_agent.decide.facilities import Kernel
from sandbox_agent.decide.protocol import (
    AGENT_OPERATIONS,
    CPU_BUDGET,
    OUTPUT_BUDGET,
    Message,
)

_BOOT_ID = re.compile(r"[0-9a-f]{16}")
_COMMAND_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_MOST_LISTED = 256
# An event reports one action in a few members, none longer than a path.
_MOST_MEMBERS = 32
_LONGEST_TEXT = 16 * 1024
# The most words of a command line that an agent reports.
_MOST_WORDS = 64
# Numbers of an agent must fit JSON numbers of every reader.
_NUMBERS = 2**53
_NUMERIC = (int, float)
# The exit code of a program that a signal ended is 128 plus the signal's number.
_LARGEST_EXIT_CODE = 255
_COUNTS = ("cut_bytes", "stored_bytes", "output_bytes", "leftover_killed")
_HELLO_MEMBERS = frozenset(
    {
        "protocol",
        "boot_id",
        "configured",
        "running",
        "finished",
        "terminals",
        "landlock_abi",
        "seccomp",
        "undisturbed",
        "mdwe",
        "compiled_guard",
        "session_cpu_us",
        "session_output_bytes",
        "secrets",
    }
)
_ERRORS: dict[str, type[PaddockError]] = {
    error.code: error
    for error in (
        AuditUnavailableError,
        BudgetExceededError,
        BusyError,
        ConflictError,
        NotFoundError,
        PermissionDeniedError,
        PreconditionFailedError,
        RangeNotSatisfiableError,
        TooLargeError,
        ValidationError,
    )
}


@dataclass(frozen=True, slots=True)
class Hello:
    """The message with which an agent connects; `configured`: it knows its session.

    `kernel` has the facilities that it found; `totals` is its session's consumption, by budget
    kind. `compiled_guard`: it has the guard in C.
    """

    boot_id: str
    configured: bool
    running: frozenset[str]
    finished: frozenset[str]
    terminals: frozenset[str]
    kernel: Kernel
    totals: dict[str, int] = field(default_factory=dict)
    secrets: HeldSecrets = field(default_factory=HeldSecrets)
    compiled_guard: bool = False


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """One audit event of an agent, validated in form."""

    boot_id: str
    seq: int
    operation: str
    decision: str | None
    rule: str | None
    command_id: str | None
    args: dict[str, Any]
    result: dict[str, Any] | None
    error: str | None
    duration_ms: int | None
    # The output of a command that has ended, as (stream, offset, bytes); None: it must be
    # requested.
    output: tuple[Chunk, ...] | None = field(default=None, repr=False)


def answer_of(method: str, answer: Message) -> Message:
    """The result in an agent's answer. Raises: the error that it returned."""
    if "error" in answer:
        raise domain_error(answer["error"])
    value = answer.get("result")
    if not isinstance(value, dict):
        raise SandboxUnavailableError(f"the sandbox agent sent a malformed answer to {method}")
    return value


def malformed() -> SandboxUnavailableError:
    """The error for an agent's answer that can't be trusted."""
    return SandboxUnavailableError("the sandbox agent sent a malformed answer")


def domain_error(error: Any) -> PaddockError:
    """The error that an agent returned, with a code that agents may use."""
    if not isinstance(error, dict):
        return malformed()
    data = error.get("data")
    if not isinstance(data, dict):
        data = {}
    kind = _ERRORS.get(str(data.get("code")), SandboxUnavailableError)
    rule = data.get("rule")
    return kind(str(error.get("message"))[:2048], rule=rule if isinstance(rule, str) else None)


def parse_hello(params: Any) -> Hello:
    """Raises ValueError for a malformed hello."""
    if not _HELLO_MEMBERS.issuperset(params):
        raise ValueError("it has unknown members")
    if size_of({**params, "secrets": None}) > MOST_HELLO_REST:
        raise ValueError(f"it may have at most {MOST_HELLO_REST} bytes besides secrets")
    boot_id, configured = params.get("boot_id"), params.get("configured")
    if not isinstance(boot_id, str) or not _BOOT_ID.fullmatch(boot_id):
        raise ValueError("boot_id must be 16 hex digits")
    if not isinstance(configured, bool):
        raise ValueError("configured must be true or false")
    running, finished = _ids(params.get("running")), _ids(params.get("finished"))
    terminals = _ids(params.get("terminals"))
    secrets = parse_secrets(params.get("secrets", {"variables": {}, "given": []}))
    totals, compiled = session_totals(params), params.get("compiled_guard", False)
    if not isinstance(compiled, bool):
        raise ValueError("compiled_guard must be true or false")
    work = running, finished, terminals
    return Hello(boot_id, configured, *work, _kernel(params), totals, secrets, compiled)


def _kernel(params: Message) -> Kernel:
    landlock = params.get("landlock_abi")
    if isinstance(landlock, bool) or not isinstance(landlock, int) or not 0 <= landlock <= 1000:
        raise ValueError("landlock_abi must be a small number")
    found = [params.get(name, False) for name in ("seccomp", "undisturbed", "mdwe")]
    if not all(isinstance(has, bool) for has in found):
        raise ValueError("seccomp, undisturbed and mdwe must be true or false")
    return Kernel(landlock, *found)


def session_totals(members: Message) -> dict[str, int]:
    """The session's consumption so far, by budget kind, for the kinds among these members.

    Raises: ValueError for malformed members.
    """
    names = {CPU_BUDGET: "session_cpu_us", OUTPUT_BUDGET: "session_output_bytes"}
    return {
        kind: _number(members, name, least=0) for kind, name in names.items() if name in members
    }


def _ids(value: Any) -> frozenset[str]:
    if not isinstance(value, list) or len(value) > _MOST_LISTED:
        raise ValueError("command ids must be a short list")
    if not all(isinstance(item, str) and _COMMAND_ID.fullmatch(item) for item in value):
        raise ValueError("command ids must be short strings")
    return frozenset(value)


def parse_event(params: Any) -> AgentEvent:
    """Raises ValueError for a malformed event."""
    if not isinstance(params, dict):
        raise ValueError("event must be an object")
    operation, decision = params.get("operation"), params.get("decision")
    if not isinstance(operation, str) or operation not in AGENT_OPERATIONS:
        raise ValueError("an agent may not report this operation")
    if decision not in ("allow", "deny", None):
        raise ValueError("decision must be allow, deny or null")
    args, outcome = params.get("args"), params.get("result")
    if not isinstance(args, dict) or not isinstance(outcome, dict | None):
        raise ValueError("args and result must be objects")
    _check_flat(args)
    _check_flat(outcome or {})
    session_totals(outcome or {})
    if operation in ("command.exit", "pty.exit"):
        _check_end(outcome or {})
    if operation == "budget.exceeded":
        _check_exceeded(args)
    command_id = _text(params, "command_id")
    if command_id is not None and not _COMMAND_ID.fullmatch(command_id):
        raise ValueError("command_id must be a short string")
    return AgentEvent(
        boot_id=str(params.get("boot_id")),
        seq=_number(params, "seq", least=1),
        operation=operation,
        decision=decision,
        rule=_text(params, "rule"),
        command_id=command_id,
        args=args,
        result=outcome,
        error=_text(params, "error"),
        duration_ms=_number(params, "duration_ms", least=0),
        output=end_output(params) if operation == "command.exit" else None,
    )


def _check_end(outcome: Message) -> None:
    """Raises ValueError for numbers that the end of a program can't have."""
    if outcome.get("exit_code") is not None:
        _number(outcome, "exit_code", least=0, most=_LARGEST_EXIT_CODE)
    for name in _COUNTS:
        if outcome.get(name) is not None:
            _number(outcome, name, least=0)


def _check_exceeded(args: Message) -> None:
    """Raises ValueError unless it is about a budget that agents watch."""
    if args.get("kind") not in (CPU_BUDGET, OUTPUT_BUDGET):
        raise ValueError("kind must be a budget that agents watch")
    _number(args, "consumed", least=0)


def _check_flat(members: Message) -> None:
    """Raises ValueError for members that are more, larger or deeper than our agent's ever are."""
    if len(members) > _MOST_MEMBERS:
        raise ValueError("args and result must have few members")
    for name, item in members.items():
        most = MOST_PATHS if name == "paths" else _MOST_WORDS
        words = isinstance(item, list) and len(item) <= most and all(map(_is_short_text, item))
        if not (_is_short(name) and (words or _is_short(item))):
            raise ValueError("members of args and result must be short")


def _is_short(item: Any) -> bool:
    if isinstance(item, str):
        return len(item) <= _LONGEST_TEXT
    if isinstance(item, _NUMERIC):
        return -_NUMBERS < item < _NUMBERS  # values other than numbers are ignored here
    return item is None


def _is_short_text(item: Any) -> bool:
    return isinstance(item, str) and _is_short(item)


def _text(params: Message, name: str) -> str | None:
    value = params.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > _LONGEST_TEXT):
        raise ValueError(f"{name} must be a string of a reasonable length")
    return value


def _number(params: Message, name: str, least: int, most: int = _NUMBERS - 1) -> int:
    value = params.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be an integer")
    return value
