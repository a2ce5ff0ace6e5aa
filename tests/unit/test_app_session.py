"""Sessions of apps: sending, joining, interrupting, closing; runs and their events."""

import asyncio
from typing import Any

import pytest

from paddock.app import (
    AppEvent,
    AppHooks,
    AppResult,
    AppSession,
    Execution,
    Reply,
    SessionClosedError,
    ToolCall,
)
from tests.support.apps import ScriptedModel, bare_app, calls
from tests.support.limits import WAIT_SECONDS


def add(a: int, b: int = 1) -> int:
    """The sum."""
    return a + b


async def test_a_run_calls_tools_until_the_model_calls_none() -> None:
    model = ScriptedModel(
        calls(("add", {"a": 2}), ("add", {"a": 2, "b": 3}), text="I add."), "Done."
    )
    async with bare_app(model, tools=[add], system="Be brief.") as app:
        session = await app.session("user-123")
        run = session.send("Add.")
        assert session.inspect().status == "running"
        result = await run
        assert (result.status, result.text, result.ticks) == ("completed", "Done.", 2)
        assert (result.usage.input_tokens, result.usage.output_tokens) == (10, 5)
        assert session.status == "idle"
        assert model.said() == [
            ("user", "Add."),
            ("assistant", "I add."),
            ("tool", "3"),
            ("tool", "5"),
        ]
        assert model.given[0].system == "Be brief."
        kinds = [event.kind async for event in run.events()]
        called = ["tool_call", "tool_result"]
        assert kinds == [
            *("start", "tick_start", "text", *called, *called, "tick_end"),
            *("tick_start", "text", "tick_end", "end"),
        ]


async def test_a_send_joins_the_run_that_is_going_on() -> None:
    model = ScriptedModel("one", "two")
    model.gate.clear()
    async with bare_app(model) as app:
        session = await app.session()
        first = session.send("a")
        await model.asked.wait()
        second = session.send("b")
        assert second is first
        assert session.inspect().queued_messages == ("b",)
        model.gate.set()
        assert (await first).text == "two"
        assert model.said() == [("user", "a"), ("assistant", "one"), ("user", "b")]
        assert session.queued_messages == ()


async def test_rendering_nothing_runs_nothing() -> None:
    model = ScriptedModel()
    async with bare_app(model) as app:
        session = await app.session()
        run = session.render()
        assert run.done
        assert await run == AppResult("completed")
        session.queue(["a", "b"])
        assert model.given == []
        await session.render()
        assert model.said() == [("user", "a"), ("user", "b")]


async def test_an_interrupt_ends_the_run_and_answers_its_calls() -> None:
    started, forever = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        started.set()
        await forever.wait()

    model = ScriptedModel(calls(("hang", {}), ("hang", {})))
    async with bare_app(model, tools=[hang]) as app:
        session = await app.session()
        run = session.send("a")
        await started.wait()
        session.interrupt("Stop that.")
        assert session.is_aborted
        assert (await run).status == "aborted"
        assert session.status == "idle"
        assert session.queued_messages == ("Stop that.",)
        session.clear_abort()
        assert not session.is_aborted
        assert (await session.render()).status == "completed"
        # Models insist on an answer to each call.
        assert [role for role, _ in model.said()] == ["user", "assistant", "tool", "tool", "user"]


async def test_a_run_that_is_interrupted_before_it_begins_ends() -> None:
    async with bare_app(ScriptedModel()) as app:
        session = await app.session()
        run = session.send("a")
        session.interrupt()
        assert (await run).status == "aborted"
        assert session.queued_messages == ("a",)
        assert (await session.render()).status == "completed"
        assert not session.is_aborted


async def test_an_interrupt_while_nothing_runs_only_queues() -> None:
    async with bare_app(ScriptedModel()) as app:
        session = await app.session()
        session.interrupt("later")
        assert not session.is_aborted
        assert session.queued_messages == ("later",)


async def test_a_tool_that_hides_its_cancellation_does_not_continue_the_run() -> None:
    started = asyncio.Event()

    async def stubborn() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "hidden"
        return ""

    model = ScriptedModel(calls(("stubborn", {})))
    async with bare_app(model, tools=[stubborn]) as app:
        session = await app.session()
        run = session.send("a")
        await started.wait()
        session.interrupt()
        assert (await run).status == "aborted"
        assert len(model.given) == 1


