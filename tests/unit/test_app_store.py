"""Apps save sessions, evict them, and get them back: nothing is lost."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.app import (
    AppBusyError,
    AppHooks,
    AppSnapshot,
    FileStore,
    MemoryStore,
    Runner,
    SessionRef,
    SnapshotError,
)
from tests.support.apps import ScriptedModel, bare_app, calls


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FullStore(MemoryStore):
    """Refuses to save while it is full."""

    full = True

    async def save(self, session_id: str, text: str) -> None:
        if self.full:
            raise OSError("the disk is full")
        await super().save(session_id, text)


class SlowStore(MemoryStore):
    """Waits in each save."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.entered = asyncio.Event()

    async def save(self, session_id: str, text: str) -> None:
        self.entered.set()
        await self.gate.wait()
        await super().save(session_id, text)


async def test_a_session_is_the_same_until_it_is_closed() -> None:
    async with bare_app(ScriptedModel()) as app:
        session = await app.session("a")
        assert await app.session("a") is session
        assert (await app.session()).id != (await app.session()).id
        assert len(app.sessions) == 3


async def test_two_cycles_lose_nothing(tmp_path: Path) -> None:
    for cycle in (1, 2, 3):
        async with bare_app(ScriptedModel(f"answer {cycle}"), store=FileStore(tmp_path)) as app:
            session = await app.session("user-123")
            assert session.tick == cycle - 1
            if cycle > 1:
                assert session.queued_messages == (f"later {cycle - 1}",)
                assert session.timeline[-1].content == f"answer {cycle - 1}"
            await session.send(f"question {cycle}")
            session.queue(f"later {cycle}")
    [path] = tmp_path.iterdir()
    assert path.stat().st_mode & 0o077 == 0
    snapshot = AppSnapshot.model_validate_json(path.read_text())
    assert AppSnapshot.model_validate_json(snapshot.to_json()) == snapshot
    assert [each.content for each in snapshot.timeline if each.role == "assistant"] == [
        "answer 1",
        "answer 2",
        "answer 3",
    ]


async def test_a_session_is_saved_after_a_run_and_not_after_an_interrupt() -> None:
    saved = list[int]()
    done = asyncio.Event()

    def after(_id: str, snapshot: AppSnapshot) -> None:
        saved.append(len(snapshot.timeline))
        done.set()

    model = ScriptedModel()
    async with bare_app(model, hooks=AppHooks(on_after_persist=after)) as app:
        session = await app.session()
        await session.send("a")
        await done.wait()
        assert saved == [2]
        run = session.send("b")
        session.interrupt()
        await run
        assert saved == [2]


async def test_a_save_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    store = FullStore()
    async with bare_app(ScriptedModel(), store=store) as app:
        session = await app.session("a")
        assert (await session.send("x")).text == "done"
        await session.close()
        assert "session a could not be saved" in caplog.text


async def test_the_least_recently_used_idle_session_makes_room() -> None:
    model = ScriptedModel()
    async with bare_app(model, max_active=2) as app:
        first, second = await app.session("a"), await app.session("b")
        first.queue("keep me")
        await app.session("c")
        assert app.sessions == ("a", "c")
        assert (first.status, second.status) == ("idle", "closed")
        await app.session("b")
        await app.session("d")
        assert first.status == "closed"
        assert (await app.session("a")).queued_messages == ("keep me",)


async def test_a_session_that_runs_is_never_evicted() -> None:
    model, clock = ScriptedModel(), Clock()
    model.gate.clear()
    async with bare_app(model, max_active=1, idle_timeout=10, clock=clock) as app:
        session = await app.session("a")
        run = session.send("x")
        await model.asked.wait()
        clock.now = 1000
        assert await app.evict_idle() == ()
        with pytest.raises(AppBusyError, match="1 sessions are running"):
            await app.session("b")
        model.gate.set()
        await run
        await app.session("b")
        assert app.sessions == ("b",)


