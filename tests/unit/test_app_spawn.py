"""Children of apps' sessions: what they inherit, how they end, and what is told of them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.app import (
    Agent,
    AppEvent,
    AppHooks,
    AppSession,
    Execution,
    MemoryStore,
    ModelInput,
    Reply,
    Runner,
    SessionClosedError,
    SessionRef,
    SpawnDepthError,
    SpawnError,
    ToolContext,
    spawn_tool,
    tool,
)
from tests.support.apps import ScriptedModel, bare_app, calls
from tests.support.limits import WAIT_SECONDS


def add(a: int, b: int = 1) -> int:
    """The sum."""
    return a + b


def delegating(agent: Agent | None, **options: Any) -> Callable[..., Any]:
    """A tool that has an agent do a task."""

    async def delegate(task: str, context: ToolContext) -> str:
        result = await context.spawn(agent, task, **options)
        return f"{result.status} {result.text}"

    return delegate


async def events(of: Execution) -> list[AppEvent]:
    return [event async for event in of.events()]


def within(seen: list[AppEvent], path: tuple[str, ...]) -> list[str]:
    return [event.kind for event in seen if event.spawn_path == path]


async def test_a_child_is_as_its_parent_and_apart_from_it() -> None:
    model, store = ScriptedModel("first", "second"), MemoryStore()
    async with bare_app(model, tools=[add], system="Be brief.", store=store) as app:
        session = await app.session("a")
        await session.send("x")
        model.gate.clear()
        model.asked.clear()
        run = session.spawn(None, "task", label="scout")
        await model.asked.wait()
        [child] = session.children
        assert (child.parent, child.depth, session.parent, session.depth) == (session, 1, None, 0)
        assert (child.inspect().parent, session.inspect().children) == ("a", (child.id,))
        assert (session.status, child.status) == ("running", "running")
        assert (app.sessions, await store.load(child.id)) == (("a",), None)
        model.gate.set()
        assert (await run).text == "second"
        assert (session.children, session.status, child.status) == ((), "idle", "closed")
        assert model.given[1].system == "Be brief."
        assert [each.name for each in model.given[1].tools] == ["add"]
        assert model.said() == [("user", "task")]
        assert [each.content for each in session.timeline] == ["x", "first"]
        assert (app.sessions, await store.load(child.id)) == (("a",), None)
        with pytest.raises(SessionClosedError):
            child.send("more")


async def test_an_agent_and_a_spawn_change_what_they_name() -> None:
    usual, own, other = ScriptedModel(), ScriptedModel(), ScriptedModel()

    class Noting(Runner):
        def __init__(self) -> None:
            self.seen = list[str]()

        async def on_session_init(self, session: SessionRef) -> None:
            self.seen.append(f"{session.level} {session.label} {session.workspace}")

        async def on_destroy(self, session: SessionRef) -> None:
            self.seen.append("destroy")

    def double(a: int) -> int:
        return 2 * a

    runner = Noting()
    agent = Agent(system="Double.", model=own, tools=[double], level="low")
    async with bare_app(usual, tools=[add], level="medium") as app:
        session = await app.session()
        assert (await session.spawn(agent, "x", runner=runner, label="l")).text == "done"
        assert runner.seen == ["low l own", "destroy"]
        assert (own.given[0].system, len(usual.given)) == ("Double.", 0)
        assert [each.name for each in own.given[0].tools] == ["double"]
        other.replies = [calls(("double", {"a": 1}))] * 3
        result = await session.spawn(agent, "x", model=other, max_ticks=2)
        assert (result.status, result.ticks, len(other.given)) == ("max-ticks", 2, 2)


async def test_a_child_has_no_hooks() -> None:
    seen = list[Any]()

    def note(name: str) -> Callable[..., None]:
        return lambda *given: seen.append((name, *given))

    hooks = AppHooks(
        on_before_send=note("before"),
        on_tool_confirmation=lambda *_: True,
        on_event=lambda _id, event: seen.append(event),
        on_tick_start=note("tick"),
        on_tick_end=note("tick ended"),
        on_complete=note("complete"),
        on_error=note("error"),
        on_after_send=note("after"),
        on_session_create=note("create"),
        on_session_close=note("close"),
    )
    asked = tool(add, name="asked", confirm=True)
    worker = ScriptedModel(calls(("asked", {"a": 1})))
    model = ScriptedModel(calls(("delegate", {"task": "t"}), ("asked", {"a": 1})))
    delegate = delegating(Agent(model=worker))
    async with bare_app(model, tools=[delegate, asked], hooks=hooks) as app:
        session = await app.session("a")
        with pytest.raises(OSError, match="no route"):
            await session.spawn(Agent(model=ScriptedModel(OSError("no route"))), "x")
        assert seen == [("create", "a")]
        seen.clear()
        run = session.send("x")
        await run
        own = [event for event in await events(run) if not event.spawn_path]
        assert [each for each in seen if isinstance(each, AppEvent)] == own
        names = [each[0] for each in seen if isinstance(each, tuple)]
        ticks = ["tick", "tick ended"]
        assert names == ["before", *ticks, *ticks, "complete", "after"]
        # A tool that needs a yes gets none in a child.
        assert worker.said()[-1] == ("tool", "the call was not confirmed, and nothing was done")
        assert model.said()[-1] == ("tool", "2")


async def test_ten_levels_are_the_most() -> None:
    deepest = list[int]()

    async def deeper(context: ToolContext) -> str:
        return (await context.spawn(None, "deeper")).text

    async def model(given: ModelInput) -> Reply | str:
        last = given.timeline[-1]
        return calls(("deeper", {})) if last.role == "user" else f"-{last.content}"

    def depth(_id: str, event: AppEvent) -> None:
        if event.kind == "spawn_start":
            deepest.append(1)

    async with bare_app(model, tools=[deeper], hooks=AppHooks(on_event=depth)) as app:
        run = (await app.session()).send("deeper")
        text = (await run).text
        assert text == "-" * 11 + "error: SpawnDepthError: Maximum spawn depth (10) exceeded"
        seen = await events(run)
        assert max(len(event.spawn_path) for event in seen) == 10
        # A hook is told of the session's own spawn only.
        assert deepest == [1]


async def test_a_child_at_depth_ten_may_not_spawn() -> None:
    model = ScriptedModel()
    model.gate.clear()
    async with bare_app(model) as app:
        session = await app.session()
        for depth in range(10):
            assert session.depth == depth
            session.spawn(None, "x")
            [session] = session.children
        with pytest.raises(SpawnDepthError, match=r"^Maximum spawn depth \(10\) exceeded$"):
            session.spawn(None, "x")
        assert session.children == ()
        model.gate.set()


def tree_of(session: AppSession) -> list[AppSession]:
    return [session, *(each for child in session.children for each in tree_of(child))]


async def three_generations(model: ScriptedModel, app: Any) -> tuple[AppSession, list[Execution]]:
    """A parent that runs, with two children, each with one of its own."""
    model.gate.clear()
    parent = await app.session("a")
    runs = [parent.send("x"), parent.spawn(None, "x"), parent.spawn(None, "x")]
    runs += [child.spawn(None, "x") for child in parent.children]
    await model.asked.wait()
    return parent, runs


async def test_an_interrupt_ends_all_descendants() -> None:
    model = ScriptedModel()
    async with bare_app(model) as app:
        parent, runs = await three_generations(model, app)
        family = tree_of(parent)
        assert len(family) == 5
        parent.interrupt(reason="Enough")
        results = await asyncio.gather(*runs)
        assert [each.status for each in results] == ["aborted"] * 5
        assert [each.reason for each in results] == ["Enough", *["Parent interrupted"] * 4]
        assert [each.status for each in family] == ["idle", *["closed"] * 4]
        assert all(each.children == () for each in family)
        model.gate.set()
        assert (await parent.send("y")).status == "completed"


async def test_sandboxes_of_all_descendants_end_at_the_same_time() -> None:
    together = asyncio.Barrier(4)

    class Slow(Runner):
        async def on_destroy(self, session: SessionRef) -> None:
            if session.parent is not None:
                async with asyncio.timeout(WAIT_SECONDS):
                    await together.wait()

    model = ScriptedModel()
    async with bare_app(model, runner=Slow()) as app:
        parent, runs = await three_generations(model, app)
        parent.interrupt()
        assert {(await run).status for run in runs} == {"aborted"}


async def test_a_close_closes_all_descendants() -> None:
    model = ScriptedModel()
    async with bare_app(model) as app:
        parent, runs = await three_generations(model, app)
        family = tree_of(parent)
        await parent.close()
        assert all((each.status, each.children) == ("closed", ()) for each in family)
        assert {(await run).status for run in runs} == {"aborted"}
        assert (await runs[1]).reason == "Parent closed"
        with pytest.raises(SessionClosedError):
            parent.spawn(None, "x")


async def test_a_child_may_be_closed_alone() -> None:
    model = ScriptedModel()
    async with bare_app(model) as app:
        parent, runs = await three_generations(model, app)
        first, second = parent.children
        await first.close()
        assert (first.status, first.children, parent.children) == ("closed", (), (second,))
        assert ((await runs[1]).status, runs[0].done, runs[2].done) == ("aborted", False, False)
        model.gate.set()
        assert {(await run).status for run in (runs[0], runs[2])} == {"completed"}


async def test_a_child_that_is_interrupted_before_it_begins_is_closed() -> None:
    async with bare_app(ScriptedModel()) as app:
        session = await app.session()
        run = session.spawn(None, "x")
        [child] = session.children
        session.interrupt()
        assert (await run).reason == "Parent interrupted"
        assert (session.children, child.status) == ((), "closed")


async def test_a_child_that_fails_ends_nothing_else() -> None:
    model = ScriptedModel(calls(("delegate", {"task": "t"})))
    worker = ScriptedModel(OSError("no route"), OSError("no route"))
    async with bare_app(model, tools=[delegating(Agent(model=worker))]) as app:
        session = await app.session()
        with pytest.raises(OSError, match="no route"):
            await session.spawn(Agent(model=worker), "x")
        assert (session.children, session.status) == ((), "idle")
        run = session.send("x")
        assert (await run).status == "completed"
        assert model.said()[-1] == ("tool", "error: OSError: no route")
        [end] = [event for event in await events(run) if event.kind == "spawn_end"]
        assert (end.data["is_error"], end.data["error"], end.data["text"]) == (True, "no route", "")


async def test_a_run_tells_what_its_children_do() -> None:
    inner = ScriptedModel(calls(("add", {"a": 1})))
    middle = ScriptedModel(calls(("ask", {"task": "t"})), "middle")
    outer = ScriptedModel(calls(("delegate", {"task": "t"})))
    ask = tool(delegating(Agent(model=inner, tools=[add])), name="ask")
    delegate = delegating(Agent(model=middle, tools=[ask]), label="scout")
    async with bare_app(outer, tools=[delegate]) as app:
        run = (await app.session()).send("x")
        await run
        seen = await events(run)
    start, end = (
        event.data for event in seen if event.kind.startswith("spawn_") and not event.spawn_path
    )
    named = {key: start[key] for key in ("spawn_id", "child_session_id", "label", "call_id")}
    assert (named["label"], named["call_id"], start) == ("scout", "c0", named)
    told = {"text": "middle", "is_error": False, "error": None, "tokens_used": 15}
    assert end == {**named, **told}
    first = (start["spawn_id"],)
    [second] = {event.spawn_path for event in seen if len(event.spawn_path) == 2}
    assert second[:1] == first
    tick = ["tick_start", "text", "tick_end"]
    spawn = ["tick_start", "tool_call", "spawn_start", "spawn_end", "tool_result", "tick_end"]
    assert within(seen, ()) == ["start", *spawn, *tick, "end"]
    assert within(seen, first) == ["start", *spawn, *tick, "end"]
    called = ["tick_start", "tool_call", "tool_result", "tick_end"]
    assert within(seen, second) == ["start", *called, *tick, "end"]
    assert in_order(seen)


def in_order(seen: list[AppEvent]) -> bool:
    """Each child's events are between its one start and its one end; nothing follows the run's."""
    live, over = set[tuple[str, ...]](), set[tuple[str, ...]]()
    for event in seen:
        path = event.spawn_path
        assert not path or path in live
        if event.kind == "spawn_start":
            child = (*path, event.data["spawn_id"])
            assert child not in live | over
            live.add(child)
        if event.kind == "spawn_end":
            child = (*path, event.data["spawn_id"])
            live.remove(child)
            over.add(child)
    return not live and (seen[-1].kind, seen[-1].spawn_path) == ("end", ())


async def test_children_run_at_the_same_time() -> None:
    met = asyncio.Barrier(3)

    async def model(given: ModelInput) -> str:
        await met.wait()
        return given.timeline[-1].content

    async with bare_app(model) as app:
        session = await app.session()
        found = await asyncio.gather(*(session.spawn(None, text) for text in "abc"))
        assert [each.text for each in found] == ["a", "b", "c"]


async def test_a_run_waits_for_its_children_and_takes_in_what_is_sent_meanwhile() -> None:
    worker = ScriptedModel()
    worker.gate.clear()

    async def begin(context: ToolContext) -> str:
        context.spawn(Agent(model=worker), "in the background")
        return "begun"

    model = ScriptedModel(calls(("begin", {})), "one", "two")
    async with bare_app(model, tools=[begin]) as app:
        session = await app.session()
        run = session.send("x")
        async for event in run.events():
            if (event.kind, event.data.get("text")) == ("text", "one"):
                break
        await worker.asked.wait()
        assert session.send("y") is run
        worker.gate.set()
        assert (await run).text == "two"
        assert in_order(await events(run))


async def test_a_run_does_not_wait_for_what_was_spawned_before_it() -> None:
    worker = ScriptedModel()
    worker.gate.clear()
    async with bare_app(ScriptedModel("one")) as app:
        session = await app.session()
        before = session.spawn(Agent(model=worker), "x")
        run = session.send("y")
        assert (await run).text == "one"
        assert (before.done, session.status) == (False, "running")
        worker.gate.set()
        assert (await before).text == "done"
        # Its events are nobody's but its own.
        assert {event.kind for event in await events(run)} & {"spawn_start", "spawn_end"} == set()


async def test_a_call_that_runs_out_of_time_ends_its_children_only() -> None:
    worker, other = ScriptedModel(), ScriptedModel()
    worker.gate.clear()
    other.gate.clear()

    async def begin(context: ToolContext) -> str:
        context.spawn(Agent(model=other), "in the background")
        return "begun"

    # Both calls have one id: models repeat them.
    begun = calls(("begin", {}))
    model = ScriptedModel(begun, calls(("delegate", {"task": "t"})))
    tools = [begin, delegating(Agent(model=worker))]
    async with bare_app(model, tools=tools, tool_timeout=0.05) as app:
        run = (await app.session()).send("x")
        ended = [event.data async for event in spawn_ends(run, other.gate)]
        assert [each["error"] for each in ended] == ["The call ran out of time", None]
        assert (await run).status == "completed"


async def spawn_ends(run: Execution, gate: asyncio.Event) -> Any:
    """The ends of spawns; after the first one, the gate opens."""
    async for event in run.events():
        if event.kind == "spawn_end":
            yield event
            gate.set()


async def test_a_run_that_is_interrupted_spawns_nothing() -> None:
    started, refused = asyncio.Event(), list[str]()

    async def stubborn(context: ToolContext) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            with pytest.raises(SpawnError, match="the run is interrupted"):
                context.spawn(None, "x")
            refused.append("x")

    async with bare_app(ScriptedModel(calls(("stubborn", {}))), tools=[stubborn]) as app:
        session = await app.session()
        run = session.send("x")
        await started.wait()
        session.interrupt()
        assert (await run).status == "aborted"
        assert (refused, session.children) == (["x"], ())


async def test_a_run_and_its_children_spawn_a_hundred() -> None:
    refused = list[str]()

    async def many(context: ToolContext, below: int) -> None:
        try:
            for _ in range(60):
                await context.spawn(None, f"{below}")
        except SpawnError as error:
            refused.append(str(error))

    async def model(given: ModelInput) -> Reply | str:
        last = given.timeline[-1]
        if last.role == "user" and last.content != "0":
            return calls(("many", {"below": int(last.content) - 1}))
        return "done"

    async with bare_app(model, tools=[many]) as app:
        session = await app.session()
        run = session.send("2")
        await run
        starts = [event for event in await events(run) if event.kind == "spawn_start"]
        assert len(starts) == 100
        assert refused == ["a run and its children may spawn 100 children in all"] * 2
        assert (await session.send("1")).status == "completed"


@pytest.mark.parametrize(
    ("agent", "input", "options", "wrong"),
    [
        (None, [], {}, "a child needs a message"),
        (None, "x", {"max_ticks": 0}, "max_ticks must be at least 1"),
        (
            None,
            "x",
            {"workspace": "mine"},
            "workspace must be one of own, read-only, shared",
        ),
        (Agent(level="low"), "x", {"workspace": "shared"}, "level: a child that shares"),
        (Agent(tools=[add, tool(add)]), "x", {}, "two tools have the name add"),
    ],
)
async def test_what_is_wrong_starts_nothing(
    agent: Agent | None, input: Any, options: Any, wrong: str
) -> None:
    async with bare_app(ScriptedModel(), level="medium") as app:
        session = await app.session()
        with pytest.raises(ValueError, match=wrong):
            session.spawn(agent, input, **options)
        assert (session.children, session.status) == ((), "idle")


async def test_a_parent_is_not_evicted_while_a_child_runs() -> None:
    model = ScriptedModel()
    model.gate.clear()
    async with bare_app(model, max_active=2) as app:
        session = await app.session("a")
        run = session.spawn(None, "x")
        await app.session("b")
        await app.session("c")
        assert app.sessions == ("a", "c")
        model.gate.set()
        await run
        assert app.sessions == ("c", "a")


async def test_a_parent_s_sandbox_comes_first_and_each_is_made_and_ended_once() -> None:
    seen = list[str]()

    class Noting(Runner):
        async def on_session_init(self, session: SessionRef) -> None:
            await asyncio.sleep(0)
            seen.append(f"init {session.label}")

        async def on_destroy(self, session: SessionRef) -> None:
            seen.append(f"destroy {session.label}")

    async with bare_app(ScriptedModel(), runner=Noting()) as app:
        session = await app.session()
        await asyncio.gather(
            session.spawn(None, "x", label="b"), session.spawn(None, "x", label="c")
        )
        await session.send("y")
        assert seen[0] == "init None"
        assert sorted(seen[1:]) == ["destroy b", "destroy c", "init b", "init c"]
        await session.close()
        assert seen[5:] == ["destroy None"]


async def test_a_sandbox_that_cannot_be_ended_is_the_child_s_failure() -> None:
    class Broken(Runner):
        async def on_destroy(self, session: SessionRef) -> None:
            if session.parent is not None:
                raise OSError("no answer")

    async with bare_app(ScriptedModel(), runner=Broken()) as app:
        session = await app.session()
        with pytest.raises(OSError, match="no answer"):
            await session.spawn(None, "x")
        assert session.children == ()


async def test_a_child_whose_sandbox_is_being_ended_takes_nothing() -> None:
    entered, gate = asyncio.Event(), asyncio.Event()

    class Slow(Runner):
        async def on_destroy(self, session: SessionRef) -> None:
            entered.set()
            await gate.wait()

    async with bare_app(ScriptedModel(), runner=Slow()) as app:
        session = await app.session()
        run = session.spawn(None, "x")
        await entered.wait()
        [child] = session.children
        try:
            assert (child.status, run.done) == ("closed", False)
            with pytest.raises(SessionClosedError):
                child.send("more")
            session.interrupt()
        finally:
            gate.set()
        assert (await run).status == "completed"


async def test_a_model_may_spawn() -> None:
    model = ScriptedModel(
        calls(("spawn", {"task": "t", "label": "scout"}), ("spawn", {"task": ""})),
        "42",
        "It is 42.",
    )
    async with bare_app(model, tools=[add, spawn_tool()]) as app:
        run = (await app.session()).send("x")
        assert (await run).text == "It is 42."
        told = [text for role, text in model.said() if role == "tool"]
        assert told[0] == '{"status":"completed","text":"42"}'
        assert told[1].startswith("error: task: ")
        [start] = [event for event in await events(run) if event.kind == "spawn_start"]
        assert start.data["label"] == "scout"


async def test_a_tool_of_a_child_may_close_its_parent() -> None:
    parents = list[AppSession]()

    async def leave() -> None:
        await parents[0].close()

    worker = Agent(model=ScriptedModel(calls(("leave", {}))))
    async with bare_app(ScriptedModel(), tools=[leave]) as app:
        parents.append(await app.session())
        run = parents[0].spawn(worker, "x")
        assert (await run).status == "aborted"
        await parents[0].close()
        assert app.sessions == ()


_TREES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(["answer", "fail", "hang"]),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=12,
)


@settings(deadline=None)
@given(_TREES, st.integers(0, 40))
def test_any_tree_of_children_ends_and_is_told_in_order(tree: Any, steps: int) -> None:
    asyncio.run(_ends(tree, steps))


async def _ends(tree: Any, steps: int) -> None:
    """Runs the tree, and interrupts it after so many steps of the event loop."""

    async def grow(context: ToolContext, trees: list[Any]) -> None:
        handles = [context.spawn(_grower(each), "x") for each in trees]
        await asyncio.gather(*handles, return_exceptions=True)

    def _grower(what: Any) -> Agent:
        async def model(given: ModelInput) -> Reply | str:
            if what == "fail":
                raise OSError
            if what == "hang":
                await asyncio.Event().wait()
            if isinstance(what, list) and given.timeline[-1].role == "user":
                return calls(("grow", {"trees": what}))
            return "done"

        return Agent(model=model)

    async with bare_app(ScriptedModel(), tools=[grow]) as app:
        session = await app.session()
        run = session.spawn(_grower([tree]), "x")
        for _ in range(steps):
            await asyncio.sleep(0)
        session.interrupt()
        async with asyncio.timeout(WAIT_SECONDS):
            await run
        assert session.children == ()
        assert in_order(await events(run))
