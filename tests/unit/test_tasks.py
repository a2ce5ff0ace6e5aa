"""Background tasks are restarted, counted, and reported."""

import asyncio
import logging

import pytest

from orchestrator.ground.check import CheckStatus
from orchestrator.ground.tasks import TaskName, Tasks
from tests.support.limits import WAIT_SECONDS

NAME = TaskName.POLICY


class Work:
    """Fails or returns as often as configured, then runs forever."""

    def __init__(self, failures: int, error: Exception | None) -> None:
        self._failures = failures
        self._error = error
        self.begun = 0
        self.runs = asyncio.Event()
        self.stop = asyncio.Event()

    async def __call__(self) -> None:
        self.begun += 1
        if self.begun > self._failures:
            self.runs.set()
            await self.stop.wait()
            self.stop.clear()
            self.runs.clear()
        if self._error is not None:
            raise self._error


class Plane:
    """Tasks with a clock that the test moves; the test sees their pauses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.counted: list[TaskName] = []
        self.pauses: list[float] = []
        # Tasks wait for this event; it is set, so by default they do not wait.
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.paused = asyncio.Event()
        self.tasks = Tasks(self.counted.append, lambda: self.now)
        monkeypatch.setattr("orchestrator.ground.tasks.asyncio.sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.paused.set()
        await self.go_on.wait()

    def status(self) -> CheckStatus:
        return self.tasks.check().status


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyError("x"), None])
async def test_what_fails_or_returns_is_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception | None
) -> None:
    plane, work = Plane(monkeypatch), Work(9, error)
    task = plane.tasks.start(NAME, work)
    async with asyncio.timeout(WAIT_SECONDS):
        await work.runs.wait()
    assert plane.counted == [NAME] * 9
    assert plane.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(logged) == 9
    assert all("policy" in record.getMessage() for record in logged)
    await task.close()
    assert work.begun == 10


async def test_readiness_tells_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plane, work = Plane(monkeypatch), Work(0, ValueError("with a path /root/x"))
    task = plane.tasks.start(NAME, work)
    other = plane.tasks.start(TaskName.HOOKS, Work(0, None))
    async with asyncio.timeout(WAIT_SECONDS):
        await work.runs.wait()
        assert plane.status() is CheckStatus.OK
        plane.go_on.clear()
        work.stop.set()
        await plane.paused.wait()
        check = plane.tasks.check()
        assert check.status is CheckStatus.FAILURE
        assert check.detail == "stopped by a failure: policy"  # without the error's text
        plane.go_on.set()
        await work.runs.wait()
        assert plane.status() is CheckStatus.WARNING
        plane.now += 59
        assert plane.status() is CheckStatus.WARNING
        plane.now += 1
        assert plane.status() is CheckStatus.OK
        # After a long run without failure, the next pause is short again.
        work.runs.clear()
        work.stop.set()
        await work.runs.wait()
    assert plane.pauses == [0.1, 0.1]
    await task.close()
    await other.close()


async def test_what_has_an_end_is_tried_until_it_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plane, tries, done = Plane(monkeypatch), 0, asyncio.Event()

    async def work() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError("not yet")
        done.set()

    task = plane.tasks.start(NAME, work, forever=False)
    async with asyncio.timeout(WAIT_SECONDS):
        await done.wait()
    await task.close()
    assert (tries, plane.status()) == (3, CheckStatus.OK)


async def test_closing_ends_it_in_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    plane, work = Plane(monkeypatch), Work(1, OSError())
    plane.go_on.clear()
    task = plane.tasks.start(NAME, work)
    async with asyncio.timeout(WAIT_SECONDS):
        await plane.paused.wait()
        await task.close()
    assert work.begun == 1