async def test_an_idle_session_is_saved_and_closed() -> None:
    clock = Clock()
    async with bare_app(ScriptedModel(), idle_timeout=10, clock=clock) as app:
        await app.session("a")
        clock.now = 5
        (await app.session("b")).queue("x")
        clock.now = 10
        assert await app.evict_idle() == ("a",)
        clock.now = 15
        assert await app.evict_idle() == ("b",)
        assert (await app.session("b")).queued_messages == ("x",)


async def test_a_session_that_cannot_be_saved_stays() -> None:
    store = FullStore()
    async with bare_app(ScriptedModel(), store=store, max_active=1) as app:
        session = await app.session("a")
        session.queue("x")
        with pytest.raises(OSError, match="the disk is full"):
            await app.session("b")
        assert app.sessions == ("a",)
        assert session.status == "idle"
        store.full = False
        await app.session("b")
        assert (await app.session("a")).queued_messages == ("x",)


async def test_a_session_that_is_used_while_it_is_saved_stays() -> None:
    store, clock = SlowStore(), Clock()
    async with bare_app(ScriptedModel(), store=store, idle_timeout=10, clock=clock) as app:
        session = await app.session("a")
        clock.now = 10
        evicting = asyncio.create_task(app.evict_idle())
        await store.entered.wait()
        session.queue("x")
        store.gate.set()
        assert await evicting == ()
        assert app.sessions == ("a",)


async def test_closing_by_the_app_forgets_and_by_the_session_keeps() -> None:
    store = MemoryStore()
    async with bare_app(ScriptedModel(), store=store) as app:
        await (await app.session("a")).send("x")
        await (await app.session("a")).close()
        assert (await app.session("a")).tick == 1
        await app.close("a")
        assert await store.load("a") is None
        assert (await app.session("a")).tick == 0
        await app.close("never")


async def test_an_ephemeral_session_leaves_nothing() -> None:
    seen, store = list[str](), MemoryStore()
    hooks = AppHooks(
        on_session_create=lambda id: seen.append(id), on_session_close=lambda id: seen.append(id)
    )
    async with bare_app(ScriptedModel("yes"), store=store, hooks=hooks) as app:
        assert (await app.run("x")).text == "yes"
        assert app.sessions == ()
        assert seen[0] == seen[1]
        assert await store.load(seen[0]) is None


async def test_hooks_may_cancel_or_replace_what_is_saved_and_restored() -> None:
    restore = list[Any]()
    seen, store = list[str](), MemoryStore()

    def persist(_id: str, snapshot: AppSnapshot) -> AppSnapshot | bool:
        return snapshot.tick > 1 and snapshot.model_copy(update={"tick": 7})

    hooks = AppHooks(
        on_before_persist=persist,  # type: ignore[arg-type]
        on_after_persist=lambda _id, _snapshot: seen.append("persisted"),
        on_before_restore=lambda _id, _text: restore.pop(),
        on_after_restore=lambda _id, _snapshot: seen.append("restored"),
    )
    async with bare_app(ScriptedModel(calls(("none", {}))), store=store, hooks=hooks) as app:
        await (first := await app.session("a")).send("x")
        await first.close()
        assert seen == ["persisted"]
        restore[:] = [None]
        await (again := await app.session("a")).close()
        assert (again.tick, seen) == (7, ["persisted", "restored"])
        restore[:] = [again.snapshot().model_copy(update={"tick": 9}).to_json()]
        await (changed := await app.session("a")).close()
        assert changed.tick == 9
        restore[:] = [False]
        fresh = await app.session("a")
        assert (fresh.tick, fresh.timeline) == (0, [])
        await fresh.send("x")
        await fresh.close()
        # One tick: the hook has cancelled its save.
        assert seen == ["persisted", "restored", "restored"]


