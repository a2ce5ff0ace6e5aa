"""A scripted model of an app's sessions, and apps without sandboxes."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, cast

from paddock import Paddock
from paddock.app import App, ModelInput, Reply, Runner, TokenUsage, ToolCall
from paddock.app.agent import Model


class ScriptedModel:
    """Answers with what is in `replies`, in order, and then with "done"; errors are raised."""

    def __init__(self, *replies: Reply | str | Exception) -> None:
        self.replies = list(replies)
        self.given: list[ModelInput] = []
        # Cleared, each call waits; `asked` tells that one does.
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def __call__(self, given: ModelInput) -> Reply | str:
        self.given.append(given)
        self.asked.set()
        await self.gate.wait()
        reply = self.replies.pop(0) if self.replies else "done"
        if isinstance(reply, Exception):
            raise reply
        return reply

    def said(self) -> list[tuple[str, str]]:
        """Roles and texts of the latest input."""
        return [(each.role, each.content) for each in self.given[-1].timeline]


def calls(*called: tuple[str, Any], text: str = "") -> Reply:
    """A reply that calls tools: names, and arguments as text or as an object."""
    made = [
        ToolCall(id=f"c{at}", name=name, arguments=_text(given))
        for at, (name, given) in enumerate(called)
    ]
    return Reply(text, made, TokenUsage(input_tokens=10, output_tokens=5))


def _text(given: Any) -> str:
    return given if isinstance(given, str) else json.dumps(given)


def bare_app(model: Model, *, tools: Sequence[Any] = (), **members: Any) -> App:
    """An app without a control plane: its sessions have no sandbox."""
    members.setdefault("runner", Runner())
    return App(cast(Paddock, None), model=model, tools=tools, **members)
