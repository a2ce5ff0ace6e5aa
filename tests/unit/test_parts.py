"""Parts of a sandbox: opened in order, released once in reverse, whatever fails and when."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.errors import (
    EngineUnavailableError,
    SandboxUnavailableError,
    ValidationError,
)
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.engine.base import Container
from orchestrator.sandbox.sandboxes.parts import Assembly, Part, Plan
from orchestrator.sandbox.sandboxes.slow_steps import with_steps

CONTAINER = cast(Container, None)


class BrokenError(Exception):
    """An unexpected error."""


FAILURES = (None, EngineUnavailableError("no"), OSError("no"), TimeoutError(), BrokenError())
# The number of times that a part yields before it fails or is done.
WAITS = st.integers(0, 2)


class Way(NamedTuple):
    """The behaviour of one of a part's methods."""

    waits: int
    failure: BaseException | None


class FakePart(Part):
    """Records its calls, and behaves as configured."""

    def __init__(self, name: str, said: list[str], opening: Way, releasing: Way) -> None:
        self.name = name
        self._said = said
        self._opening = opening
        self._releasing = releasing

    async def _go(self, what: str, way: Way) -> None:
        self._said.append(f"{what} {self.name}")
        for _ in range(way.waits):
            await asyncio.sleep(0)
        if way.failure is not None:
            raise way.failure
        self._said.append(f"{what} {self.name} done")

    async def open(self, plan: Plan) -> None:
        await self._go("open", self._opening)

    async def adopt(self, plan: Plan, container: Container) -> None:
        await self._go("open", self._opening)

    async def leave(self, plan: Plan) -> None:
        await self._go("leave", self._releasing)

    async def close(self, plan: Plan) -> None:
        await self._go("close", self._releasing)


WAYS = st.builds(Way, WAITS, st.sampled_from((None, None, None, *FAILURES)))


def assembly(said: list[str], ways: list[tuple[Way, Way]], releases: TaskScope) -> Assembly:
    parts = [FakePart(str(number), said, *way) for number, way in enumerate(ways)]
    return Assembly(parts, cast(Any, SimpleNamespace(name="abc")), releases)


@given(
    ways=st.lists(st.tuples(WAYS, WAYS), max_size=5),
    adopts=st.booleans(),
    cancels=st.lists(st.integers(0, 4), max_size=3),
    callers=st.integers(1, 3),
)
async def test_what_was_begun_is_released_once_and_in_reverse(
    ways: list[tuple[Way, Way]], adopts: bool, cancels: list[int], callers: int
) -> None:
    """`cancels`: the number of steps after which the opener or releaser is cancelled, each time."""
    said: list[str] = []
    releases = TaskScope("the test")
    parts = assembly(said, ways, releases)
    opening = parts.adopt(CONTAINER) if adopts else parts.open()
    opened = await _cancelled(opening, cancels)
    if opened:
        release = parts.leave if adopts else parts.close
        closing = [_cancelled(release(), cancels) for _ in range(callers)]
        await asyncio.gather(*closing)
    await releases.drain()
    begun = [line.split()[1] for line in said if line.startswith("open") and "done" not in line]
    verb = "leave" if adopts else "close"
    released = [line for line in said if not line.startswith("open") and "done" not in line]
    assert begun == [str(number) for number in range(len(begun))]
    assert released == [f"{verb} {name}" for name in reversed(begun)]
    # A part is released only after all later parts have been released.
    firm = [way.failure is None for _, way in ways]
    done = [line.split()[1] for line in said if line.startswith(verb) and "done" in line]
    assert done == [name for name in reversed(begun) if firm[int(name)]]
    assert opened <= (len(begun) == len(ways))


async def _cancelled(work: Any, cancels: list[int]) -> bool:
    """Whether the work finished; it is cancelled after each of these numbers of steps."""
    task = asyncio.ensure_future(work)
    for steps in cancels:
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return False
    except tuple({type(failure) for failure in FAILURES if failure is not None}):
        return False
    return True


async def test_what_stays_is_told(caplog: pytest.LogCaptureFixture) -> None:
    fine = Way(0, None)
    ways = [(fine, fine), (fine, Way(0, OSError("busy"))), (fine, Way(1, BrokenError()))]
    parts = assembly([], ways, TaskScope("the test"))
    await parts.open()
    with caplog.at_level(logging.ERROR):
        await parts.close()
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "sandbox abc is not removed completely: its 2 stays",
        "sandbox abc is not removed completely: its 1 stays: busy",
    ]


async def test_a_failed_open_is_told_to_the_caller() -> None:
    fine = Way(0, None)
    said: list[str] = []
    ways = [(fine, fine), (Way(1, EngineUnavailableError("no room")), fine), (fine, fine)]
    parts = assembly(said, ways, TaskScope("the test"))
    with pytest.raises(EngineUnavailableError, match="no room"):
        await parts.open()
    assert said == [
        *("open 0", "open 0 done", "open 1"),
        *("close 1", "close 1 done", "close 0", "close 0 done"),
    ]


async def test_a_part_that_is_interrupted_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said: list[str] = []
    fine = Way(0, None)
    ways = [(fine, fine), (fine, Way(0, asyncio.CancelledError())), (fine, fine)]
    parts = assembly(said, ways, TaskScope("the test"))
    await parts.open()
    with caplog.at_level(logging.ERROR):
        await parts.close()
    assert said[-1] == "close 0 done"
    assert "its 1 was interrupted" in caplog.text


async def test_a_sandbox_that_was_left_is_not_taken_for_removed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fine = Way(0, None)
    parts = assembly([], [(fine, fine)], TaskScope("the test"))
    await parts.open()
    await parts.leave()
    with caplog.at_level(logging.ERROR):
        await parts.close()
    assert "it was left before" in caplog.text


async def test_a_start_that_is_late_says_which_part_was_slow() -> None:
    clock = [0.0]
    said: list[str] = []
    late = SandboxUnavailableError("no hello within 20 s", retry_after=1)
    parts = [
        SlowPart("network", 0.1, None, clock, said),
        SlowPart("container", 21.2, None, clock, said),
        SlowPart("hello", 20, late, clock, said),
        SlowPart("agent", 1, None, clock, said),
    ]
    plan = cast(Any, SimpleNamespace(name="abc"))
    started = Assembly(parts, plan, TaskScope("the test"), lambda: clock[0])
    with pytest.raises(SandboxUnavailableError) as caught:
        await started.open()
    assert caught.value.detail == "no hello within 20 s (its start: container 21 s, hello 20 s)"
    assert caught.value.fields == {"retry_after": 1}
    assert said == ["close hello", "close container", "close network"]


def test_steps_are_told_only_of_what_is_late() -> None:
    quick = SandboxUnavailableError("the agent ended")
    assert with_steps(quick, {"container": 0.4}) is quick
    refused = ValidationError("no such image", field="image")
    assert with_steps(refused, {"container": 30}) is refused


class SlowPart(FakePart):
    """A part that takes so many seconds of the clock to open, and may fail then."""

    def __init__(
        self,
        name: str,
        seconds: float,
        failure: BaseException | None,
        clock: list[float],
        said: list[str],
    ) -> None:
        super().__init__(name, said, Way(0, None), Way(0, None))
        self._seconds, self._failure, self._clock = seconds, failure, clock

    async def open(self, plan: Plan) -> None:
        self._clock[0] += self._seconds
        if self._failure is not None:
            raise self._failure

    async def close(self, plan: Plan) -> None:
        self._said.append(f"close {self.name}")
