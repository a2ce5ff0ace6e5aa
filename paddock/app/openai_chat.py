"""A model behind an endpoint that speaks OpenAI's chat completions."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout
from pydantic import BaseModel, ConfigDict, ValidationError

from paddock.app.agent import AppTool, ModelInput
from paddock.app.messages import Entry, Reply, TokenUsage, ToolCall, clipped

_MOST_ANSWER = 4 * 2**20
_OF_CALL = frozenset({"index", "id", "type", "function"})
_OF_FUNCTION = frozenset({"name", "arguments"})


class ModelError(RuntimeError):
    """The endpoint failed, or its answer can't be used."""


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Message(BaseModel):
    """Members beside text and calls are kept for the next request."""

    model_config = ConfigDict(extra="allow")

    role: Any = None
    content: str | list[Any] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    function_call: Any = None


class _Choice(BaseModel):
    message: _Message


class _Answer(BaseModel):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


class OpenAIChat:
    """The model `name` at `url`, which ends before `/chat/completions`.

    Args:
        url: such as `https://api.example.com/v1`.
        key: sent as a bearer token; None: none is sent.
        options: further members of each request, such as `{"temperature": 0}`.
        seconds: the most time for one answer.
        send_back: whether the model gets back what it said beside text and calls, such as
            `reasoning_content` and `extra_content`; some endpoints demand that, few refuse it.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        key: str | None = None,
        options: Mapping[str, Any] | None = None,
        seconds: float = 600,
        send_back: bool = True,
    ) -> None:
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._name = name
        self._headers = {"User-Agent": "paddock"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._send_back = send_back
        self._options = dict(options or {})
        self._timeout = ClientTimeout(total=seconds)

    async def __call__(self, given: ModelInput) -> Reply:
        """The model's answer. Raises: ModelError."""
        body = {**self._options, "model": self._name, "messages": self._messages(given)}
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

    def _messages(self, given: ModelInput) -> list[dict[str, Any]]:
        """The instructions and the timeline, as messages."""
        system = {"role": "system", "content": given.system}
        return [system, *(_message(each, extra=self._send_back) for each in given.timeline)]


def _message(entry: Entry, *, extra: bool) -> dict[str, Any]:
    if entry.role == "tool":
        return {"role": "tool", "tool_call_id": entry.call_id, "content": entry.content}
    found: dict[str, Any] = {**(entry.extra if extra else {}), "role": entry.role}
    found["content"] = entry.content
    if entry.calls:
        # Some endpoints refuse an empty text beside calls.
        found["content"] = entry.content or None
        found["tool_calls"] = [_call(each, extra=extra) for each in entry.calls]
    return found


def _call(call: ToolCall, *, extra: bool) -> dict[str, Any]:
    # Endpoints refuse arguments that are not JSON; the call's result says what was wrong.
    try:
        json.loads(call.arguments)
    except (ValueError, RecursionError):
        function = {"name": call.name, "arguments": "{}"}
    else:
        function = {"name": call.name, "arguments": call.arguments}
    beside = dict(call.extra) if extra else {}
    of_function = beside.pop("function", {})
    return {
        **beside,
        "id": call.id,
        "type": "function",
        "function": {**of_function, **function},
    }


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
    if answer.error:
        told = answer.error
        said = told.get("message", told) if isinstance(told, dict) else told
        raise ModelError(f"the model's endpoint answers with an error: {clipped(str(said), 500)}")
    if not answer.choices:
        raise ModelError("the model's answer has no choices")
    message, usage = answer.choices[0].message, answer.usage or _Usage()
    used = TokenUsage(input_tokens=usage.prompt_tokens, output_tokens=usage.completion_tokens)
    extra = {name: each for name, each in (message.model_extra or {}).items() if each is not None}
    return Reply(_text(message.content), _calls(message.tool_calls or ()), used, extra)


def _text(content: str | list[Any] | None) -> str:
    """The text of a content, which may be a list of parts."""
    if not isinstance(content, list):
        return content or ""
    texts = (part.get("text") if isinstance(part, dict) else part for part in content)
    return "".join(text for text in texts if isinstance(text, str))


def _calls(called: Sequence[dict[str, Any]]) -> tuple[ToolCall, ...]:
    """The calls, each with an id of its own."""
    known: set[str] = set()
    calls = []
    for number, each in enumerate(called):
        identity = each.get("id")
        if not isinstance(identity, str) or identity in {"", *known}:
            identity = f"call-{number}"
        known.add(identity)
        calls.append(_read_call(identity, each))
    return tuple(calls)


def _read_call(identity: str, called: dict[str, Any]) -> ToolCall:
    """Raises: ModelError for a call without a function."""
    function = called.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ModelError("the model's answer: a call has no function")
    arguments = function.get("arguments") or "{}"
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    extra = {name: each for name, each in called.items() if name not in _OF_CALL}
    if of_function := {name: function[name] for name in function.keys() - _OF_FUNCTION}:
        extra["function"] = of_function
    return ToolCall(id=identity, name=function["name"], arguments=text, extra=extra)
