"""What is said in an app's session: entries of its timeline, and a model's reply."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(_Said):
    """A model's call of a tool; `arguments` is the JSON text that it wrote.

    `extra` is what its endpoint said beside it, and may demand to get back.
    """

    id: str
    name: str
    arguments: str = "{}"
    extra: dict[str, Any] = {}


class Entry(_Said):
    """One entry of a timeline.

    `calls` are an assistant's; `call_id` tells which of them a tool's entry answers, and `failed`
    whether that call was refused or failed. `extra` is what the model's endpoint said beside text
    and calls, and may demand to get back.
    """

    role: Literal["user", "assistant", "tool"]
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    failed: bool = False
    extra: dict[str, Any] = {}


class TokenUsage(_Said):
    """Tokens of calls of models."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answers: text, calls of tools, or both.

    `extra` is what it says beside them; its entry of the timeline has it.
    """

    text: str = ""
    calls: Sequence[ToolCall] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)
    extra: Mapping[str, Any] = field(default_factory=dict)


Input = str | Sequence[str]


def user_messages(given: Input) -> tuple[Entry, ...]:
    """Messages of the user. Raises: TypeError for anything but text."""
    texts = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a message must be text")
    return tuple(Entry(role="user", content=text) for text in texts)


def clipped(text: str, limit: int) -> str:
    """The text, or its first and last half with the number of characters cut between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters are cut]\n{text[-half:]}"


def size_of(entry: Entry) -> int:
    """The bytes that an entry takes, as JSON about."""
    texts = (entry.content, *(call.name + call.arguments for call in entry.calls))
    extras = (entry.extra, *(call.extra for call in entry.calls))
    size = sum(len(text.encode(errors="replace")) for text in texts)
    return size + sum(len(json.dumps(extra)) for extra in extras if extra)


def trimmed(timeline: list[Entry], most: int, most_bytes: int) -> list[Entry]:
    """The newest entries within both limits; a result of a tool is not kept without its call.

    What the model said last stays with what followed, however long it is.
    """
    count, left = 0, most_bytes
    for entry in timeline[: -most - 1 : -1]:
        left -= size_of(entry)
        if left < 0:
            break
        count += 1
    latest = next((n for n, each in enumerate(timeline[::-1], 1) if each.role != "tool"), 1)
    count = max(count, min(latest, most))
    if len(timeline) <= count:
        return timeline
    kept = timeline[-count:]
    first = next((at for at, each in enumerate(kept) if each.role != "tool"), len(kept))
    return kept[first:]
