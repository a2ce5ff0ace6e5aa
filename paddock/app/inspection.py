"""What a session is doing, and what it has done."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paddock.app.messages import Entry, TokenUsage, ToolCall
from paddock.app.reference import Status

if TYPE_CHECKING:
    from paddock.app.session import AppSession


@dataclass(frozen=True, slots=True)
class LastResult:
    """Whether a call of a tool succeeded."""

    call_id: str
    name: str
    success: bool


@dataclass(frozen=True, slots=True)
class Inspection:
    """A session at one moment; the `last_…` members are of its latest answer of the model.

    `parent` and `children` are ids; `depth` is 0 without a parent.
    """

    id: str
    parent: str | None
    children: tuple[str, ...]
    depth: int
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


def inspected(session: "AppSession") -> Inspection:
    """The session as it is now."""
    text, calls, results = _latest(session.timeline)
    return Inspection(
        id=session.id,
        parent=session.parent.id if session.parent else None,
        children=tuple(child.id for child in session.children),
        depth=session.depth,
        status=session.status,
        current_tick=session.tick + 1,
        tick_count=session.tick,
        queued_messages=session.queued_messages,
        is_aborted=session.is_aborted,
        last_output=text,
        last_tool_calls=calls,
        last_tool_results=results,
        total_usage=session.usage,
        tools=tuple(session.settings.tools),
    )


def _latest(
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
