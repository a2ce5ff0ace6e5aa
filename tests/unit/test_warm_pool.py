"""The pool hands each sandbox to one session, and keeps none that it should not."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from orchestrator.ground.errors import (
    CapacityExhaustedError,
    EngineUnavailableError,
    ValidationError,
)
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.tasks import Tasks
from orchestrator.rules.policy.levels import Levels, load_levels
from orchestrator.sandbox.sandboxes import warm_pool
from orchestrator.sandbox.sandboxes.parts import Tenancy
from orchestrator.sandbox.sandboxes.warm_pool import WarmPool
from orchestrator.sandbox.sandboxes.warm_state import WarmFailures
from orchestrator.settings.settings import Settings
from orchestrator.state.shapes import Shape

LEVELS = load_levels()
NAMES = ("low", "high")


class Link:
    """An agent's link."""

    def __init__(self) -> None:
        self.connected = True
        self.lost: Callable[[], None] = lambda: None

    def when_lost(self, call: Callable[[], None]) -> None:
        self.lost = call


class Parts:
    """A sandbox of the host: it exists until it is closed."""

    def __init__(self, host: "Host", shape: Shape) -> None:
        self.shape = shape
        link = Link()
        host.made += 1
        self.plan = SimpleNamespace(container_id=str(host.made), link=link)
        self._host = host
        host.existing.append(self)

    async def close(self) -> None:
        await asyncio.sleep(0)
        if self._host.slow is not None:
            await self._host.slow.wait()
        if self in self._host.existing:
            self._host.existing.remove(self)


class Host:
    """What exists, and a pool on it."""

    def __init__(self, **settings: Any) -> None:
        self.made = 0
        self.existing: list[Parts] = []
        self.sessions: list[Parts] = []
        self.image = "sha256:1"
        self.fails = self.full = False
        self.failing: set[str] = set()  # levels
        self.missing: set[str] = set()  # images
        self.slow: asyncio.Event | None = None  # starts and removals wait for it
        self.now = 0.0
        self.starts: list[Shape] = []
        self.slept: list[float] = []
        self.settings = Settings(**{"warm_sandboxes": 3, "max_active": 4, **settings})
        self.levels = Levels(LEVELS)
        self.tasks = Tasks()
        self.busy = asyncio.Event()
        self.busy.set()
        self.pool = WarmPool(
            self.settings,
            cast(Callable[[Shape], Any], self.start),
            self.image_id,
            Metrics(),
            lambda: self.now,
            self.sleep,
        )

    def run(self) -> None:
        self.pool.run(self.tasks, self.levels, lambda: len(self.sessions), self.admit, self.quiet)

    async def start(self, shape: Shape) -> Parts:
        self.starts.append(shape)
        await asyncio.sleep(0)
        if self.slow is not None:
            await self.slow.wait()
        if self.fails or shape.level_name in self.failing:
            raise EngineUnavailableError("no engine")
        return Parts(self, shape)

    async def admit(self, sandboxes: int, memory_bytes: int) -> None:
        assert memory_bytes > 0
        if self.full or sandboxes >= self.settings.max_active:
            raise CapacityExhaustedError("full", retry_after=1)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def quiet(self) -> None:
        await self.busy.wait()

    async def image_id(self, name: str) -> str:
        if name in self.missing:
            raise ValidationError(f"{name} is missing")
        return self.image

    def shape(self, name: str) -> Shape:
        level = self.levels[name]
        image = self.settings.image
        return Shape.of(image, self.image, level)

    def take(self, name: str, account: str = "a", *, works: bool = True) -> Parts | None:
        waiting = self.pool.take(self.shape(name), account)
        if waiting is None:
            return None
        if works:
            self.pool.taken_over(waiting, account)
        else:
            self.pool.not_taken_over(waiting, account, failed=True)
        return cast(Parts, waiting.parts)

    async def settled(self) -> None:
        for _ in range(60):
            await asyncio.sleep(0)

    @property
    def waiting(self) -> Counter[str]:
        return Counter(shape.level_name for shape in self.pool.shapes)