async def test_a_closed_session_refuses_everything() -> None:
    model = ScriptedModel()
    model.gate.clear()
    app = bare_app(model)
    session = await app.session("a")
    run = session.send("a")
    await model.asked.wait()
    await asyncio.gather(session.close(), session.close())
    assert (await run).status == "aborted"
    assert session.status == "closed"
    assert app.sessions == ()
    for refused in (
        lambda: session.send("a"),
        session.render,
        lambda: session.queue("a"),
        session.interrupt,
        lambda: session.interrupt("a"),
    ):
        with pytest.raises(SessionClosedError, match="Session is closed"):
            refused()
    await session.close()


async def test_a_model_that_fails_ends_the_run_and_not_the_session() -> None:
    failed = list[BaseException]()
    hooks = AppHooks(on_error=lambda _id, error: failed.append(error))
    async with bare_app(ScriptedModel(OSError("no route")), hooks=hooks) as app:
        session = await app.session()
        run = session.send("a")
        for _ in range(2):
            with pytest.raises(OSError, match="no route"):
                await run
        assert [str(error) for error in failed] == ["no route"]
        assert (await session.render()).text == "done"


async def test_ticks_are_limited() -> None:
    model = ScriptedModel(*[calls(("add", {"a": 1}))] * 5)
    async with bare_app(model, tools=[add], max_ticks=3) as app:
        result = await (await app.session()).send("a")
        assert (result.status, result.ticks) == ("max-ticks", 3)


async def test_the_timeline_is_limited_and_begins_with_no_orphan() -> None:
    model = ScriptedModel(*[calls(("add", {"a": 1}), ("add", {"a": 2}))] * 3)
    async with bare_app(model, tools=[add], max_timeline_entries=4) as app:
        session = await app.session()
        await session.send("a")
        assert len(session.timeline) <= 4
        assert all(given.timeline[0].role != "tool" for given in model.given)


async def test_the_timeline_is_limited_in_bytes() -> None:
    model = ScriptedModel(*[calls(("add", {"a": 1}), text="x" * 400)] * 8)
    async with bare_app(model, tools=[add], max_timeline_bytes=1000, max_ticks=9) as app:
        session = await app.session()
        await session.send("a" * 5000)
        assert [each.content[:1] for each in model.given[0].timeline] == ["a"]
        for given in model.given[2:]:
            assert [each.role for each in given.timeline] == ["assistant", "tool"] * 2
        # The latest tick stays, however long it is.
        model.replies = [calls(("add", {"a": 1}), text="y" * 5000)]
        await session.send("b")
        assert model.given[-1].timeline[0].content == "y" * 5000


async def test_calls_of_a_tick_are_limited() -> None:
    model = ScriptedModel(calls(*[("add", {"a": 1})] * 33))
    async with bare_app(model, tools=[add]) as app:
        await (await app.session()).send("a")
        assert [text for _, text in model.said()][-2:] == [
            "2",
            "not done: a tick has at most 32 calls",
        ]


async def test_an_inspection_tells_the_latest_calls() -> None:
    model = ScriptedModel(calls(("add", {"a": 1}), ("none", {}), text="Look."))
    async with bare_app(model, tools=[add], max_ticks=1) as app:
        session = await app.session("a")
        fresh = session.inspect()
        assert (fresh.current_tick, fresh.tick_count, fresh.last_output) == (1, 0, None)
        assert (fresh.last_tool_calls, fresh.last_tool_results) == ((), ())
        await session.send("a")
        seen = session.inspect()
        assert (seen.id, seen.status, seen.tick_count, seen.last_output) == (
            "a",
            "idle",
            1,
            "Look.",
        )
        assert seen.last_tool_calls[0] == ToolCall(id="c0", name="add", arguments='{"a": 1}')
        assert [(each.name, each.success) for each in seen.last_tool_results] == [
            ("add", True),
            ("none", False),
        ]
        assert seen.total_usage.input_tokens == 10


