"""A session's timeline and queue in the manifest of its snapshot."""

from itertools import pairwise
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import ConfigDict, Field

from orchestrator.ground.store.effect import Effect, both
from orchestrator.programs.turns.runs import queue, timeline_rows
from orchestrator.programs.turns.runs.timeline import MAX_TIMELINE_ENTRIES, TimelineEntry, kept
from orchestrator.work.models.messages import ModelMessage, ToolCall
from paddock.contract.first_error import StopsEarly

_Text = Annotated[str, Field(max_length=128 * 1024)]


class MessageForm(StopsEarly):
    """One message of the timeline."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    seq: Annotated[int, Field(ge=1, le=2**53)]
    turn: Annotated[int, Field(ge=0, le=2**53)]
    time: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$")]
    role: Literal["user", "assistant", "tool"]
    content: _Text
    calls: list[Annotated[list[_Text], Field(min_length=3, max_length=3)]] = []
    call: _Text | None = None
    extra: _Text = ""

    @classmethod
    def of(cls, entry: TimelineEntry) -> Self:
        """The form of an entry."""
        message = entry.message
        return cls.model_validate(
            {
                "seq": entry.seq,
                "turn": entry.turn,
                "time": entry.time,
                "role": message.role,
                "content": message.content,
                "calls": [list(each) for each in message.calls],
                "call": message.call,
                "extra": message.extra,
            }
        )

    def entry(self) -> TimelineEntry:
        """The entry, in a form that models' endpoints take, whoever has written the snapshot."""
        calls = tuple(ToolCall(*each) for each in self.calls)
        message = kept(ModelMessage(self.role, self.content, calls, self.call, self.extra))
        return TimelineEntry.made(self.seq, self.turn, self.time, message)


TimelineForm = Annotated[list[MessageForm], Field(max_length=MAX_TIMELINE_ENTRIES)]
Waiting = Annotated[list[_Text], Field(max_length=queue.MOST_QUEUED)]


class StoredConversation(NamedTuple):
    """What was said in a session, and what waits to be said."""

    timeline: list[TimelineEntry]
    queued: list[str]

    def importing(self, session_key: str) -> Effect:
        """Stores it for a restored session."""
        return both(
            timeline_rows.saving(session_key, self.timeline, 1),
            queue.importing(session_key, self.queued),
        )


def in_order(forms: TimelineForm) -> bool:
    """Whether each number is there once, in order."""
    return all(earlier.seq < later.seq for earlier, later in pairwise(forms))
