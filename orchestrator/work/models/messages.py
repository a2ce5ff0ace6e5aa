"""What goes to a model and comes back: messages, tools, and calls of tools. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from orchestrator.work.models.extras import read, sent_with


class ToolCall(NamedTuple):
    """A model's call of a tool. `arguments` is whatever text it wrote, meant to be JSON."""

    id: str
    name: str
    arguments: str

    def json(self) -> dict[str, Any]:
        """In the form of the protocol."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


class ModelMessage(NamedTuple):
    """One message of a conversation with a model; `call` is the id of the call that it answers.

    `extra` is what the model's endpoint said beside it, as `extras.stored` has it.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    calls: tuple[ToolCall, ...] = ()
    call: str | None = None
    extra: str = ""

    def json(self) -> dict[str, Any]:
        """In the form of the protocol."""
        form: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.calls:
            # Some endpoints refuse an empty text beside calls.
            form["content"] = self.content or None
            form["tool_calls"] = [each.json() for each in self.calls]
        if self.call is not None:
            form["tool_call_id"] = self.call
        return form

    def json_for(self, model: str) -> dict[str, Any]:
        """In the form of the protocol, for a model that gets back what it said beside it."""
        said_by, extras = read(self.extra)
        return sent_with(self.json(), extras) if said_by == model else self.json()

    @property
    def texts(self) -> tuple[str, ...]:
        """All that the model reads of it."""
        called = (text for each in self.calls for text in each)
        return (self.content, *called, self.call or "", self.extra)


class ModelTool(NamedTuple):
    """A tool that a model may call; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    def json(self) -> dict[str, Any]:
        """In the form of the protocol."""
        return {"type": "function", "function": self._asdict()}


class Prompt(NamedTuple):
    """All that a call of a model sends."""

    messages: Sequence[ModelMessage]
    tools: Sequence[ModelTool] = ()

    @property
    def texts(self) -> list[str]:
        """All that the model reads."""
        tools = (json.dumps(each.json()) for each in self.tools)
        return [*(text for each in self.messages for text in each.texts), *tools]