async def test_middleware_goes_around_a_send() -> None:
    seen = list[str]()

    async def outer(messages: Any, proceed: Any) -> AppResult:
        seen.append("before")
        result: AppResult = await proceed(f"{messages}!")
        seen.append("after")
        return result

    async def inner(messages: Any, proceed: Any) -> AppResult:
        seen.append(messages)
        return AppResult("completed", (await proceed(messages)).text.upper())

    model = ScriptedModel("yes")
    async with bare_app(model) as app:
        session = await app.session()
        assert (await session.send.use(outer, inner)("a")).text == "YES"
        assert seen == ["before", "a!", "after"]
        assert model.said() == [("user", "a!")]


async def test_hooks_are_called_in_order() -> None:
    seen = list[Any]()
    async with bare_app(
        ScriptedModel("yes"),
        hooks=AppHooks(
            on_before_send=lambda _id, texts: [f"{text}!" for text in texts],
            on_event=lambda _id, event: seen.append(event.kind),
            on_tick_start=lambda tick, _run: seen.append(f"tick {tick}"),
            on_tick_end=lambda tick, _usage: seen.append(f"ended {tick}"),
            on_complete=lambda _id, result: seen.append(result.text),
            on_after_send=lambda _id, _result: seen.append("sent"),
            on_session_create=lambda id: seen.append(f"create {id}"),
            on_session_close=lambda id: seen.append(f"close {id}"),
        ),
    ) as app:
        session = await app.session("a")
        await session.send("x")
        assert session.timeline[0].content == "x!"
        await session.close()
    assert seen == [
        *("create a", "start", "tick 1", "tick_start", "text", "tick_end", "ended 1"),
        *("end", "yes", "sent", "close a"),
    ]


async def test_a_hook_may_cancel_a_send_and_its_failure_reaches_the_sender() -> None:
    def refuse(_id: str, texts: Any) -> bool:
        if texts == ["bad"]:
            raise ValueError("bad words")
        return False

    model = ScriptedModel()
    async with bare_app(model, hooks=AppHooks(on_before_send=refuse)) as app:  # type: ignore[arg-type]
        session = await app.session()
        assert await session.send("x") == AppResult("completed")
        with pytest.raises(ValueError, match="bad words"):
            session.send("bad")
        assert (model.given, session.queued_messages) == ([], ())


async def test_a_listener_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("broken")

    hooks = AppHooks(on_event=broken, on_tick_start=broken, on_complete=broken)
    async with bare_app(ScriptedModel("yes"), hooks=hooks) as app:
        assert (await (await app.session()).send("x")).text == "yes"
    assert "a hook failed" in caplog.text


async def test_a_hook_of_the_run_may_close_the_session() -> None:
    closed, session = asyncio.Event(), list[AppSession]()

    async def close(_id: str, _result: AppResult) -> None:
        await session[0].close()
        closed.set()

    async with bare_app(ScriptedModel(), hooks=AppHooks(on_complete=close)) as app:
        session.append(await app.session())
        await session[0].send("x")
        await closed.wait()
        assert app.sessions == ()


async def test_a_hook_of_a_run_that_a_close_ends_may_close_the_session() -> None:
    model, sessions = ScriptedModel(), list[AppSession]()
    model.gate.clear()

    async def close(_id: str, _result: AppResult) -> None:
        await sessions[0].close()

    async with bare_app(model, hooks=AppHooks(on_after_send=close)) as app:
        sessions.append(await app.session())
        run = sessions[0].send("x")
        await model.asked.wait()
        async with asyncio.timeout(WAIT_SECONDS):
            await sessions[0].close()
        assert (await run).status == "aborted"


async def test_who_follows_a_run_gets_every_event_at_any_time() -> None:
    model = ScriptedModel("yes")
    model.gate.clear()
    async with bare_app(model) as app:
        run = (await app.session()).send("a")

        async def follow(of: Execution) -> list[AppEvent]:
            return [event async for event in of.events()]

        early = asyncio.create_task(follow(run))
        await model.asked.wait()
        late = asyncio.create_task(follow(run))
        model.gate.set()
        await run
        assert await early == await late == await follow(run)


async def test_a_reply_may_be_text_or_an_object() -> None:
    async with bare_app(ScriptedModel("text", Reply("object"))) as app:
        session = await app.session()
        assert [(await session.send("a")).text, (await session.send("b")).text] == [
            "text",
            "object",
        ]


async def test_messages_are_text() -> None:
    async with bare_app(ScriptedModel()) as app:
        with pytest.raises(TypeError, match="a message must be text"):
            (await app.session()).send([1])  # type: ignore[list-item]
