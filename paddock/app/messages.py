"""What is said in an app's session: entries of its timeline, and a model's reply."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(_Said):
    """A model's call of a tool; `arguments` is the JSON text that it wrote."""

    id: str
    name: str
    arguments: str = "{}"


class Entry(_Said):
    """One entry of a timeline.

    `calls` are an assistant's; `call_id` tells which of them a tool's entry answers, and `failed`
    whether that call was refused or failed.
    """

    role: Literal["user", "assistant", "tool"]
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    failed: bool = False


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
    """What a model answers: text, calls of tools, or both."""

    text: str = ""
    calls: Sequence[ToolCall] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)


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


def trimmed(timeline: list[Entry], most: int) -> list[Entry]:
    """The newest entries; a result of a tool is not kept without its call."""
    if len(timeline) <= most:
        return timeline
    kept = timeline[-most:]
    first = next((at for at, each in enumerate(kept) if each.role != "tool"), len(kept))
    return kept[first:]
