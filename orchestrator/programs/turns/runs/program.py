"""The program of a run: ticks of its model, and the calls of tools between them."""

from collections.abc import Generator, Iterable, Sequence
from typing import Any

from orchestrator.programs.turns.outcome import Value, nonconverged
from orchestrator.programs.turns.programs import (
    NewMessage,
    OperationFailed,
    PolicyViolation,
    Program,
    Request,
    SpawnAll,
    TakeQueued,
    Tick,
)
from orchestrator.programs.turns.runs.conversation import Conversation
from orchestrator.programs.turns.runs.run_tool import RunTool, ToolArgumentsError, result
from orchestrator.programs.turns.runs.toolbox import named
from orchestrator.programs.turns.runs.tools import SPAWN
from orchestrator.work.models.messages import ModelMessage, ToolCall
from paddock.contract.remedies import REMEDIES

_MOST_NAMED = 16


def run_program(conversation: Conversation) -> Program:
    """A program whose value is the model's last text.

    It ends when the model calls no tool, and nothing is queued; after the last tick, or if the
    last text was cut off at the most tokens, it is `nonconverged`.
    """
    most = conversation.run.max_ticks
    for tick in range(1, most + 1):
        yield Tick(tick)
        called = conversation.called
        if not called.calls:
            more = yield TakeQueued()
            if not more and conversation.cut_off:
                return nonconverged(conversation.text, tick, "max-tokens")
            if not more:
                return conversation.text
        spawned: dict[ToolCall, str] = {}
        for number, call in enumerate(called.calls, 1):
            if call.name == SPAWN and call not in spawned:
                spawned = yield from _spawned(called.calls, conversation)
            if call in spawned:
                text = spawned[call]
            else:
                text = yield from _done(call, conversation)
            if called.dropped and number == len(called.calls):
                text += f"\n[{called.dropped} further calls at once were too many: not done]"
            yield NewMessage(ModelMessage("tool", text, call=call.id))
    return nonconverged(conversation.text, most, "max-iterations")


def _done(call: ToolCall, conversation: Conversation) -> Generator[Request, Value, str]:
    """Does what a call asks for; the result, or why there is none."""
    try:
        tool, given = _read(call, conversation)
    except ToolArgumentsError as error:
        return f"Refused: {error}"
    conversation.calling = call.id
    try:
        value = yield tool.operation(given)
    except (PolicyViolation, OperationFailed) as error:
        remedy = error.remedy if isinstance(error, PolicyViolation) else None
        return _failure(str(error), error.rule, remedy)
    return result(tool, given, value)


def _spawned(
    calls: Sequence[ToolCall], conversation: Conversation
) -> Generator[Request, Value, dict[ToolCall, str]]:
    """Does all calls of a tick that spawn children at the same time; the result of each."""
    found: dict[ToolCall, str] = {}
    read: dict[ToolCall, tuple[RunTool, Any]] = {}
    for call in calls:
        if call.name == SPAWN:
            try:
                read[call] = _read(call, conversation)
            except ToolArgumentsError as error:
                found[call] = f"Refused: {error}"
    operations = tuple(tool.operation(given) for tool, given in read.values())
    if operations:
        answers = yield SpawnAll(operations, tuple(call.id for call in read))
        for (call, (tool, given)), answer in zip(read.items(), _answers(answers), strict=True):
            value, problem, rule = answer
            text = result(tool, given, value) if problem is None else _failure(problem, rule)
            found[call] = text
    return found


def _answers(value: Value) -> Sequence[Any]:
    return value if isinstance(value, tuple) else ()


def _read(call: ToolCall, conversation: Conversation) -> tuple[RunTool, Any]:
    """The tool and its arguments. Raises: ToolArgumentsError."""
    tool = named(conversation.tools, call.name)
    if tool is None:
        known = _some(conversation.tools)
        raise ToolArgumentsError(f"there is no tool {call.name[:64]}: there are {known}")
    try:
        return tool, tool.read(call.arguments)
    except ToolArgumentsError as error:
        cut_off = conversation.cut_off
        why = ", because the answer had the most tokens and was cut off" if cut_off else ""
        raise ToolArgumentsError(f"{error}{why}") from None


def _some(names: Iterable[str]) -> str:
    """Names in a sentence: an operator may have very many tools."""
    first, others = list(names)[:_MOST_NAMED], list(names)[_MOST_NAMED:]
    return ", ".join(first) + (f" and {len(others)} more" if others else "")


def _failure(problem: str, rule: str | None, remedy: str | None = None) -> str:
    if rule is None:
        return f"Failed: {problem}"
    remedy = remedy or REMEDIES.get(rule)
    named = f"Refused by {rule}: {problem}"
    return named if remedy is None else f"{named}. {remedy}"
