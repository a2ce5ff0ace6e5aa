"""Models and tools of others, by their shapes."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from paddock.app import AppTool, ToolContext
from paddock.app.agents_tools import from_agents
from paddock.app.langchain_tools import from_langchain
from paddock.app.openai_chat import ModelError, OpenAIChat
from tests.support.apps import ScriptedModel, bare_app, calls
from tests.support.models import KEY, Answer, calling, model_server


def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


class Agents:
    name, description = "agents_add", "The sum."
    params_json_schema = {"type": "object", "properties": {"a": {"type": "integer"}}}

    async def on_invoke_tool(self, context: Any, arguments: str) -> Any:
        assert isinstance(context, ToolContext)
        return json.loads(arguments)["a"] + 1


class Form(BaseModel):
    a: int


class Chain:
    name, description = "chain_add", "The sum."
    tool_call_schema: Any = Form

    async def ainvoke(self, input: dict[str, Any]) -> Any:
        return {"sum": input["a"] + 1}


@pytest.mark.parametrize(
    ("tool", "text"),
    [(from_agents(Agents()), "3"), (from_langchain(Chain()), '{"sum":3}')],
)
async def test_tools_of_others_are_called(tool: AppTool, text: str) -> None:
    model = ScriptedModel(calls((tool.name, {"a": 2}), (tool.name, "[]"), (tool.name, "{")))
    assert "a" in tool.schema["properties"]
    async with bare_app(model, tools=[tool]) as app:
        await (await app.session()).send("x")
        said = [content for role, content in model.said() if role == "tool"]
        assert said[0] == text
        assert all(each.startswith("error: ") for each in said[1:])


def test_a_tool_of_langchain_may_have_a_schema_of_its_own() -> None:
    chain, schema = Chain(), {"type": "object", "properties": {}}
    chain.tool_call_schema = schema
    assert from_langchain(chain).schema == schema


async def test_a_model_behind_an_endpoint() -> None:
    answers = [
        calling(("add", {"a": 1, "b": 2}), ("add", "{"), stream=False),
        Answer("It is 3.", stream=False),
    ]
    async with model_server(*answers) as server:
        model = OpenAIChat(server.url, "small", key=KEY, options={"temperature": 0})
        async with bare_app(model, tools=[add], system="Be brief.") as app:
            result = await (await app.session()).send("Add.")
        assert (result.text, result.usage.input_tokens) == ("It is 3.", 20)
        first, second = server.bodies
        assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
        assert (first["model"], first["temperature"]) == ("small", 0)
        assert first["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Add."},
        ]
        assert first["tools"][0]["function"]["name"] == "add"
        called, good, bad = second["messages"][2:]
        assert [each["function"]["arguments"] for each in called["tool_calls"]] == [
            '{"a": 1, "b": 2}',
            "{}",
        ]
        assert (good["content"], good["tool_call_id"]) == ("3", called["tool_calls"][0]["id"])
        assert bad["content"].startswith("error: the arguments: Invalid JSON")


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (Answer(status=500, said="overloaded"), "answered 500: .*overloaded"),
        (Answer(body=[b"no"]), "the body: Invalid JSON"),
        (Answer(body=[b'{"choices": []}']), "has no choices"),
        (Answer(body=[b" " * 2**20] * 9), "has more than 4194304 bytes"),
    ],
)
async def test_an_endpoint_that_fails(answer: Answer, wrong: str) -> None:
    async with model_server(answer) as server:
        async with bare_app(OpenAIChat(server.url, "small", key=KEY)) as app:
            run = (await app.session()).send("x")
            with pytest.raises(ModelError, match=wrong) as raised:
                await run
        assert KEY not in str(raised.value)


async def test_an_endpoint_that_is_absent() -> None:
    async with model_server() as server:
        url = server.url
    async with bare_app(OpenAIChat(url, "small")) as app:
        with pytest.raises(ModelError, match="the model's endpoint: "):
            await (await app.session()).send("x")
