"""Counts over sessions are what counting all of them would find, after any sequence of changes."""

from collections import Counter
from dataclasses import replace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.limits import KeyUsage
from orchestrator.rules.policy.levels import SessionLimits, load_levels
from orchestrator.state.lifecycle import Suspension
from orchestrator.state.registry import Registry
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from paddock.contract.words import Status
from tests.unit.test_registry import TTL, ended, session

LEVELS = load_levels()
OWNERS = ("ci", "ops")
_BOX = cast(Sandbox, object())
_CPUS = (0.1, 0.2, 0.7, 2.0)
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *("reserve", "add", "unreserve", "end", "old", "begin", "done"),
                *("status", "level", "limits", "suspension", "sandbox"),
            )
        ),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    max_size=80,
)


class _World:
    """A registry, and what was done to it."""

    def __init__(self) -> None:
        self.registry = Registry(TTL)
        self.numbers = Counter[int]()
        self.sessions: dict[int, Session] = {}
        self.reserved: set[int] = set()
        self.changing: dict[str, tuple[Any, SessionLimits]] = {}

    def step(self, kind: str, number: int, value: int) -> None:
        one = self.sessions.get(number)
        if kind == "reserve" and one is None:
            self.numbers[number] += 1
            name = f"box-{number}"
            one = session(
                name, key=f"{name}-{self.numbers[number]}", owner=OWNERS[number % len(OWNERS)]
            )
            self.registry.reserve(one)
            self.sessions[number] = one
            self.reserved.add(number)
        elif one is not None:
            self._change(kind, one, number, value)

    def _change(self, kind: str, one: Session, number: int, value: int) -> None:
        limits = replace(one.limits, cpus=_CPUS[value], memory_bytes=1 + value)
        if kind == "add":
            self.registry.add(one)
            self.reserved.discard(number)
        elif kind == "unreserve" and number in self.reserved:
            self._finish(one)
            self.registry.unreserve(one)
            self._drop(number)
        elif kind in ("end", "old") and number not in self.reserved:
            self._finish(one)
            one.sandbox = None
            self.registry.end(ended(one, TTL + 1 if kind == "old" else 0))
            self._drop(number)
        elif kind == "begin" and one.key not in self.changing:
            change = self.registry.changing(one, limits)
            change.__enter__()
            self.changing[one.key] = change, limits
        elif kind == "done":
            self._finish(one)
        elif kind == "status":
            one.status = (Status.ACTIVE, Status.PAUSED)[value % 2]
        elif kind == "level":
            one.set_level(list(LEVELS.values())[value % len(LEVELS)])
        elif kind == "limits":
            one.limits = limits
        elif kind == "suspension":
            one.suspension = (None, *Suspension)[value]
        elif kind == "sandbox":
            one.sandbox = None if value % 2 else _BOX

    def _finish(self, one: Session) -> None:
        change, _ = self.changing.pop(one.key, (None, None))
        if change is not None:
            change.__exit__(None, None, None)

    def _drop(self, number: int) -> None:
        del self.sessions[number]
        self.reserved.discard(number)

    def held(self, owner: str) -> KeyUsage:
        """What the owner holds, counted one by one."""
        own = [one for one in self.sessions.values() if one.owner == owner]
        both = [(one.limits, self.changing.get(one.key, (None, one.limits))[1]) for one in own]
        return KeyUsage(
            len(own),
            sum(max(each.cpus for each in pair) for pair in both),
            sum(max(each.memory_bytes for each in pair) for pair in both),
        )


def _same(registry: Registry, world: _World) -> None:
    live, known = registry.live, registry.all
    tally = registry.tally
    assert tally.kinds == Counter((each.status, each.level.name) for each in known)
    suspended = sum(each.suspended for each in live)
    assert tally.suspended == suspended
    assert registry.with_sandbox == len(registry) - suspended
    boxed = {each.key for each in live if each.sandbox is not None}
    assert {each.key for each in registry.sandboxed} == boxed
    for owner in OWNERS:
        used, slow = registry.usage(owner), world.held(owner)
        assert (used.sessions, used.memory_bytes) == (slow.sessions, slow.memory_bytes)
        assert abs(used.cpus - slow.cpus) < 1e-9
        assert registry.owned(owner) == [each for each in live if each.owner == owner]


@given(steps=_STEPS)
async def test_counts_are_those_of_all_sessions_after_any_steps(
    steps: list[tuple[str, int, int]],
) -> None:
    world = _World()
    for step in steps:
        world.step(*step)
        _same(world.registry, world)


async def test_nothing_is_left_of_sessions_that_are_gone() -> None:
    """Sums of cores are exact: after any number of sessions, they are back at nothing."""
    registry = Registry(0)
    for number in range(50):
        one = session(f"box-{number}", limits=replace(session("x").limits, cpus=0.1 * number))
        registry.reserve(one)
        registry.add(one)
    assert registry.usage("ci").sessions == 50
    for one in registry.live:
        registry.end(ended(one, 1))
    assert registry.usage("ci") == KeyUsage()
    assert (registry.tally.kinds, registry.with_sandbox, registry.sandboxed) == ({}, 0, [])
