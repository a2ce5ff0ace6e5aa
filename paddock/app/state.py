"""A session's conversation, on which its run and its children work, and who sees it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from paddock.app.agent import Status
from paddock.app.execution import Execution
from paddock.app.messages import Entry, Input, Reply, TokenUsage, ToolCall, user_messages
from paddock.app.store import AppSnapshot

_MOST_QUEUED = 1000


class Conversation:
    """What was said, what waits to be said, and what that used.

    Attributes:
        tick: the number of ticks that have ended.
        run: the run that is going on.
        is_aborted, abort_reason: whether and why the latest run was interrupted.
        is_closed: no work is taken any more.
    """

    def __init__(self, snapshot: AppSnapshot | None = None) -> None:
        self.tick = snapshot.tick if snapshot else 0
        self.timeline: list[Entry] = list(snapshot.timeline) if snapshot else []
        self.usage = snapshot.usage if snapshot else TokenUsage()
        self._queued: list[Entry] = list(snapshot.queued) if snapshot else []
        self.run: Execution | None = None
        self.is_aborted = self.is_closed = False
        self.abort_reason = ""

    @property
    def queued(self) -> tuple[str, ...]:
        """The messages that wait for the next tick."""
        return tuple(each.content for each in self._queued)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said, and nothing waits."""
        return not self._queued and not self.timeline

    def queue(self, messages: Input) -> None:
        """Keeps messages for the next tick. Raises: TypeError, ValueError."""
        new = user_messages(messages)
        if len(self._queued) + len(new) > _MOST_QUEUED:
            raise ValueError(f"a session's queue holds {_MOST_QUEUED} messages")
        self._queued.extend(new)

    def take_queued(self) -> None:
        """Moves what waits to the timeline."""
        self.timeline.extend(self._queued)
        self._queued.clear()

    def record_reply(self, reply: Reply) -> None:
        """Adds the model's answer to the timeline, and its tokens to the session's."""
        self.usage += reply.usage
        calls = tuple(reply.calls)
        said = Entry(role="assistant", content=reply.text, calls=calls, extra=dict(reply.extra))
        self.timeline.append(said)

    def abort(self, reason: str) -> None:
        """The run that is going on is interrupted."""
        self.is_aborted, self.abort_reason = True, reason

    def snapshot(self, session_id: str) -> AppSnapshot:
        """The conversation as it is now."""
        return AppSnapshot(
            session_id=session_id,
            tick=self.tick,
            timeline=tuple(self.timeline),
            queued=tuple(self._queued),
            usage=self.usage,
            timestamp=datetime.now(UTC),
        )


class Watcher(Protocol):
    """What a session tells its app, with its id."""

    def touched(self, id: str) -> None:
        """The session is used."""

    def ran(self, id: str) -> None:
        """A run has ended, and was not interrupted."""

    async def closed(self, id: str) -> None:
        """The session is closed."""


class Unwatched:
    """For sessions that nobody comes back to."""

    def touched(self, id: str) -> None:
        """Nothing is due."""

    def ran(self, id: str) -> None:
        """Nothing is saved."""

    async def closed(self, id: str) -> None:
        """Nothing is left."""


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


def inspected(
    conversation: Conversation,
    *,
    id: str,
    parent: str | None,
    children: tuple[str, ...],
    depth: int,
    status: Status,
    tools: tuple[str, ...],
) -> Inspection:
    """The session as it is now."""
    text, calls, results = _latest(conversation.timeline)
    return Inspection(
        id=id,
        parent=parent,
        children=children,
        depth=depth,
        status=status,
        current_tick=conversation.tick + 1,
        tick_count=conversation.tick,
        queued_messages=conversation.queued,
        is_aborted=conversation.is_aborted,
        last_output=text,
        last_tool_calls=calls,
        last_tool_results=results,
        total_usage=conversation.usage,
        tools=tools,
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