async def test_nothing_waits_without_demand_and_nothing_if_it_is_off() -> None:
    host, off = Host(), Host(warm_sandboxes=0)
    other = Host(runtime="runsc")  # which may not show what is mounted late
    for each in (host, off, other):
        each.run()
        await each.settled()
        assert each.starts == []
    assert (host.pool.runs, off.pool.runs, other.pool.runs) == (True, False, False)
    assert off.take("low") is None
    await off.settled()
    assert off.starts == []
    await host.pool.close()


async def test_after_a_session_the_next_one_finds_a_sandbox() -> None:
    host = Host()
    host.run()
    assert host.take("low") is None
    await host.settled()
    assert host.waiting == {"low": 1}
    assert host.take("high") is None  # never one of another level
    taken = host.take("low")
    assert taken is not None
    await host.settled()
    assert taken in host.existing
    assert host.waiting == {"low": 2, "high": 1}
    await host.pool.close()
    assert host.existing == [taken]
    assert host.take("low") is None


async def test_a_sandbox_that_was_handed_over_has_a_moment_before_the_next_one_starts() -> None:
    host = Host()
    host.run()
    assert host.take("low") is None
    await host.settled()
    assert host.slept == []
    host.now += 100
    assert host.take("low") is not None
    await host.settled()
    assert host.slept[0] == pytest.approx(0.2)
    await host.pool.close()


async def test_a_minimum_waits_without_demand_and_is_renewed() -> None:
    host = Host(warm_least={"low": 2}, warm_age=160)
    host.run()
    await host.settled()
    assert host.waiting == {"low": 2}
    before = list(host.existing)
    host.levels.replace(LEVELS)  # the same ones
    await host.settled()
    assert host.existing == before
    host.image = "sha256:2"
    host.now += 60
    host.levels.replace(LEVELS)
    await host.settled()
    assert {shape.image_id for shape in host.pool.shapes} == {"sha256:2"}
    assert not set(before) & set(host.existing)
    before = list(host.existing)
    host.now += 160
    host.levels.replace(LEVELS)
    await host.settled()
    assert host.waiting == {"low": 2}
    assert not set(before) & set(host.existing)
    del before[:]
    host.levels.replace({"high": LEVELS["high"]})
    await host.settled()
    assert host.existing == []
    await host.pool.close()


async def test_one_that_ended_is_given_to_nobody_and_replaced() -> None:
    host = Host(warm_least={"low": 1})
    host.run()
    await host.settled()
    (first,) = host.existing
    host.pool.ended("another")
    host.pool.ended(first.plan.container_id)
    assert host.take("low") is None
    await host.settled()
    assert first not in host.existing
    second = host.existing[0]
    second.plan.link.connected = False
    assert host.pool.shapes == []
    second.plan.link.lost()
    await host.settled()
    assert second not in host.existing
    await host.pool.close()


async def test_one_that_is_too_old_is_given_to_nobody() -> None:
    host = Host(warm_least={"low": 1}, warm_age=100)
    host.run()
    await host.settled()
    host.now += 100
    assert host.take("low") is None
    await host.pool.close()


async def test_a_failure_is_not_repeated_at_once(caplog: pytest.LogCaptureFixture) -> None:
    host = Host(warm_least={"low": 1})
    host.fails = True
    host.run()
    await host.settled()
    for _ in range(3):
        host.take("low")
        await host.settled()
    assert len(host.starts) == 1
    assert (
        "no sandbox of level low can be started ahead, tried again in 2 s: no engine" in caplog.text
    )
    host.fails, host.now = False, host.now + 2
    host.take("low")
    await host.settled()
    assert host.waiting["low"] == 3
    await host.pool.close()


async def test_the_pause_has_a_limit() -> None:
    failures = WarmFailures[str]()
    pauses = [failures.failed("a", 0) for _ in range(1100)]
    assert pauses[:3] == [2, 4, 8]
    assert pauses[-1] == 300
    assert failures.pause("a", 100) == 200
    assert failures.pause("b", 100) == 0
    failures.failed("b", 1000)  # by then, the others are forgotten
    assert failures.failed("a", 1000) == 2