async def test_hooks_of_runners_have_their_times() -> None:
    seen = list[str]()

    class Noting(Runner):
        async def on_session_init(self, session: SessionRef) -> None:
            seen.append("init")

        async def prepare_model_input(self, session: SessionRef, given: Any) -> Any:
            seen.append("prepare")
            return given

        async def on_persist(self, session: SessionRef, snapshot: AppSnapshot) -> AppSnapshot:
            seen.append("persist")
            return snapshot.model_copy(update={"runner": {"n": 1}})

        async def on_restore(self, session: SessionRef, snapshot: AppSnapshot) -> None:
            seen.append(f"restore {snapshot.runner}")

        async def on_destroy(self, session: SessionRef) -> None:
            seen.append("destroy")

    async with bare_app(ScriptedModel(), runner=Noting()) as app:
        session = await app.session("a")
        assert seen == []
        await session.send("x")
        await session.send("y")
        await session.close()
        assert seen == ["init", "prepare", "persist", "prepare", "persist", "destroy"]
        seen.clear()
        await (await app.session("a")).send("z")
        assert seen[:3] == ["restore {'n': 1}", "init", "prepare"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{", "the text: Invalid JSON"),
        ('{"version": "2.0"}', "version: Input should be '1.0'"),
    ],
)
async def test_a_snapshot_that_is_none_is_refused(text: str, wrong: str) -> None:
    store = MemoryStore()
    await store.save("a", text)
    async with bare_app(ScriptedModel(), store=store) as app:
        with pytest.raises(SnapshotError, match=f"the snapshot of a: {wrong}"):
            await app.session("a")
        assert app.sessions == ()


async def test_a_snapshot_of_another_session_is_refused() -> None:
    store = MemoryStore()
    async with bare_app(ScriptedModel(), store=store) as app:
        await store.save("b", (await app.session("a")).snapshot().to_json())
        with pytest.raises(SnapshotError, match="the snapshot of b is of a"):
            await app.session("b")


@pytest.mark.parametrize("id", ["", "..", "a/b", "-a", "a" * 129])
async def test_ids_are_checked(id: str, tmp_path: Path) -> None:
    async with bare_app(ScriptedModel(), store=FileStore(tmp_path)) as app:
        with pytest.raises(ValueError, match="is no id of a session"):
            await app.session(id)
    with pytest.raises(ValueError, match="is no id of a session"):
        await FileStore(tmp_path).load(id)


@pytest.mark.parametrize("name", ["max_ticks", "max_timeline_entries", "max_timeline_bytes"])
def test_limits_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        bare_app(ScriptedModel(), tools=(), **{name: 0})


async def test_fifty_sessions_in_eight_places_lose_nothing() -> None:
    async with bare_app(ScriptedModel(), max_active=8) as app:
        for turn in (1, 2):
            for number in range(50):
                session = await app.session(f"s{number}")
                await session.send(f"{turn}")
                assert len(app.sessions) <= 8
        for number in range(50):
            session = await app.session(f"s{number}")
            said = [each.content for each in session.timeline]
            assert said == ["1", "done", "2", "done"]


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "queue", "interrupt", "close", "forget", "evict"]),
        st.sampled_from(["a", "b", "c"]),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(_STEPS)
def test_any_order_of_steps_loses_no_message(steps: list[tuple[str, str]]) -> None:
    asyncio.run(_steps(steps))


async def _steps(steps: list[tuple[str, str]]) -> None:
    expected: dict[str, list[str]] = {"a": [], "b": [], "c": []}
    clock = Clock()
    async with bare_app(ScriptedModel(), max_active=2, idle_timeout=1, clock=clock) as app:
        for number, (step, id) in enumerate(steps):
            text = f"{number}"
            if step == "forget":
                await app.close(id)
                expected[id].clear()
                continue
            if step == "evict":
                clock.now += 1
                await app.evict_idle()
                assert app.sessions == ()
                continue
            session = await app.session(id)
            if step == "close":
                # What is saved is what the latest run left: the app saves what waits, too.
                await session.send(text)
                await session.close()
            elif step == "send":
                await session.send(text)
            elif step == "queue":
                session.queue(text)
            else:
                session.interrupt(text)
            expected[id].append(text)
            assert len(app.sessions) <= 2
        for id, texts in expected.items():
            session = await app.session(id)
            users = [each.content for each in session.timeline if each.role == "user"]
            assert [*users, *session.queued_messages] == texts
