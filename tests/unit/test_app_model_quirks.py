"""What endpoints do differently from each other, as the model client of apps takes it."""

import json
from typing import Any

import pytest

from paddock.app import ToolCall
from paddock.app.agent import ModelInput
from paddock.app.messages import Entry
from paddock.app.openai_chat import ModelError, OpenAIChat
from tests.support.apps import bare_app
from tests.support.models import Answer, calling, model_server

WEATHER = '{"city": "Bern"}'
SIGNED = {"google": {"thought_signature": "c2ln"}}
HELLO = ModelInput("Be brief.", (Entry(role="user", content="Hello"),), ())


def whole(**message: Any) -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": None}
    body = json.dumps({"id": "1", "choices": [choice]}).encode()
    return Answer(body=[body], content_type="application/json")


def call(identity: str | None, arguments: Any, **others: Any) -> dict[str, Any]:
    found = {"id": identity, "function": {"name": "weather", "arguments": arguments}, **others}
    return {name: value for name, value in found.items() if value is not None}


QUIRKS: dict[str, tuple[Answer, str, list[tuple[str, str]]]] = {
    "content as parts": (
        whole(content=[{"type": "text", "text": "It "}, {"type": "image_url"}, "works."]),
        "It works.",
        [],
    ),
    "arguments as an object": (
        whole(content=None, tool_calls=[call("a", {"city": "Bern"})]),
        "",
        [("a", WEATHER)],
    ),
    "no arguments": (whole(tool_calls=[call("a", None)]), "", [("a", "{}")]),
    "no ids": (
        whole(tool_calls=[call(None, WEATHER), call("", WEATHER)]),
        "",
        [("call-0", WEATHER), ("call-1", WEATHER)],
    ),
    "one id for two calls": (
        whole(tool_calls=[call("a", WEATHER), call("a", "{}")]),
        "",
        [("a", WEATHER), ("call-1", "{}")],
    ),
    "nothing": (whole(), "", []),
}


@pytest.mark.parametrize("quirk", QUIRKS)
async def test_an_answer(quirk: str) -> None:
    answer, text, calls = QUIRKS[quirk]
    async with model_server(answer) as server:
        reply = await OpenAIChat(server.url, "small")(HELLO)
    assert (reply.text, [(each.id, each.arguments) for each in reply.calls]) == (text, calls)
    assert reply.usage.input_tokens == 0  # not stated


@pytest.mark.parametrize(
    "error", [{"message": "no tokens are left", "code": 429}, "no tokens are left"]
)
async def test_an_error_with_status_200_is_told(error: Any) -> None:
    body = json.dumps({"error": error}).encode()
    async with model_server(Answer(body=[body])) as server:
        with pytest.raises(ModelError, match="answers with an error: no tokens are left"):
            await OpenAIChat(server.url, "small")(HELLO)


async def test_what_is_said_beside_calls_is_kept_and_goes_back() -> None:
    first = whole(
        content=None,
        reasoning_content="I wonder.",
        refusal=None,
        tool_calls=[call("a", WEATHER, extra_content=SIGNED)],
    )

    def weather(city: str) -> str:
        return f"rain in {city}"

    for send_back in (True, False):
        async with model_server(first, Answer(stream=False)) as server:
            model = OpenAIChat(server.url, "small", send_back=send_back)
            async with bare_app(model, tools=[weather]) as app:
                session = await app.session()
                await session.send("Hello")
                kept = session.snapshot().to_json()
            said = server.bodies[-1]["messages"][2]
            assert "User-Agent" in server.headers[0]
        assert "I wonder." in kept
        assert said["content"] is None
        assert said.get("reasoning_content") == ("I wonder." if send_back else None)
        assert said["tool_calls"][0].get("extra_content") == (SIGNED if send_back else None)
        assert said["tool_calls"][0]["function"]["name"] == "weather"


async def test_arguments_are_taken_as_they_are_meant() -> None:
    def add(count: int, words: list[str], note: str = "none") -> str:
        return f"{count} {words} {note}"

    given = {"count": "2", "words": '["a"]', "note": None}
    async with model_server(calling(("add", given), stream=False), Answer(stream=False)) as server:
        async with bare_app(OpenAIChat(server.url, "small"), tools=[add]) as app:
            await (await app.session()).send("Add.")
        assert server.bodies[-1]["messages"][-1]["content"] == "2 ['a'] none"


def test_a_call_has_an_extra_only_if_there_is_one() -> None:
    assert ToolCall(id="a", name="b").extra == {}
