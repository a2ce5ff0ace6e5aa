"""What apps promise, one by one: the tests of each promise, and those that fit nowhere else."""

import asyncio
import importlib
from typing import Any

import pytest

from paddock.app import (
    AppEvent,
    AppHooks,
    AppSnapshot,
    AppTool,
    Execution,
    MemoryStore,
    ModelInput,
    Runner,
    SessionRef,
    ToolCall,
    ToolResult,
)
from tests.support.apps import ScriptedModel, bare_app, calls

_SESSION, _STORE, _SPAWN = (f"unit.test_app_{name}" for name in ("session", "store", "spawn"))
_HERE, _API, _REAL = "unit.test_app_promises", "api.test_apps", "integration.test_apps"
_API_SPAWN = "api.test_app_spawn"

PROMISES = {
    "a session is found in memory, else in the store, else new; `run` leaves none": [
        (_STORE, "test_a_session_is_the_same_until_it_is_closed"),
        (_STORE, "test_closing_by_the_app_forgets_and_by_the_session_keeps"),
        (_STORE, "test_an_ephemeral_session_leaves_nothing"),
        (_API, "test_an_ephemeral_session_leaves_no_workspace"),
    ],
    "a session has a status, a parent, children, an abort flag and a queue": [
        (_SESSION, "test_a_run_calls_tools_until_the_model_calls_none"),
        (_SPAWN, "test_a_child_is_as_its_parent_and_apart_from_it"),
    ],
    "a closed session refuses to send, render, queue, interrupt and spawn": [
        (_SESSION, "test_a_closed_session_refuses_everything"),
        (_SPAWN, "test_a_close_closes_all_descendants"),
    ],
    "a send joins the run that is going on; with nothing to do, nothing runs": [
        (_SESSION, "test_a_send_joins_the_run_that_is_going_on"),
        (_SESSION, "test_rendering_nothing_runs_nothing"),
    ],
    "an interrupt ends the run and the children, and may leave a message": [
        (_SESSION, "test_an_interrupt_ends_the_run_and_answers_its_calls"),
        (_SESSION, "test_an_interrupt_while_nothing_runs_only_queues"),
        (_SPAWN, "test_an_interrupt_ends_all_descendants"),
    ],
    "a close happens once, and ends the run, the children, the sandbox and who follows": [
        (_HERE, "test_who_follows_a_run_is_done_when_its_session_is_closed"),
        (_SPAWN, "test_a_close_closes_all_descendants"),
        (_API_SPAWN, "test_sandboxes_of_children_end_with_their_parent"),
    ],
    "a child inherits model, tools, ticks and runner, and nothing else": [
        (_SPAWN, "test_a_child_is_as_its_parent_and_apart_from_it"),
        (_SPAWN, "test_an_agent_and_a_spawn_change_what_they_name"),
        (_SPAWN, "test_a_child_has_no_hooks"),
    ],
    "children are ten levels deep at most": [
        (_SPAWN, "test_ten_levels_are_the_most"),
        (_SPAWN, "test_a_child_at_depth_ten_may_not_spawn"),
    ],
    "a parent's end is its children's, and a child's failure is its own": [
        (_SPAWN, "test_an_interrupt_ends_all_descendants"),
        (_SPAWN, "test_a_child_that_fails_ends_nothing_else"),
    ],
    "a child's events are its parent's, between one start and one end": [
        (_SPAWN, "test_a_run_tells_what_its_children_do"),
        (_SPAWN, "test_any_tree_of_children_ends_and_is_told_in_order"),
    ],
    "above `max_active`, the least recently used session makes room": [
        (_HERE, "test_without_limits_every_session_stays"),
        (_HERE, "test_every_use_counts"),
        (_STORE, "test_the_least_recently_used_idle_session_makes_room"),
    ],
    "after `idle_timeout`, a session that does not run is evicted": [
        (_STORE, "test_an_idle_session_is_saved_and_closed"),
        (_STORE, "test_a_session_that_runs_is_never_evicted"),
        (_SPAWN, "test_a_parent_is_not_evicted_while_a_child_runs"),
        (_HERE, "test_idle_sessions_are_looked_for_now_and_then"),
    ],
    "an evicted session loses nothing, and comes back": [
        (_STORE, "test_fifty_sessions_in_eight_places_lose_nothing"),
        (_STORE, "test_any_order_of_steps_loses_no_message"),
        (_API, "test_a_session_comes_back_to_its_workspace"),
        (_REAL, "test_fifty_sessions_with_eight_places_lose_neither_words_nor_files"),
    ],
    "a session is saved after each run that was not interrupted; a failure is logged": [
        (_STORE, "test_a_session_is_saved_after_a_run_and_not_after_an_interrupt"),
        (_STORE, "test_a_save_that_fails_is_logged"),
    ],
    "each hook has its time, and may do what it may": [
        (_SESSION, "test_hooks_are_called_in_order"),
        (_SESSION, "test_a_hook_may_cancel_a_send_and_its_failure_reaches_the_sender"),
        (_STORE, "test_hooks_may_cancel_or_replace_what_is_saved_and_restored"),
        (_HERE, "test_a_save_that_fails_is_not_told_as_one"),
    ],
    "each hook of a runner has its time, and may change what passes": [
        (_STORE, "test_hooks_of_runners_have_their_times"),
        (_HERE, "test_a_runner_changes_what_passes"),
    ],
    "a snapshot survives two cycles": [
        (_STORE, "test_two_cycles_lose_nothing"),
        (_HERE, "test_what_is_restored_stays_stored"),
    ],
    "an inspection tells what a session does": [
        (_SESSION, "test_an_inspection_tells_the_latest_calls"),
    ],
    "ticks and entries are limited": [
        (_SESSION, "test_ticks_are_limited"),
        (_SESSION, "test_the_timeline_is_limited_and_begins_with_no_orphan"),
        (_HERE, "test_the_usual_limits"),
    ],
    "no text changes a permission": [
        (_REAL, "test_a_text_changes_no_permission"),
    ],
}


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_has_its_tests(promise: str) -> None:
    for module, name in PROMISES[promise]:
        assert callable(getattr(importlib.import_module(f"tests.{module}"), name)), name


