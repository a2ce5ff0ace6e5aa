"""The body of a call of a model, as JSON."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from orchestrator.settings.operator_models import OperatorModel
from orchestrator.work.models.messages import Prompt

# Others run after so many bytes.
_SLICE = 64 * 1024


async def request_body(
    name: str,
    model: OperatorModel,
    prompt: Prompt,
    max_tokens: int,
    *,
    usage: bool = True,
    extras: bool = True,
) -> list[bytes]:
    """The body in parts.

    `usage`: the endpoint is asked to state it at the end of its stream; `extras`: the model gets
    back what it said beside text and calls.

    Others run between the parts: a conversation has hundreds of messages.
    """
    members: dict[str, Any] = {"model": model.model or name, model.limit_field: max_tokens}
    members["stream"] = True
    if usage:
        members["stream_options"] = {"include_usage": True}
    parts = [_json(members)[:-1], b',"messages":[']
    left = _SLICE
    for place, message in enumerate(prompt.messages):
        form = message.json_for(name) if extras else message.json()
        left -= _add(parts, place, form)
        if left < 0:
            await asyncio.sleep(0)
            left = _SLICE
    parts.append(b"]")
    if prompt.tools:
        parts.append(b',"tools":[')
        for place, tool in enumerate(prompt.tools):
            _add(parts, place, tool.json())
        parts.append(b"]")
    return _joined([*parts, b"}"])


def _add(parts: list[bytes], place: int, form: dict[str, Any]) -> int:
    parts.append((b"," if place else b"") + _json(form))
    return len(parts[-1])


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _joined(parts: Sequence[bytes]) -> list[bytes]:
    """Few parts: each is written to the connection by itself."""
    found, some, size = [], list[bytes](), 0
    for part in parts:
        some.append(part)
        size += len(part)
        if size >= _SLICE:
            found.append(b"".join(some))
            some, size = [], 0
    return [*found, b"".join(some)] if some else found
