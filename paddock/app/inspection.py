"""What a session is doing, and what it has done."""

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.app.messages import Entry, TokenUsage, ToolCall
from paddock.app.reference import Status


@dataclass(frozen=True, slots=True)
class LastResult:
    """Whether a call of a tool succeeded."""

    call_id: str
    name: str
    success: bool


@dataclass(frozen=True, slots=True)
class Inspection:
    """A session at one moment; the `last_…` members are of its latest answer of the model."""

    id: str
    status: Status
    current_tick: int
    tick_count: int
    queued_messages: tuple[str, ...]
    is_aborted: bool
    last_output: str | None
    last_tool_calls: tuple[ToolCall, ...]
    last_tool_results: tuple[LastResult, ...]
    total_usage: TokenUsage
    tools: tuple[str, ...]


def latest(
    timeline: Sequence[Entry],
) -> tuple[str | None, tuple[ToolCall, ...], tuple[LastResult, ...]]:
    """The model's latest answer: its text, its calls, and their results."""
    at = next((at for at in reversed(range(len(timeline))) if timeline[at].role == "assistant"), -1)
    if at < 0:
        return None, (), ()
    answer = timeline[at]
    names = {call.id: call.name for call in answer.calls}
    results = tuple(
        LastResult(each.call_id, names.get(each.call_id, ""), not each.failed)
        for each in timeline[at + 1 :]
        if each.role == "tool" and each.call_id is not None
    )
    return answer.content, answer.calls, results
