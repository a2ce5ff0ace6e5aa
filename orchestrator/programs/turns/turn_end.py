"""How a turn ends: its outcome, from what its program returned or raised, and its event. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.events import EventDraft
from orchestrator.programs.turns.driver import SessionExceeded
from orchestrator.programs.turns.lisp.errors import LispError
from orchestrator.programs.turns.operations.turn_operation import Needed
from orchestrator.programs.turns.outcome import Outcome, Value, error, nonconverged, ok, proposed
from orchestrator.programs.turns.programs import OperationFailed, PolicyViolation
from orchestrator.programs.turns.turn import TurnRecord

POLICY, RUNTIME, INTERRUPTED = "policy-violation", "runtime-error", "interrupted"
_MOST_BYTES = 256 * 1024
_MOST_DEPTH = 64


def outcome_of(value: Value, proposals: int) -> Outcome:
    """The outcome of a program that returned a value and has staged that many changes."""
    if isinstance(value, Outcome):
        if value.tag == "ok" and proposals:
            return proposed(value.value)
        return value
    return proposed(value) if proposals else ok(value)


KNOWN = (Needed, SessionExceeded, PolicyViolation, LispError, OperationFailed, PaddockError)


def outcome_of_error(failure: BaseException, number: int) -> Outcome:
    """The outcome of a program that failed; what is not among `KNOWN` is a bug of ours."""
    if isinstance(failure, Needed):
        return failure.outcome
    if isinstance(failure, SessionExceeded):
        return nonconverged(None, number, "budget")
    if isinstance(failure, PolicyViolation):
        return error(str(failure), POLICY)
    if isinstance(failure, LispError):
        stack = (f"{each.name} (line {each.line}, column {each.column})" for each in failure.stack)
        return error(str(failure), RUNTIME, tuple(stack))
    if isinstance(failure, OperationFailed):
        return error(str(failure), RUNTIME)
    if isinstance(failure, PaddockError):
        return error(failure.detail, RUNTIME)
    return error("the turn failed because of an internal error, which is in the log", RUNTIME)


def shown(outcome: Outcome, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The outcome in the form of the API, with what it took.

    A value that can't be shown is an error.
    """
    form, problem = {}, _unfit(outcome)
    if problem is None:
        form = outcome.json()
        problem = _unfit_form(form)
    if problem is not None:
        form = error(f"the value {problem}", RUNTIME).json()
    return {**form, "metadata": {**form["metadata"], **metadata}}


def _unfit(outcome: Outcome) -> str | None:
    """Why a value can't be shown, as far as that is known before it is written."""
    level: list[Value] = [outcome]
    size = 0
    for _ in range(_MOST_DEPTH):
        size += sum(map(_least, level))
        if size > _MOST_BYTES:
            return f"has more than {_MOST_BYTES} bytes"
        level = [
            inner
            for each in level
            if isinstance(each, tuple | Outcome)
            for inner in (each if isinstance(each, tuple) else each.members)
        ]
        if not level:
            return None
    return f"has more than {_MOST_DEPTH} levels"


def _least(value: Value) -> int:
    """How many bytes a value has at least as JSON, without its elements."""
    if isinstance(value, str):
        return len(value) + 2
    return value.bit_length() // 4 + 1 if isinstance(value, int) else 1


def _unfit_form(form: dict[str, Any]) -> str | None:
    try:
        size = len(json.dumps(form, ensure_ascii=False, allow_nan=False).encode())
    except UnicodeEncodeError:
        return "has text that is not valid Unicode"
    except ValueError:
        return "has a number that is not finite"
    return f"has more than {_MOST_BYTES} bytes" if size > _MOST_BYTES else None


def turn_end(turn: TurnRecord, actor: str, duration_ms: int | None, *, is_run: bool) -> EventDraft:
    """The event of a turn's end; `is_run`: its program was a model."""
    outcome = turn.outcome or {}
    return EventDraft(
        "turn.end",
        actor=actor,
        result={
            "kind": "run" if is_run else "program",
            "tag": outcome.get("tag"),
            "operations": turn.operations,
            "tokens": turn.tokens_used,
        },
        error=outcome.get("message"),
        turn=turn.number,
        duration_ms=duration_ms,
        time=turn.ended_at,
        stop=True,
    )
