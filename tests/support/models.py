"""A scripted server that speaks the protocol of language models: OpenAI's chat completions."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

KEY = "sk-a-key-of-the-tests"


@dataclass(frozen=True)
class Answer:
    """One scripted answer.

    `text` comes in pieces of four characters. `usage` is (input, output); None: not stated.
    `stream` False: one JSON object, whatever was asked for. `status` other than 200: an error with
    `said`. `body` replaces the rest as it is, once `headers` are sent; `hangs`: its end never
    follows. `calls` are names of tools and their arguments, in two pieces each. `refuses`: a
    request with that member, or such a message, gets a 400.
    """

    text: str = "done"
    usage: tuple[Any, Any] | None = (10, 5)
    finish: str | None = "stop"
    stream: bool = True
    status: int = 200
    said: str = "an error"
    headers: dict[str, str] = field(default_factory=dict)
    body: Sequence[bytes] | None = None
    content_type: str = "text/event-stream"
    hangs: bool = False
    calls: Sequence[tuple[str, Any]] = ()
    refuses: str = ""


@dataclass
class ModelServer:
    """Answers with what is in `answers`, in order, and then with the last one again.

    `conversations` has answers for those whose first user's message is that.
    """

    answers: list[Answer] = field(default_factory=lambda: [Answer()])
    conversations: dict[str, list[Answer]] = field(default_factory=dict)
    # What was asked for: fields and bodies.
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    # Set when a client has gone away from an answer that hangs.
    left: asyncio.Event = field(default_factory=asyncio.Event)
    # Set when an answer hangs.
    hanging: asyncio.Event = field(default_factory=asyncio.Event)

    def setting(self, **changes: Any) -> dict[str, Any]:
        """This server's entry in `PADDOCK_MODELS`."""
        prices = {"input": 0.15, "output": 0.6}
        return {"url": self.url, "key": KEY, "prices": prices, **changes}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The next answer."""
        self.headers.append(dict(request.headers))
        self.bodies.append(await request.json())
        messages = self.bodies[-1]["messages"]
        first = next((each["content"] for each in messages if each["role"] == "user"), "")
        answers = self.conversations.get(first, self.answers)
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer.status != 200:
            error = {"error": {"message": answer.said, "type": "an_error", "code": None}}
            return web.json_response(error, status=answer.status, headers=answer.headers)
        if answer.refuses and answer.refuses in {
            *self.bodies[-1],
            *(name for message in messages for name in message),
        }:
            said = {"error": {"message": f"Unrecognized request argument: {answer.refuses}"}}
            self.answers.insert(0, answer)
            return web.json_response(said, status=400)
        if not answer.stream:
            return web.json_response(_whole(answer))
        response = web.StreamResponse(
            headers={"Content-Type": answer.content_type, **answer.headers}
        )
        await response.prepare(request)
        pieces = _pieces(answer) if answer.body is None else answer.body
        try:
            for piece in pieces:
                await response.write(piece)
            if answer.hangs:
                self.hanging.set()
                await asyncio.Event().wait()
        except (ConnectionResetError, asyncio.CancelledError):
            self.left.set()
            raise
        return response


@asynccontextmanager
async def model_server(*answers: Answer) -> AsyncIterator[ModelServer]:
    """A running server with these answers."""
    scripted = ModelServer(list(answers) or [Answer()])
    app = web.Application(client_max_size=16 * 2**20)
    app.router.add_post("/v1/chat/completions", scripted.answer)
    async with TestServer(app, handler_cancellation=True) as server:
        scripted.url = str(server.make_url("/v1"))
        yield scripted


def event(value: Any) -> bytes:
    """One event of a stream."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(text: str | None = None, finish: str | None = None) -> dict[str, Any]:
    """One piece of a streamed answer."""
    delta = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


def calling(*calls: tuple[str, Any], **others: Any) -> Answer:
    """An answer that calls tools: their names, and arguments as text or as an object."""
    return Answer(**{"text": "", "finish": "tool_calls", "calls": calls, **others})


def _arguments(given: Any) -> str:
    return given if isinstance(given, str) else json.dumps(given)


def _called(answer: Answer) -> list[bytes]:
    """Each call in two pieces, as endpoints stream it: the name first, then the arguments."""
    found = []
    for index, (name, given) in enumerate(answer.calls):
        for piece in (
            {"index": index, "id": f"call_{index}", "function": {"name": name, "arguments": ""}},
            {"index": index, "function": {"arguments": _arguments(given)}},
        ):
            whole = chunk()
            whole["choices"][0]["delta"] = {"tool_calls": [{"type": "function", **piece}]}
            found.append(event(whole))
    return found


def _pieces(answer: Answer) -> list[bytes]:
    texts = [answer.text[place : place + 4] for place in range(0, len(answer.text), 4)]
    found = [event(chunk(text)) for text in texts] + _called(answer)
    if answer.hangs:
        return found
    if answer.finish is not None:
        found.append(event(chunk(finish=answer.finish)))
    if answer.usage is not None:
        found.append(event({**chunk(), "choices": [], "usage": _usage(answer.usage)}))
    return [*found, b"data: [DONE]\n\n"]


def _whole(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.calls:
        message["tool_calls"] = [
            {"id": f"call_{n}", "function": {"name": name, "arguments": _arguments(given)}}
            for n, (name, given) in enumerate(answer.calls)
        ]
    found: dict[str, Any] = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": answer.finish}],
    }
    return found if answer.usage is None else {**found, "usage": _usage(answer.usage)}


def _usage(usage: tuple[Any, Any]) -> dict[str, Any]:
    return {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": 0}