@pytest.mark.parametrize("there", [True, False])
async def test_the_least_have_their_level_s_image_where_it_is_there(there: bool) -> None:
    own = "paddock/dev:latest"
    host = Host(warm_least={"low": 1, "high": 1}, level_images={"high": own})
    host.missing = set() if there else {own}
    host.run()
    await host.settled()
    usual = host.settings.image
    found = {shape.level_name: shape.image for shape in host.pool.shapes}
    assert found == {"low": usual, "high": own if there else usual}
    await host.pool.close()


async def test_a_shape_that_can_t_start_stops_no_other() -> None:
    host = Host(warm_least={"high": 1})
    host.failing = {"high", "medium"}
    host.run()
    for _ in range(3):
        host.take("low")
        host.take("medium", "b")
        await host.settled()
    assert host.waiting["low"] > 0
    assert Counter(shape.level_name for shape in host.starts)["high"] == 1
    await host.pool.close()


async def test_take_overs_that_fail_stop_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    """Each follows a start that succeeded, and may be the fault of the session's workspace."""
    host = Host(warm_least={"low": 2})
    host.run()
    for pause in (2, 4, 8, 16):
        await host.settled()
        parts = host.take("low", works=False)
        assert parts is not None
        await parts.close()
        assert f"sessions of a start without one for {pause} s" in caplog.text
        await host.settled()
        host.now += pause - 1
        assert host.take("low") is None
        other = host.take("low", "b")
        assert other is not None
        host.now += 1
    await host.settled()
    assert host.take("low") is not None  # after the pause, by itself
    assert host.tasks.check().status == "ok"
    await host.pool.close()


async def test_a_sandbox_is_replaced_after_it_was_taken_over() -> None:
    """Not meanwhile: the session's start goes first."""
    host = Host(warm_least={"low": 1})
    host.run()
    await host.settled()
    waiting = host.pool.take(host.shape("low"), "a")
    assert waiting is not None
    await host.settled()
    assert len(host.starts) == 1
    host.pool.taken_over(waiting, "a")
    await host.settled()
    assert len(host.starts) == 2
    await host.pool.close()


async def test_it_gives_up_one_at_a_time_and_waits_for_its_removal() -> None:
    host = Host(warm_least={"low": 3})
    host.run()
    await host.settled()
    oldest, second, _ = host.existing
    host.full = True
    assert await host.pool.give_up_one()
    assert oldest not in host.existing
    assert second in host.existing
    assert await host.pool.give_up_one()
    assert await host.pool.give_up_one()
    assert host.existing == []
    assert not await host.pool.give_up_one()
    await host.pool.close()


async def test_a_start_under_way_makes_room_for_sessions() -> None:
    host = Host(max_active=2, warm_least={"low": 1})
    host.slow = asyncio.Event()
    host.sessions.append(Parts(host, host.shape("high")))
    host.run()
    await host.settled()
    host.sessions.append(Parts(host, host.shape("high")))
    await host.pool.make_room()
    host.slow.set()
    await host.settled()
    assert host.existing == host.sessions
    await host.pool.close()


async def test_a_session_waits_for_no_removal_that_it_does_not_need() -> None:
    host = Host(warm_least={"low": 1})
    host.run()
    await host.settled()
    host.slow = asyncio.Event()
    host.pool.ended(host.pool.container_ids[0])
    await host.settled()
    removing = host.existing[0]
    await host.pool.make_room()
    assert removing in host.existing
    host.slow.set()
    await host.pool.close()


async def test_shapes_in_turn_do_not_displace_each_other() -> None:
    host = Host(warm_sandboxes=2, max_active=10)
    host.run()
    taken = []
    for number in range(30):
        taken.append(host.take(("low", "medium", "high")[number % 3]))
        await host.settled()
    assert sum(parts is not None for parts in taken) >= 15
    await host.pool.close()


async def test_an_image_that_was_replaced_does_not_stop_the_pool() -> None:
    """Nothing can be started from an earlier image that was removed."""
    host = Host()
    host.run()
    shape = host.shape("low")
    host.image = "sha256:2"
    host.pool.take(shape, "a")
    await host.settled()
    assert [shape.image_id for shape in host.pool.shapes] == ["sha256:2"]
    assert len(host.starts) == 1
    await host.pool.close()


