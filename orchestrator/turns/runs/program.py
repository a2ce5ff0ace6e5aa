"""The program of a run: ticks of its model, and the calls of tools between them."""

from collections.abc import Generator

from orchestrator.models.messages import ModelMessage, ToolCall
from orchestrator.turns.outcome import Value, nonconverged
from orchestrator.turns.programs import (
    NewMessage,
    OperationFailed,
    PolicyViolation,
    Program,
    Request,
    TakeQueued,
    Tick,
)
from orchestrator.turns.runs.conversation import Conversation
from orchestrator.turns.runs.run_tool import ToolArgumentsError, result
from orchestrator.turns.runs.toolbox import named
from paddock.contract.remedies import REMEDIES


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
        for number, call in enumerate(called.calls, 1):
            text = yield from _done(call, conversation)
            if called.dropped and number == len(called.calls):
                text += f"\n[{called.dropped} further calls at once were too many: not done]"
            yield NewMessage(ModelMessage("tool", text, call=call.id))
    return nonconverged(conversation.text, most, "max-iterations")


def _done(call: ToolCall, conversation: Conversation) -> Generator[Request, Value, str]:
    """Does what a call asks for; the result, or why there is none."""
    tool = named(conversation.tools, call.name)
    if tool is None:
        known = ", ".join(conversation.tools)
        return f"Refused: there is no tool {call.name[:64]}: there are {known}"
    try:
        given = tool.read(call.arguments)
    except ToolArgumentsError as error:
        cut_off = conversation.cut_off
        why = ", because the answer had the most tokens and was cut off" if cut_off else ""
        return f"Refused: {error}{why}"
    conversation.calling = call.id
    try:
        value = yield tool.operation(given)
    except PolicyViolation as error:
        return _refusal(str(error), error.rule)
    except OperationFailed as error:
        return f"Failed: {error}" if error.rule is None else _refusal(str(error), error.rule)
    return result(tool, given, value)


def _refusal(said: str, rule: str | None) -> str:
    remedy = REMEDIES.get(rule or "")
    named = f"Refused by {rule}: {said}"
    return named if remedy is None else f"{named}. {remedy}"
