"""Typed functions as tools: schemas, arguments, results, failures."""

import asyncio
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from paddock.app import AppHooks, AppTool, ToolContext, tool
from tests.support.apps import ScriptedModel, bare_app, calls


class Point(BaseModel):
    x: int
    y: int = 0


async def told(*tools: Any, arguments: Any, **members: Any) -> str:
    """What the model is told about one call of the first tool."""
    made = [each if isinstance(each, AppTool) else tool(each) for each in tools]
    model = ScriptedModel(calls((made[0].name, arguments)))
    async with bare_app(model, tools=made, **members) as app:
        await (await app.session()).send("a")
        return model.said()[-1][1]


def move(to: Point, speed: Literal["slow", "fast"] = "slow") -> Point:
    """Moves there."""
    return Point(x=to.x + (speed == "fast"), y=to.y)


def test_a_schema_comes_from_the_signature() -> None:
    made = tool(move)
    assert (made.name, made.description) == ("move", "Moves there.")
    assert made.schema["required"] == ["to"]
    assert made.schema["additionalProperties"] is False
    assert made.schema["properties"]["speed"]["enum"] == ["slow", "fast"]
    assert tool(move, name="go", description="Goes.").description == "Goes."


async def test_arguments_are_made_of_their_types() -> None:
    assert await told(move, arguments={"to": {"x": 1}, "speed": "fast"}) == '{"x":2,"y":0}'


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ("{", "error: the arguments: Invalid JSON"),
        ("[]", "error: the arguments: Input should be an object"),
        ({}, "error: to: Field required"),
        ({"to": {"x": "one"}}, "error: to.x: Input should be a valid integer"),
        ({"to": {"x": 1}, "more": 1}, "error: more: Extra inputs are not permitted"),
    ],
)
async def test_the_model_is_told_what_is_wrong(arguments: Any, wrong: str) -> None:
    assert (await told(move, arguments=arguments)).startswith(wrong)


async def test_a_failure_is_told_and_ends_nothing() -> None:
    def fail() -> None:
        raise LookupError("no such row")

    assert await told(fail, arguments={}) == "error: LookupError: no such row"


async def test_a_call_has_limited_time() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    assert await told(hang, arguments={}, tool_timeout=0.01) == "error: not done within 0.01 s"


async def test_a_result_is_bounded() -> None:
    def much() -> str:
        return "a" * 100_000

    text = await told(much, arguments={})
    assert len(text) < 50_000
    assert f"[{100_000 - 48 * 1024} characters are cut]" in text


async def test_a_tool_may_use_its_context() -> None:
    async def which(context: ToolContext, n: Annotated[int, Field(ge=1)] = 1) -> str:
        return f"{context.session.status} {context.session.current_tick} {n} {context.sandbox}"

    assert "context" not in tool(which).schema.get("properties", {})
    assert await told(which, arguments={}) == "running 1 1 None"


@pytest.mark.parametrize(("answer", "done"), [(True, True), (False, False), (None, False)])
async def test_a_tool_may_need_a_confirmation(answer: bool | None, done: bool) -> None:
    ran = list[int]()

    def drop() -> None:
        ran.append(1)

    hooks = AppHooks() if answer is None else AppHooks(on_tool_confirmation=lambda *_: answer)
    text = await told(tool(drop, confirm=True), arguments={}, hooks=hooks)
    assert bool(ran) is done
    assert (text == "the call was not confirmed, and nothing was done") is not done


async def test_an_absent_tool_is_told() -> None:
    model = ScriptedModel(calls(("absent", {})))
    async with bare_app(model) as app:
        await (await app.session()).send("a")
        assert model.said()[-1][1] == "there is no tool absent"


def test_a_function_needs_types_and_names() -> None:
    def untyped(a) -> None:  # type: ignore[no-untyped-def]
        pass

    def many(*a: int) -> None:
        pass

    with pytest.raises(TypeError, match="the tool untyped has no type for a"):
        tool(untyped)
    with pytest.raises(TypeError, match="every parameter needs a name"):
        tool(many)


def test_two_tools_have_two_names() -> None:
    with pytest.raises(ValueError, match="two tools have the name move"):
        bare_app(ScriptedModel(), tools=[move, tool(move)])