async def test_sessions_that_are_always_created_do_not_stop_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host(warm_least={"low": 1})
    host.run()
    await host.settled()
    host.busy.clear()
    (dead,) = host.existing
    host.pool.ended(dead.plan.container_id)
    await host.settled()
    assert host.existing == []  # a removal waits for nobody
    await host.pool.close()
    monkeypatch.setattr(warm_pool, "_CALM_SECONDS", 0)
    host = Host(warm_least={"low": 1})
    host.busy.clear()
    host.run()
    await host.settled()
    assert host.waiting == {"low": 1}
    await host.pool.close()


async def test_a_missing_default_image_stops_no_other() -> None:
    host = Host(warm_least={"low": 1})

    async def find(name: str) -> str:
        if name == host.settings.image:
            raise EngineUnavailableError("no such image")
        return "sha256:1"

    host.pool._images._find = find
    host.run()
    host.pool.take(replace(host.shape("high"), image="another"), "a")
    await host.settled()
    assert host.waiting == {"high": 1}
    await host.pool.close()


async def test_room_that_became_free_is_used() -> None:
    host = Host(warm_least={"low": 1})
    host.full = True
    host.run()
    await host.settled()
    assert host.waiting == {}
    host.full = False
    host.pool.wake()
    await host.settled()
    assert host.waiting == {"low": 1}
    await host.pool.close()


async def test_sessions_go_first() -> None:
    host = Host(warm_least={"low": 3})
    host.busy.clear()  # a session is being created
    host.run()
    await host.settled()
    assert host.starts == []
    host.busy.set()
    await host.settled()
    assert host.waiting == {"low": 3}
    taken = [host.take("low"), host.take("low")]
    host.sessions += [parts for parts in taken if parts is not None]
    await host.settled()
    assert len(host.existing) == host.settings.max_active
    host.sessions.append(Parts(host, host.shape("high")))
    await host.pool.make_room()
    assert len(host.existing) == host.settings.max_active
    await host.pool.close()


def test_a_sandbox_belongs_to_one_session() -> None:
    tenancy, session = Tenancy(), cast(Any, SimpleNamespace(id="s"))
    assert (tenancy.vacant, repr(tenancy), tenancy.cut("x")) == (True, "", "x")
    tenancy.begin(session)
    assert (tenancy.vacant, repr(tenancy), tenancy.session) == (False, "s", session)
    with pytest.raises(ValueError, match="another session"):
        tenancy.begin(session)