async def test_who_follows_a_run_is_done_when_its_session_is_closed() -> None:
    model = ScriptedModel()
    model.gate.clear()
    async with bare_app(model) as app:
        session = await app.session()
        run = session.send("a")

        async def follow(of: Execution) -> list[AppEvent]:
            return [event async for event in of.events()]

        following = asyncio.create_task(follow(run))
        await model.asked.wait()
        await session.close()
        assert (await following)[-1] == AppEvent(
            "end", {"status": "aborted", "error": "Session closed"}
        )


async def test_without_limits_every_session_stays() -> None:
    tasks = len(asyncio.all_tasks())
    async with bare_app(ScriptedModel(), clock=lambda: 0.0) as app:
        for _ in range(100):
            await app.session()
        assert len(app.sessions) == 100
        assert await app.evict_idle() == ()
        # Nobody looks for idle sessions.
        assert len(asyncio.all_tasks()) == tasks


async def test_every_use_counts() -> None:
    async with bare_app(ScriptedModel()) as app:
        sessions = {id: await app.session(id) for id in "abcde"}
        await sessions["a"].send("x")
        sessions["b"].queue("x")
        sessions["c"].interrupt("x")
        await sessions["d"].spawn(None, "x")
        assert app.sessions == ("e", "a", "b", "c", "d")
        await sessions["e"].render()
        assert app.sessions == ("a", "b", "c", "d", "e")


@pytest.mark.parametrize(("timeout", "seconds"), [(0.1, 1), (10, 10), (3600, 30)])
async def test_idle_sessions_are_looked_for_now_and_then(
    timeout: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, gate, closed = list[float](), asyncio.Event(), asyncio.Event()
    now = [0.0]

    async def sleep(delay: float) -> None:
        slept.append(delay)
        if len(slept) > 1:
            await asyncio.Event().wait()
        await gate.wait()

    monkeypatch.setattr(asyncio, "sleep", sleep)
    hooks = AppHooks(on_session_close=lambda _id: closed.set())
    model = ScriptedModel()
    async with bare_app(model, idle_timeout=timeout, hooks=hooks, clock=lambda: now[0]) as app:
        await app.session("a")
        now[0] = timeout
        gate.set()
        await closed.wait()
        assert (app.sessions, slept[0]) == ((), seconds)


async def test_a_save_that_fails_is_not_told_as_one(caplog: pytest.LogCaptureFixture) -> None:
    class Full(MemoryStore):
        async def save(self, session_id: str, text: str) -> None:
            raise OSError("the disk is full")

    told = list[AppSnapshot]()
    hooks = AppHooks(on_after_persist=lambda _id, snapshot: told.append(snapshot))
    async with bare_app(ScriptedModel(), store=Full(), hooks=hooks) as app:
        session = await app.session("a")
        await session.send("x")
        await session.close()
    assert told == []
    assert "the disk is full" in caplog.text


async def test_a_runner_changes_what_passes() -> None:
    class Changing(Runner):
        async def prepare_model_input(self, session: SessionRef, given: ModelInput) -> ModelInput:
            return ModelInput(f"{given.system}!", given.timeline[-1:], ())

        async def execute_tool_call(
            self, session: SessionRef, call: ToolCall, tool: AppTool, proceed: Any
        ) -> ToolResult:
            if call.name == "mine":
                return ToolResult("the runner's")
            result: ToolResult = await proceed()
            return ToolResult(f"{result.text}!", result.failed)

    def mine() -> None:
        raise AssertionError

    def other() -> str:
        return "the tool's"

    model = ScriptedModel(calls(("mine", {}), ("other", {})))
    async with bare_app(model, tools=[mine, other], runner=Changing(), system="Work.") as app:
        session = await app.session()
        await session.send("x")
        assert [(each.system, each.tools) for each in model.given] == [("Work.!", ())] * 2
        assert model.said() == [("tool", "the tool's!")]
        assert [each.content for each in session.timeline[2:4]] == ["the runner's", "the tool's!"]


async def test_what_is_restored_stays_stored() -> None:
    store = MemoryStore()
    async with bare_app(ScriptedModel(), store=store) as app:
        await (await app.session("a")).send("x")
    stored = await store.load("a")
    app = bare_app(ScriptedModel(), store=store)
    session = await app.session("a")
    assert [each.content for each in session.timeline] == ["x", "done"]
    assert await store.load("a") == stored
    await app.aclose()


async def test_the_usual_limits() -> None:
    model = ScriptedModel(*[calls(*[("none", {})] * 32)] * 20)
    async with bare_app(model) as app:
        session = await app.session()
        result = await session.send("x")
        assert (result.status, result.ticks) == ("max-ticks", 10)
        await session.send("x")
        # Of 662; the first one that is kept is no result without its call.
        assert 460 < len(session.timeline) <= 500
        assert session.timeline[0].role == "assistant"
