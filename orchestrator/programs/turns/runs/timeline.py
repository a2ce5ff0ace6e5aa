"""The timeline of a session: what was said to models, by them, and by their tools. Pure."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from orchestrator.work.models.extras import MOST_EXTRA
from orchestrator.work.models.messages import ModelMessage, ToolCall

# The newest entries that are kept, if a run wants no fewer, and their characters as stored.
MAX_TIMELINE_ENTRIES = 500
MOST_CHARACTERS = 2 * 1024 * 1024
# Of what is sent to a model: usual models can't read more at once.
_MOST_SENT = 384 * 1024
# Of one message, and of the arguments of one call.
_MOST_CONTENT = 64 * 1024
_MOST_ARGUMENTS = 32 * 1024
# More characters than the note that says how long a text was.
_NOTE = 64
_INTERRUPTED = "The run was interrupted before the result of this call was known."


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One message, in the turn with that number; `text` is its stored form."""

    seq: int
    turn: int
    time: str
    message: ModelMessage
    text: str

    @classmethod
    def made(cls, seq: int, turn: int, time: str, message: ModelMessage) -> Self:
        """A new entry."""
        form: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.calls:
            form["calls"] = [list(each) for each in message.calls]
        if message.call is not None:
            form["call"] = message.call
        if message.extra:
            form["extra"] = message.extra
        return cls(seq, turn, time, message, json.dumps(form, separators=(",", ":")))

    @classmethod
    def restored(cls, seq: int, turn: int, time: str, text: str) -> Self:
        """The entry that was stored."""
        form = json.loads(text)
        calls = tuple(ToolCall(*each) for each in form.get("calls", ()))
        message = ModelMessage(
            form["role"], form["content"], calls, form.get("call"), form.get("extra", "")
        )
        return cls(seq, turn, time, message, text)


def kept(message: ModelMessage) -> ModelMessage:
    """The message in a form that every endpoint takes again, within its bounds."""
    return message._replace(
        content=clipped(_valid(message.content), _MOST_CONTENT),
        calls=tuple(
            each._replace(name=_valid(each.name), arguments=_arguments(each.arguments))
            for each in message.calls
        ),
        extra=_valid(message.extra) if len(message.extra) <= MOST_EXTRA else "",
    )


def clipped(text: str, most: int) -> str:
    """The text, or its beginning and its length; clipping a clipped text changes nothing."""
    return (
        text if len(text) <= most + _NOTE else f"{text[:most]}\n[{most} of {len(text)} characters]"
    )


def _valid(text: str) -> str:
    return text.encode(errors="replace").decode()


def _arguments(text: str) -> str:
    """A JSON object: endpoints refuse a conversation in which a call has anything else."""
    try:
        whole = len(text) <= _MOST_ARGUMENTS and isinstance(json.loads(text or "{}"), dict)
    except (ValueError, RecursionError):
        whole = False
    return _valid(text or "{}") if whole else json.dumps({"not_kept": _valid(text[:1000])})


def as_messages(entries: Iterable[TimelineEntry]) -> list[ModelMessage]:
    """The messages, with exactly one result after each call, as the protocol demands."""
    found: list[ModelMessage] = []
    waiting: dict[str, None] = {}
    for message in (each.message for each in entries):
        if message.role == "tool":
            if message.call not in waiting:
                continue  # its call is no longer kept
            del waiting[message.call]
        else:
            found += _unanswered(waiting)
            waiting = dict.fromkeys(each.id for each in message.calls)
        found.append(message)
    return [*found, *_unanswered(waiting)]


def sent(entries: Sequence[TimelineEntry], turn: int) -> list[TimelineEntry]:
    """The entries that a turn sends to its model: the newest, and users' messages of the turn."""
    found: list[TimelineEntry] = []
    left = _MOST_SENT
    for each in reversed(entries):
        left -= len(each.text)
        asked = each.turn == turn and each.message.role == "user"
        if left >= 0 or asked or not found:
            found.append(each)
    return found[::-1]


def _unanswered(calls: Iterable[str]) -> list[ModelMessage]:
    return [ModelMessage("tool", _INTERRUPTED, call=each) for each in calls]


def surplus(sizes: Sequence[int], most: int = MAX_TIMELINE_ENTRIES, spared: int = 1) -> int:
    """How many of the oldest entries, which have these sizes, must be removed.

    `most` may stay, and at least `spared` of them; if they are long, at least the newest.
    """
    count, left = max(0, len(sizes) - max(most, spared)), sum(sizes)
    left -= sum(sizes[:count])
    while left > MOST_CHARACTERS and count < len(sizes) - 1:
        left -= sizes[count]
        count += 1
    return count