class Pools(RuleBasedStateMachine):
    """Sessions come and go, sandboxes die, files change, and the host fails, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.host = self.do(self._opened())
        self.given: set[Parts] = set()

    async def _opened(self) -> Host:
        host = Host(warm_age=1000)
        host.run()
        return host

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    @rule(name=st.sampled_from(NAMES), steps=st.integers(0, 9))
    def create(self, name: str, steps: int) -> None:
        self.do(self._create(name, steps))

    async def _create(self, name: str, steps: int) -> None:
        host = self.host
        if len(host.sessions) >= host.settings.max_active:
            return
        parts = host.take(name)
        if parts is None:
            host.sessions.append(cast(Parts, None))  # reserved
            self.hold(False)
            await host.pool.make_room()
            host.sessions.pop()
            parts = Parts(host, host.shape(name))
        assert parts not in self.given
        assert parts.shape == host.shape(name)
        assert parts in host.existing
        self.given.add(parts)
        host.sessions.append(parts)
        for _ in range(steps):
            await asyncio.sleep(0)

    @rule(steps=st.integers(0, 9))
    def end(self, steps: int) -> None:
        if self.host.sessions:
            self.hold(False)
            self.do(self.host.sessions.pop().close())

    @rule(which=st.integers(0, 9))
    def die(self, which: int) -> None:
        ids = self.host.pool.container_ids
        if ids:
            self.host.pool.ended(ids[which % len(ids)])

    @rule(fails=st.booleans(), full=st.booleans(), seconds=st.sampled_from((0, 10, 700)))
    def change(self, fails: bool, full: bool, seconds: int) -> None:
        self.host.fails, self.host.full = fails, full
        self.host.now += seconds

    @rule(slow=st.booleans())
    def hold(self, slow: bool) -> None:
        """Starts and removals take long, or those that did end."""
        if self.host.slow is not None:
            self.host.slow.set()
        self.host.slow = asyncio.Event() if slow else None

    @rule()
    def restart(self) -> None:
        """The pool's task is cancelled, wherever it is."""
        self.hold(False)
        self.do(self._restarted())

    async def _restarted(self) -> None:
        await self.host.pool.close()
        assert set(self.host.existing) == set(self.host.sessions)
        self.host.run()

    @rule()
    def settle(self) -> None:
        self.hold(False)
        self.do(self.host.settled())
        assert len(self.host.existing) <= self.host.settings.max_active

    @rule()
    def new_image(self) -> None:
        self.host.image += "1"
        self.host.levels.replace(LEVELS)

    @rule(steps=st.integers(0, 60))
    def wait(self, steps: int) -> None:
        async def wait() -> None:
            for _ in range(steps):
                await asyncio.sleep(0)

        self.do(wait())

    @invariant()
    def few_enough_exist(self) -> None:
        assert len(self.host.pool.shapes) <= self.host.settings.warm_sandboxes
        waiting = set(self.host.pool.container_ids)
        assert not waiting & {parts.plan.container_id for parts in self.given}

    def teardown(self) -> None:
        async def close() -> None:
            await self.host.pool.close()

        self.hold(False)
        with self.runner:
            self.do(close())
        assert set(self.host.existing) <= set(self.host.sessions)


@pytest.mark.slow
def test_no_sandbox_has_two_sessions_and_none_is_left() -> None:
    run_state_machine_as_test(Pools)


def files_shape(host: Host, level: str, files: str) -> Shape:
    shape = host.shape(level)
    return shape.beginning_as(files, replace(shape.limits, pids=30))


async def test_sandboxes_wait_for_sessions_that_begin_as_a_snapshot() -> None:
    host = Host(warm_sandboxes=4, warm_least={"low": 1})
    host.run()
    first, second = files_shape(host, "low", "snap-1"), files_shape(host, "low", "snap-2")
    # What no level's share takes is for the first ones.
    assert host.pool.keep({first: 2, second: 5}) == {first: 2, second: 1}
    await host.settled()
    assert Counter(host.pool.shapes) == {host.shape("low"): 1, first: 2, second: 1}
    taken = host.pool.take(first, "a")
    assert taken is not None
    assert taken.shape.limits.pids == 30
    host.pool.taken_over(taken, "a")
    await host.settled()
    assert Counter(host.pool.shapes)[first] == 2
    assert host.pool.take(files_shape(host, "low", "snap-3"), "a") is None
    host.pool.keep({second: 1})
    await host.settled()
    assert Counter(host.pool.shapes) == {host.shape("low"): 1, second: 1}
    await host.pool.close()


async def test_those_of_an_earlier_level_or_image_do_not_wait() -> None:
    host = Host(warm_sandboxes=2)
    host.run()
    shape = files_shape(host, "low", "snap-1")
    host.pool.keep({shape: 2})
    await host.settled()
    assert host.pool.shapes == [shape, shape]
    host.levels.replace({**host.levels, "low": replace(host.levels["low"], sha256="0")})
    await host.settled()
    assert host.pool.shapes == []
    newer = files_shape(host, "low", "snap-1")
    host.pool.keep({newer: 1})
    await host.settled()
    assert host.pool.shapes == [newer]
    host.image = "sha256:other"
    host.pool.image_changed(host.settings.image, host.image)
    await host.settled()
    assert host.pool.shapes == []
    await host.pool.close()


async def test_where_nothing_waits_nothing_is_kept() -> None:
    host = Host(warm_sandboxes=0)
    assert not host.pool.keep({files_shape(host, "low", "snap-1"): 1})
