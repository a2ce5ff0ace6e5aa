"""A model behind an endpoint that speaks OpenAI's chat completions."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout
from pydantic import BaseModel, ValidationError

from paddock.app.messages import Entry, Reply, TokenUsage, ToolCall, clipped
from paddock.app.runner import ModelInput
from paddock.app.tools import AppTool

_MOST_ANSWER = 8 * 2**20


class ModelError(RuntimeError):
    """The endpoint failed, or its answer is none."""


class _Function(BaseModel):
    name: str
    arguments: str = "{}"


class _Called(BaseModel):
    id: str
    function: _Function


class _Message(BaseModel):
    content: str | None = None
    tool_calls: list[_Called] | None = None


class _Choice(BaseModel):
    message: _Message


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Answer(BaseModel):
    choices: list[_Choice]
    usage: _Usage | None = None


class OpenAIChat:
    """The model `name` at `url`, which ends before `/chat/completions`.

    Args:
        url: such as `https://api.example.com/v1`.
        key: sent as a bearer token; None: none is sent.
        options: further members of each request, such as `{"temperature": 0}`.
        seconds: the most time for one answer.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        key: str | None = None,
        options: Mapping[str, Any] | None = None,
        seconds: float = 600,
    ) -> None:
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._name = name
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._options = dict(options or {})
        self._timeout = ClientTimeout(total=seconds)

    async def __call__(self, given: ModelInput) -> Reply:
        """The model's answer. Raises: ModelError."""
        body = {**self._options, "model": self._name, "messages": messages(given)}
        if given.tools:
            body["tools"] = [_tool(each) for each in given.tools]
        try:
            async with (
                ClientSession(timeout=self._timeout, headers=self._headers) as client,
                client.post(self._url, json=body, allow_redirects=False) as response,
            ):
                data = await response.content.read(_MOST_ANSWER + 1)
                while len(data) <= _MOST_ANSWER and (more := await response.content.readany()):
                    data += more
        except (ClientError, TimeoutError) as error:
            raise ModelError(f"the model's endpoint: {error or type(error).__name__}") from error
        if response.status != 200:
            said = clipped(data.decode(errors="replace"), 500)
            raise ModelError(f"the model's endpoint answered {response.status}: {said}")
        if len(data) > _MOST_ANSWER:
            raise ModelError(f"the model's answer has more than {_MOST_ANSWER} bytes")
        return _reply(data)


def messages(given: ModelInput) -> list[dict[str, Any]]:
    """The instructions and the timeline, as messages."""
    return [{"role": "system", "content": given.system}, *map(_message, given.timeline)]


def _message(entry: Entry) -> dict[str, Any]:
    if entry.role == "tool":
        return {"role": "tool", "tool_call_id": entry.call_id, "content": entry.content}
    found: dict[str, Any] = {"role": entry.role, "content": entry.content}
    if entry.calls:
        found["tool_calls"] = [_call(each) for each in entry.calls]
    return found


def _call(call: ToolCall) -> dict[str, Any]:
    # Endpoints refuse arguments that are not JSON; the call's result says what was wrong.
    try:
        json.loads(call.arguments)
    except (ValueError, RecursionError):
        function = {"name": call.name, "arguments": "{}"}
    else:
        function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _tool(tool: AppTool) -> dict[str, Any]:
    shown = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": shown}


def _reply(data: bytes) -> Reply:
    try:
        answer = _Answer.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the body"
        raise ModelError(f"the model's answer: {field}: {first['msg']}") from None
    if not answer.choices:
        raise ModelError("the model's answer has no choices")
    message, usage = answer.choices[0].message, answer.usage or _Usage()
    used = TokenUsage(input_tokens=usage.prompt_tokens, output_tokens=usage.completion_tokens)
    return Reply(message.content or "", _calls(message.tool_calls or ()), used)


def _calls(called: Sequence[_Called]) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(id=each.id, name=each.function.name, arguments=each.function.arguments or "{}")
        for each in called
    )
