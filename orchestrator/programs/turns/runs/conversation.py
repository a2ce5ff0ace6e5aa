"""The conversation of a running run: the timeline as it grows, saved with the run's events."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.ground.events import now
from orchestrator.ground.store.effect import Effect, both
from orchestrator.programs.turns.runs import timeline_rows
from orchestrator.programs.turns.runs.feed import RunFeed
from orchestrator.programs.turns.runs.queue import QueuedMessage, removing
from orchestrator.programs.turns.runs.run_tool import RunTool
from orchestrator.programs.turns.runs.timeline import (
    TimelineEntry,
    as_messages,
    kept,
    sent,
    surplus,
)
from orchestrator.programs.turns.turn import AgentRun
from orchestrator.state import session_rows
from orchestrator.work.models.messages import ModelMessage, ToolCall
from orchestrator.work.models.metering import Completion
from orchestrator.work.models.tool_calls import AnswerCalls

Cut = Callable[[Any], Awaitable[Any]]
Queue = Callable[[int], Awaitable[list[QueuedMessage]]]
_NONE = AnswerCalls()


@dataclass(slots=True, eq=False)
class Conversation:
    """One run of a session.

    `cut` removes the session's secrets from JSON values. `queued` returns the messages that wait
    after one of the queue. `tick` is the number of the latest call of the model; `text` and
    `called` are its answer, and `cut_off` says that the answer reached the most tokens. `open`: the
    run still takes what is queued; `arrived` counts the messages queued for it, `taken` is the
    number of the last one that it took. `tools` are those that the model may call since its latest
    tick; `calling` is the id of the call that is being done.
    """

    run: AgentRun
    session_key: str
    turn: int
    entries: list[TimelineEntry]
    cut: Cut
    queued: Queue
    feed: RunFeed = field(default_factory=RunFeed)
    tick: int = 0
    text: str = ""
    called: AnswerCalls = _NONE
    tools: Mapping[str, RunTool] = field(default_factory=dict)
    calling: str = ""
    cut_off: bool = False
    open: bool = True
    arrived: int = 0
    taken: int = 0
    # What the memory has for the beginning of a run; None: the memory was not asked yet.
    remembered: str | None = None
    # The programs of tools that the image lacks; None: the sandbox was not asked yet.
    absent: frozenset[str] | None = None
    _unsaved: int = 0
    # The size of the messages that it has taken but that are still stored in the queue.
    _left: int = 0

    @property
    def messages(self) -> list[ModelMessage]:
        """The timeline as models take it."""
        return as_messages(sent(self.entries, self.turn))

    async def add(self, message: ModelMessage) -> ModelMessage:
        """Adds a message in the form in which it is kept. Raises: the errors of `cut`."""
        given = message.calls
        extra = json.loads(message.extra) if message.extra else None
        content, extra, *cut = await self.cut(
            [message.content, extra, *([*each[1:]] for each in given)]
        )
        calls = tuple(ToolCall(each.id, *texts) for each, texts in zip(given, cut, strict=True))
        beside = json.dumps(extra) if extra else ""
        message = kept(message._replace(content=content, calls=calls, extra=beside))
        seq = self.entries[-1].seq + 1 if self.entries else 1
        self.entries.append(TimelineEntry.made(seq, self.turn, now(), message))
        self._unsaved += 1
        if message.role == "tool":
            self.feed.add("tool_result", tick=self.tick, id=message.call, content=message.content)
        return message

    async def take(self) -> bool:
        """Takes what is queued. Raises: the errors of `cut`."""
        waiting = await self.queued(self.taken)
        for each in waiting:
            await self.add(ModelMessage("user", each.text))
            self.taken = each.seq
            self._left += each.size
        return bool(waiting)

    async def take_last(self) -> bool:
        """Takes what is queued; if nothing is, closes the conversation, and the run may end."""
        while True:
            arrived = self.arrived
            if await self.take():
                return True
            if arrived == self.arrived:
                self.open = False
                return False

    def answered(self, message: ModelMessage, answer: Completion) -> None:
        """The model has answered with that message; `answer` has the arguments as it wrote them."""
        self.text, self.called = message.content, answer.called
        self.cut_off = answer.finish_reason == "length"
        self.feed.flush(self.tick)
        for each in message.calls:
            self.feed.add(
                "tool_call", tick=self.tick, id=each.id, tool=each.name, arguments=each.arguments
            )

    def _of_tick(self) -> int:
        """The number of entries from the model's latest answer on."""
        roles = [each.message.role for each in reversed(self.entries)]
        return roles.index("assistant") + 1 if "assistant" in roles else 1

    def saving(self) -> tuple[Effect | None, int]:
        """What saves the new entries and removes the oldest, and how many bytes that adds.

        It must commit with the next event.
        """
        if not self._unsaved:
            return None, 0
        new: Sequence[TimelineEntry] = self.entries[-self._unsaved :]
        sizes = [len(each.text) for each in self.entries]
        gone = surplus(sizes, self.run.max_timeline_entries, max(self._unsaved, self._of_tick()))
        added = sum(sizes[-self._unsaved :]) - sum(sizes[:gone])
        del self.entries[:gone]
        self._unsaved = 0
        saved = both(
            timeline_rows.saving(self.session_key, new, self.entries[0].seq),
            session_rows.counting(self.session_key, added),
        )
        left, self._left = self._left, 0
        if left:
            saved = both(saved, removing(self.session_key, self.taken, left))
        return saved, added - left


def saving(conversation: Conversation | None) -> tuple[Effect | None, int]:
    """What saves a run's new entries; nothing for another turn."""
    return (None, 0) if conversation is None else conversation.saving()
